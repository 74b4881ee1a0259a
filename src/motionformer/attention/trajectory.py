"""Trajectory attention: pool each frame for each query, then attend along its trajectory (method.md §3)."""

from typing import Any

import torch
import torch.nn.functional as F
from einops import rearrange
from jaxtyping import Float, Int
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from motionformer.attention.contract import (
    AttentionScheme,
    Context,
    KeyBias,
    KeyMask,
    LayerRecord,
    Mask,
    Pool,
    Tokens,
    build_kernel,
    register_scheme,
)
from motionformer.attention.exact import ExactAttention
from motionformer.attention.projection import split_bias
from motionformer.attention.temporal import POOLINGS, TemporalAttention, TemporalPooling

_CPU_BUDGET = 6 << 20
"""Elements of the trajectories `[b f n c]` held at once on a CPU: 24 MB of float32, about one last-level cache."""
_ACCELERATOR_BUDGET = 128 << 20
"""The same elsewhere, where few large kernels win: 256 MB of bfloat16."""


@register_scheme("trajectory")
class TrajectoryAttention(AttentionScheme):
    """Tokens in, tokens out: `[b p + f·s c] -> [b p + f·s c]`, prefix tokens first, then frame by frame.

    Prefix tokens (class, registers) attend to everything in one softmax; patch tokens never see them.

    Args:
        dim: width of the tokens.
        num_heads: heads, each of `dim / num_heads` channels.
        project_values: whether temporal attention projects values; the released models do not.
        time: how a trajectory becomes one token [default: attention along it].
        chunk_size: queries processed at once; bounds memory, never changes the result [default: by device].
        recompute: keep only the inputs for the backward pass and compute the rest again there.
        options: further arguments of `AttentionScheme`: `num_prefix_tokens`, `bias`, `dropout`, and `kernel`, which
            computes the softmax over each frame.

    Example:
        >>> layer = TrajectoryAttention(64, num_heads=4, kernel=OrthoformerAttention(8))
        >>> layer(torch.randn(1, 25, 64), frames=4).shape  # a class token and 4 frames of 6 patches
        torch.Size([1, 25, 64])
    """

    def __init__(
        self,
        dim: int,
        num_heads: int = 8,
        *,
        project_values: bool = True,
        time: TemporalPooling | None = None,
        chunk_size: int | None = None,
        recompute: bool = False,
        **options: Any,
    ) -> None:
        super().__init__(dim, num_heads, **options)
        self.chunk_size = chunk_size
        self.recompute = recompute
        self.prefix_kernel = ExactAttention(self.dropout)  # few queries: exact is linear already
        proj = self.proj
        del self.proj
        if time is None:
            bias = self.qkv.bias is not None
            time = TemporalAttention(dim, num_heads, bias=bias, project_values=project_values, dropout=self.dropout)
        self.time = time
        self.proj = proj  # behind `time`: weights are drawn in the order of the parts

    @classmethod
    def from_config(cls, config: Any, **options: Any) -> AttentionScheme | tuple[AttentionScheme, AttentionScheme]:
        if config.time not in POOLINGS:
            raise ValueError(f"`time` must be one of {', '.join(POOLINGS)}; not {config.time!r}.")
        return super().from_config(
            config,
            kernel=build_kernel(config),  # before `time`: weights are drawn in this order
            time=POOLINGS[config.time].from_config(config),
            chunk_size=config.chunk_size,
            recompute=config.recompute,
            **options,
        )

    def forward(
        self,
        x: Tokens,
        frames: int,
        *,
        context: Context = None,
        key_mask: KeyMask = None,
        key_bias: KeyBias = None,
        query_mask: Mask = None,
        query_frames: Int[Tensor, " patches"] | None = None,
    ) -> Tokens:
        """Attend from the tokens `x` to themselves, or to `context` (`frames` frames of it).

        Masks and biases cover prefix tokens too; a mask is True for real tokens. `query_frames` gives the own frame
        of each patch query where `x` is not laid out like the context.
        """
        p = self.num_prefix_tokens
        self._patches_per_frame(x if context is None else context, frames)
        own = query_frames
        if own is None:
            s = self._patches_per_frame(x, frames)
            own = torch.arange(frames * s, device=x.device) // s
        if own.shape[0] != x.shape[1] - p:
            raise ValueError(f"query_frames has {own.shape[0]} entries for {x.shape[1] - p} patch queries.")
        q, k, v = self.project(x, frames, context)
        if query_mask is None and context is None:
            query_mask = key_mask

        pieces = []
        if p > 0:
            prefix = self.prefix_kernel(q[:, :, :p], k, v, 1, key_mask=key_mask, key_bias=key_bias)
            pieces.append(rearrange(prefix, "b h p 1 d -> b p (h d)"))
        bias, visible = split_bias(_after(key_mask, p), _after(key_bias, p), frames, q)
        pool = self.kernel.prepare(q[:, :, p:], k[:, :, p:], v[:, :, p:], frames, bias, _after(query_mask, p))
        chunk = _automatic_chunk(q[:, :, p:], frames) if self.chunk_size is None else self.chunk_size
        for queries, mine in zip(q[:, :, p:].split(chunk, dim=2), own.split(chunk), strict=True):
            if self.recompute and torch.is_grad_enabled():
                pieces.append(checkpoint(self._track, pool, queries, mine, visible, use_reentrant=False))
            else:
                pieces.append(self._track(pool, queries, mine, visible))
        return self.proj(torch.cat(pieces, dim=1))  # type: ignore[no-any-return]

    def macs(self, frames: int, patches: int, num_prefix_tokens: int) -> float:
        """Multiply-adds of one clip by the paper's convention: `frames` frames of `patches` patches, and a prefix."""
        c, n = self.proj.in_features, frames * patches
        tokens = n + num_prefix_tokens
        space = self.kernel.macs(n, n, frames, self.num_heads, c // self.num_heads)
        return 4 * tokens * c * c + 2 * num_prefix_tokens * tokens * c + space + self.time.macs(n, frames, c)

    def attention_map(self, record: LayerRecord) -> Float[Tensor, "h n n"]:
        """`Σ_f time[n, f] · space[n, f, s]`: the weight of the value of patch s of frame f in the output of query n.

        The whole truth for layers without a value projection along time (the released ones); with one, heads are mixed
        once more before the output, as they are by every output projection. Patches take nothing from the prefix.
        """
        assert record.time is not None, "the layer was not recorded whole"
        patches = rearrange(record.time[0, :, :, :, None] * record.space[0], "h n f s -> h n (f s)")
        patches = F.pad(patches, (self.num_prefix_tokens, 0))
        return patches if record.prefix is None else torch.cat((record.prefix[0, :, :, 0], patches), dim=1)

    def _track(self, pool: Pool, q: Tensor, own: Tensor, visible: Tensor | None) -> Float[Tensor, "b n c"]:
        """Both halves for some of the queries: their trajectories, then one token from each."""
        trajectories = rearrange(pool(q), "b h n f d -> b f n (h d)")
        if visible is not None:  # a query whose own frame is hidden asks with nothing, not with padding
            trajectories = trajectories * visible[:, :, None, None].to(trajectories.dtype)
        out: Tensor = self.time(trajectories, own, visible)
        return out


def _after(per_token: Tensor | None, p: int) -> Tensor | None:
    return None if per_token is None else per_token[:, p:]


def _automatic_chunk(q: Tensor, frames: int) -> int:
    """Queries a chunk for queries `[b h n d]`: even pieces that fit the budget of their device.

    It never changes the result. The trajectory of a query is f · c numbers, 25 kB at base size. All at once they leave
    every cache and, on a CPU, are fetched from the operating system page by page; too few at once, and the fused kernel
    works on small blocks.
    """
    b, h, n, d = q.shape
    if torch.compiler.is_exporting():  # a number of pieces that depends on the batch would fix the batch
        return n
    budget = _CPU_BUDGET if q.device.type == "cpu" else _ACCELERATOR_BUDGET
    pieces = max(1, round(b * n * frames * h * d / budget))
    return max(32, -(-n // pieces))
