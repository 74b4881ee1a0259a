"""What to do with a trajectory: attend along it, or average it (paper §3.1, eqs. 3–4; method.md §3, steps 2 and 3).

A temporal pooling is given the trajectories `ỹ [b f n c]` and each query's own frame, and returns one token per query.

Temporal attention is the function of the paper with the two projections moved out of the time axis ("folded",
docs/decisions.md): `W_k` goes into the query, `W_v` comes after the pooling, so that no trajectory token is ever
projected. Queries are taken in small blocks, so that the `[n h c]` intermediates stay in the cache. The backward pass
is written out: autograd would keep two such intermediates for each layer, each twelve times the tokens at base size.
They are computed again, block by block, while they are in the cache: less memory and less time.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch
import torch.nn.functional as F
from einops import rearrange, repeat
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from motionformer.attention.exact import softmax
from motionformer.attention.projection import is_plain, without_autocast

Trajectories: TypeAlias = Float[Tensor, "b f n c"]
OwnFrames: TypeAlias = Int[Tensor, " n"]
"""The frame that each query is from."""
Visible: TypeAlias = Bool[Tensor, "b f"] | None
"""True for frames with any visible key; the others are left out."""
_Hidden: TypeAlias = Float[Tensor, "b f"] | None
"""Added to the logits of each frame: large and negative for hidden ones."""
_BLOCK_ELEMENTS = 2 << 20
"""Elements of an `[n h c]` intermediate that a block may have on a CPU: 8 MB of float32."""


class TemporalPooling(nn.Module, ABC):
    """`pool(tokens, own, visible) -> [b n c]`; frames that are not `visible` are left out."""

    @classmethod
    def from_config(cls, config: Any) -> "TemporalPooling":
        """Made for a `ModelConfig`."""
        return cls()

    @abstractmethod
    def forward(self, tokens: Trajectories, own: OwnFrames, visible: Visible = None) -> Float[Tensor, "b n c"]: ...

    @abstractmethod
    def weights(self, tokens: Trajectories, own: OwnFrames, visible: Visible = None) -> Float[Tensor, "b h n f"]:
        """The weights of the pooling, for recording; one head where all heads agree."""

    def macs(self, n: int, frames: int, dim: int) -> float:
        """Multiply-adds for n trajectories through `frames` frames by the paper's convention.

        Raises:
            NotImplementedError: the subclass does not define it.
        """
        raise NotImplementedError(f"{type(self).__name__} does not state its multiply-adds: give it a method macs.")


class TemporalAttention(TemporalPooling):
    """Attention along each trajectory, queried from its own frame.

    The key projection has no bias: it would add the same number to every frame, which the softmax removes.

    The projections are folded while all of them are plain layers. If any is wrapped, hooked, quantised or
    parametrised, all are called, on every token of every trajectory: the same function at the paper's own cost.

    Args:
        dim: width of the tokens.
        num_heads: heads, each of `dim / num_heads` channels.
        bias: whether the projections of queries and values have a bias.
        project_values: False averages the trajectory itself, as the released models do.
        dropout: of the attention weights, in training.

    Example:
        >>> trajectories, own = torch.randn(1, 4, 24, 64), torch.arange(24) // 6
        >>> TemporalAttention(64, num_heads=4)(trajectories, own).shape
        torch.Size([1, 24, 64])
    """

    def __init__(
        self,
        dim: int,
        num_heads: int,
        *,
        bias: bool = True,
        project_values: bool = True,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.dropout = dropout
        self.to_query = nn.Linear(dim, dim, bias=bias)
        self.to_key = nn.Linear(dim, dim, bias=False)
        self.to_value = nn.Linear(dim, dim, bias=bias) if project_values else None

    @classmethod
    def from_config(cls, config: Any) -> TemporalPooling:
        return cls(
            config.dim,
            config.num_heads,
            bias=config.qkv_bias,
            project_values=config.project_values,
            dropout=config.attention_dropout,
        )

    def forward(self, tokens: Trajectories, own: OwnFrames, visible: Visible = None) -> Float[Tensor, "b n c"]:
        dropout = self.dropout if self.training else 0.0
        if not self._is_folded():
            weight = F.dropout(self._called_weights(tokens, own, visible), dropout)
            values = tokens if self.to_value is None else self.to_value(tokens).to(tokens.dtype)
            with without_autocast(tokens.device):
                return _zero_if_blind(_pool(values, weight, None), visible)
        with without_autocast(tokens.device):
            out = _memory_efficient_temporal_attention(
                tokens, own, self._projections(tokens.dtype), _hide(visible, tokens), dropout
            )
            if self.to_value is not None and self.to_value.bias is not None:
                out = out + self.to_value.bias.to(out.dtype)
        return _zero_if_blind(out, visible)

    def weights(self, tokens: Trajectories, own: OwnFrames, visible: Visible = None) -> Float[Tensor, "b h n f"]:
        if self._is_folded():
            weight = _temporal_weights(tokens, own, self._projections(tokens.dtype), _hide(visible, tokens))
        else:
            weight = self._called_weights(tokens, own, visible)
        return rearrange(weight, "(b n) h f -> b h n f", b=tokens.shape[0])

    def _is_folded(self) -> bool:
        layers = (self.to_query, self.to_key, self.to_value)
        return all(is_plain(layer) for layer in layers if layer is not None)

    def _called_weights(self, tokens: Tensor, own: Tensor, visible: Tensor | None) -> Float[Tensor, "bn h f"]:
        query = self.to_query(_own_tokens(tokens, own)).to(tokens.dtype)
        keys = self.to_key(tokens).to(tokens.dtype)
        with without_autocast(tokens.device):
            return _projected_weights(query, keys, self.num_heads, _hide(visible, tokens))

    def macs(self, n: int, frames: int, dim: int) -> float:
        """With keys and values of every trajectory token projected, which the release does in any case."""
        return n * dim * dim + n * frames * dim * 2 * dim + 2.0 * n * frames * dim

    def _projections(self, dtype: torch.dtype) -> "_Projections":
        """The weights as `_temporal_attention` takes them, one matrix per head."""

        def by_head(linear: nn.Linear) -> Tensor:
            heads: Tensor = linear.weight.to(dtype).unflatten(0, (self.num_heads, -1))
            return heads

        bias = self.to_query.bias
        return _Projections(
            to_query=self.to_query.weight.to(dtype),
            query_bias=None if bias is None else bias.to(dtype),
            to_key=by_head(self.to_key),
            to_value=None if self.to_value is None else by_head(self.to_value),
        )


class TemporalAverage(TemporalPooling):
    """The paper's `Avg_T` ablation: the plain mean of the trajectory. No parameters.

    Example:
        >>> TrajectoryAttention(64, num_heads=4, time=TemporalAverage()).time
        TemporalAverage()
    """

    def forward(self, tokens: Trajectories, own: OwnFrames, visible: Visible = None) -> Float[Tensor, "b n c"]:
        if visible is None:
            return tokens.mean(dim=1)
        shown = visible[:, :, None, None].to(tokens.dtype)
        return (tokens * shown).sum(dim=1) / shown.sum(dim=1).clamp(min=1)

    def weights(self, tokens: Trajectories, own: OwnFrames, visible: Visible = None) -> Float[Tensor, "b h n f"]:
        shown = tokens.new_ones(tokens.shape[:2]) if visible is None else visible.to(tokens.dtype)
        weight = shown / shown.sum(dim=1, keepdim=True).clamp(min=1)
        return repeat(weight, "b f -> b 1 n f", n=tokens.shape[2])

    def macs(self, n: int, frames: int, dim: int) -> float:
        return 0.0


POOLINGS: dict[str, type[TemporalPooling]] = {"attention": TemporalAttention, "average": TemporalAverage}


def _hide(visible: Bool[Tensor, "b f"] | None, like: Tensor) -> Float[Tensor, "b f"] | None:
    """The logit bias that leaves hidden frames out; finite, so that a clip with no frame at all stays finite too."""
    if visible is None:
        return None
    return like.new_zeros(visible.shape).masked_fill(~visible, torch.finfo(like.dtype).min / 2)


def _zero_if_blind(out: Tensor, visible: Tensor | None) -> Tensor:
    return out if visible is None else out * visible.any(dim=1)[:, None, None].to(out.dtype)


@dataclass(frozen=True)
class _Projections:
    """The matrices of steps 2–3. Without `to_value` a head averages its own slice of the trajectory."""

    to_query: Float[Tensor, "c c"]
    query_bias: Float[Tensor, " c"] | None
    to_key: Float[Tensor, "h d c"]
    to_value: Float[Tensor, "h d c"] | None


def _temporal_attention(
    tokens: Trajectories, own: OwnFrames, projections: _Projections, frame_bias: _Hidden = None, dropout: float = 0.0
) -> Float[Tensor, "b n c"]:
    """Average each query's trajectory, trusting most the frames that resemble what it saw in its own frame `own`."""
    pooled = []
    for block, mine in _blocks(tokens, own, projections.to_key.shape[0]):
        weight = _temporal_weights(block, mine, projections, frame_bias)
        weight = F.dropout(weight, dropout) if dropout > 0.0 else weight
        pooled.append(_pool(block, weight, projections.to_value))
    return pooled[0] if len(pooled) == 1 else torch.cat(pooled, dim=1)


def _temporal_weights(
    tokens: Trajectories, own: OwnFrames, projections: _Projections, frame_bias: _Hidden = None
) -> Float[Tensor, "bn h f"]:
    """How much each query trusts each frame of its trajectory, per head."""
    return _affinity(tokens, _own_query(tokens, own, projections), projections.to_key, frame_bias)


def _own_query(tokens: Tensor, own: Tensor, projections: _Projections) -> Float[Tensor, "h bn d"]:
    """The scaled query of step 2, made from the trajectory's token in the query's own frame."""
    h, d, _ = projections.to_key.shape
    query = F.linear(_own_tokens(tokens, own), projections.to_query, projections.query_bias) * d**-0.5
    heads: Tensor = query.unflatten(1, (h, d))
    return heads.transpose(0, 1)


def _affinity(
    tokens: Tensor,
    query: Float[Tensor, "h bn d"],
    to_key: Tensor,
    frame_bias: Tensor | None,
    scratch: Float[Tensor, "h bn c"] | None = None,
) -> Float[Tensor, "bn h f"]:
    """Softmax over frames; the key projection is folded into the query."""
    logits = torch.bmm(query, to_key, out=scratch).transpose(0, 1) @ _by_token(tokens).transpose(1, 2)
    return _over_frames(logits, tokens, frame_bias)


def _projected_weights(
    query: Float[Tensor, "bn c"], keys: Float[Tensor, "b f n c"], num_heads: int, frame_bias: _Hidden = None
) -> Float[Tensor, "bn h f"]:
    """`_temporal_weights` from queries and keys that are projected already: nothing is folded."""
    queries: Tensor = query.unflatten(1, (num_heads, -1))
    logits = torch.einsum(
        "qhd,qfhd->qhf", queries * queries.shape[-1] ** -0.5, _by_token(keys).unflatten(2, (num_heads, -1))
    )
    return _over_frames(logits, keys, frame_bias)


def _over_frames(logits: Float[Tensor, "bn h f"], tokens: Tensor, frame_bias: Tensor | None) -> Float[Tensor, "bn h f"]:
    if frame_bias is not None:
        logits = logits + frame_bias.repeat_interleave(tokens.shape[2], dim=0)[:, None]
    return softmax(logits).to(tokens.dtype)


def _pool(
    tokens: Trajectories,
    weight: Float[Tensor, "bn h f"],
    to_value: Tensor | None,
    scratch: Float[Tensor, "bn h c"] | None = None,
) -> Float[Tensor, "b n c"]:
    """The weighted mean of each trajectory; its projection comes after the pooling."""
    b, _, n, c = tokens.shape
    if to_value is not None:
        pooled = torch.bmm(weight, _by_token(tokens), out=scratch)
        return (pooled.transpose(0, 1) @ to_value.transpose(1, 2)).transpose(0, 1).reshape(b, n, c)
    by_head = tokens.unflatten(-1, (weight.shape[1], -1))
    return torch.einsum("bfnhd,bnhf->bnhd", by_head, weight.unflatten(0, (b, n))).flatten(2)


def _own_tokens(tokens: Trajectories, own: OwnFrames) -> Float[Tensor, "bn c"]:
    return tokens[:, own, torch.arange(own.shape[0], device=own.device)].flatten(0, 1)


def _by_token(tokens: Trajectories) -> Float[Tensor, "bn f c"]:
    return tokens.transpose(1, 2).flatten(0, 1)


def _blocks(tokens: Trajectories, own: OwnFrames, num_heads: int) -> list[tuple[Tensor, Tensor]]:
    """Even pieces along the queries: small on a CPU, one elsewhere and while a graph is traced."""
    b, _, n, c = tokens.shape
    if tokens.device.type != "cpu" or torch.compiler.is_compiling():
        return [(tokens, own)]
    pieces = max(1, round(b * n * num_heads * c / _BLOCK_ELEMENTS))
    size = -(-n // pieces)
    return list(zip(tokens.split(size, dim=2), own.split(size), strict=True))


def _memory_efficient_temporal_attention(
    tokens: Trajectories, own: OwnFrames, projections: _Projections, frame_bias: _Hidden = None, dropout: float = 0.0
) -> Float[Tensor, "b n c"]:
    """`_temporal_attention`, with the backward pass below where a gradient is wanted and nothing else is in the way.

    `torch.func` (grad, vmap …) takes no function with a backward pass of its own like this one.
    """
    p = projections
    inputs = (tokens, p.to_query, p.query_bias, p.to_key, p.to_value)
    wanted = torch.is_grad_enabled() and any(x is not None and x.requires_grad for x in inputs)
    in_the_way = torch.compiler.is_compiling() or torch._C._are_functorch_transforms_active()
    if not wanted or dropout > 0.0 or in_the_way:
        return _temporal_attention(tokens, own, projections, frame_bias, dropout)
    out: Tensor = _MemoryEfficient.apply(tokens, own, frame_bias, *inputs[1:])  # type: ignore[no-untyped-call]
    return out


class _MemoryEfficient(torch.autograd.Function):
    """Keeps the tokens (attention keeps them anyway), the queries `[h b·n d]` and the weights `[b·n h f]`."""

    @staticmethod
    def forward(
        ctx: Any,
        tokens: Tensor,
        own: Tensor,
        frame_bias: Tensor | None,
        to_query: Tensor,
        query_bias: Tensor | None,
        to_key: Tensor,
        to_value: Tensor | None,
    ) -> Tensor:
        projections = _Projections(to_query, query_bias, to_key, to_value)
        kept, pooled = [], []
        pieces = _blocks(tokens, own, to_key.shape[0])
        scratch = _Scratch(pieces[0][0], to_key.shape[0])
        for block, mine in pieces:
            query = _own_query(block, mine, projections)
            weight = _affinity(block, query, to_key, frame_bias, scratch.by_head(block))
            pooled.append(_pool(block, weight, to_value, scratch.by_query(block)))
            kept += [query, weight]
        ctx.save_for_backward(tokens, own, to_query, query_bias, to_key, to_value, *kept)
        return torch.cat(pooled, dim=1)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        tokens, own, to_query, query_bias, to_key, to_value, *kept = ctx.saved_tensors
        projections = _Projections(to_query, query_bias, to_key, to_value)
        grads = _Projections(
            torch.zeros_like(to_query),
            None if query_bias is None else torch.zeros_like(query_bias),
            torch.zeros_like(to_key),
            None if to_value is None else torch.zeros_like(to_value),
        )
        grad_tokens = torch.empty_like(tokens)
        start = 0
        pieces = _blocks(tokens, own, to_key.shape[0])
        scratch = _Scratch(pieces[0][0], to_key.shape[0])
        for i, (block, mine) in enumerate(pieces):
            stop = start + mine.shape[0]
            grad_tokens[:, :, start:stop] = _block_backward(
                block, mine, projections, kept[2 * i], kept[2 * i + 1], grad[:, start:stop], grads, scratch
            )
            start = stop
        return grad_tokens, None, None, grads.to_query, grads.query_bias, grads.to_key, grads.to_value


class _Scratch:
    """Room for two `[n h c]` intermediates, used again by every block: fresh pages cost as much as the products."""

    def __init__(self, block: Tensor, num_heads: int) -> None:
        b, _, n, c = block.shape  # the first block is the largest
        self.rooms = block.new_empty(2, b * n * num_heads * c)
        self.num_heads = num_heads

    def by_head(self, block: Tensor) -> Float[Tensor, "h bn c"]:
        b, _, n, c = block.shape
        return self.rooms[0, : b * n * self.num_heads * c].view(self.num_heads, b * n, c)

    def by_query(self, block: Tensor) -> Float[Tensor, "bn h c"]:
        b, _, n, c = block.shape
        return self.rooms[1, : b * n * self.num_heads * c].view(b * n, self.num_heads, c)


def _block_backward(
    tokens: Tensor,
    own: Tensor,
    projections: _Projections,
    query: Tensor,
    weight: Tensor,
    grad: Tensor,
    grads: _Projections,
    scratch: _Scratch,
) -> Float[Tensor, "b f n c"]:
    """Gradient of one block's tokens: through the pooling, the softmax over time, and the query, in this order.

    The gradients of the projections are added to `grads`.
    """
    b, _, n, c = tokens.shape
    h, d, _ = projections.to_key.shape
    each = _by_token(tokens)
    by_head, by_query = scratch.by_head(tokens), scratch.by_query(tokens)

    if projections.to_value is None:
        grad_head = grad.unflatten(-1, (h, d))
        grad_weight = torch.einsum("bfnhd,bnhd->bnhf", tokens.unflatten(-1, (h, d)), grad_head).flatten(0, 1)
        shares: Tensor = weight.unflatten(0, (b, n))
        grad_tokens = (shares.transpose(2, 3)[..., None] * grad_head[:, :, None]).flatten(3).flatten(0, 1)
    else:
        assert grads.to_value is not None
        grad_head = grad.reshape(b * n, h, d).transpose(0, 1)
        pooled = torch.bmm(weight, each, out=by_query)
        grads.to_value.baddbmm_(grad_head.transpose(1, 2), pooled.transpose(0, 1))
        grad_pooled = torch.bmm(grad_head, projections.to_value, out=by_head).transpose(0, 1)
        grad_weight = grad_pooled @ each.transpose(1, 2)
        grad_tokens = weight.transpose(1, 2) @ grad_pooled

    grad_logits = weight * (grad_weight - (grad_weight * weight).sum(dim=-1, keepdim=True))
    folded = torch.bmm(query, projections.to_key, out=by_head).transpose(0, 1)
    grad_tokens.baddbmm_(grad_logits.transpose(1, 2), folded)
    grad_folded = torch.bmm(grad_logits, each, out=by_query).transpose(0, 1)
    grads.to_key.baddbmm_(query.transpose(1, 2), grad_folded)
    grad_query = (grad_folded @ projections.to_key.transpose(1, 2)).transpose(0, 1).reshape(b * n, c) * d**-0.5

    grads.to_query.addmm_(grad_query.T, _own_tokens(tokens, own))
    if grads.query_bias is not None:
        grads.query_bias.add_(grad_query.sum(dim=0))
    by_clip: Tensor = grad_tokens.unflatten(0, (b, n))
    index = torch.arange(n, device=own.device)
    by_clip[:, index, own] += (grad_query @ projections.to_query).unflatten(0, (b, n))
    return by_clip.transpose(1, 2)
