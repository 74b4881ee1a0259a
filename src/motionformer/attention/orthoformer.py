"""Orthoformer: attention through a few prototypes, linear in the number of tokens (paper §3.3; method.md §4).

`softmax(QKᵀ)V ≈ softmax(QPᵀ) · (softmax(PKᵀ)V)`: every prototype reads each key frame once, every query then reads
the prototypes. Queries and keys are both scaled by d^-¼, so that a prototype, which is a query, meets either on
equal terms. Prototypes are constants for the gradient.
"""

from typing import Any, Literal

import torch
import torch.nn.functional as F
from einops import rearrange, repeat
from jaxtyping import Float
from torch import Tensor

from motionformer.attention.contract import AttentionKernel, Bias, Keys, Mask, Pool, Queries, Values, register_kernel
from motionformer.attention.exact import softmax
from motionformer.attention.projection import finite_frames, is_visible
from motionformer.attention.prototypes import Choice, segment_means, select_prototypes, take_tokens


@register_kernel("orthoformer")
class OrthoformerAttention(AttentionKernel):
    """Attention through `num_prototypes` prototypes.

    Args:
        num_prototypes: r, the number of prototypes (per head; per frame as well if not `shared`);
            all candidates where there are fewer.
        choice: `orthogonal` (greedy), `random`, or `segments` (means of consecutive runs of tokens).
        shared: one set of prototypes for all key frames, or a set for each, chosen among that frame's tokens: the
            queries are then laid out frame by frame, as many in each.
        candidates: select among the queries, as the released models do, or among queries and keys, as in the paper.
        subsample: look only at this many times r random candidates (the paper: 4); None looks at all.
        refine: move each prototype to the mean of the queries nearest to it, and correct the logits for its norm.
        ridge: λ > 0 undoes the overlap of the prototypes with `(softmax(PPᵀ) + λI)⁻¹`.
        dropout: of the attention weights, in training.
        deterministic_eval: draw nothing in evaluation, which is then repeatable; False is the released behaviour.
        generator: of every random draw [default: PyTorch's global one]. Leave it out under activation checkpointing,
            which repeats the draws of PyTorch's own generator only.

    Raises:
        ValueError: `num_prototypes` is below 1, or `choice` or `candidates` is unknown.

    Example:
        >>> q = k = v = torch.randn(1, 2, 24, 16)
        >>> OrthoformerAttention(8)(q, k, v, frames=4).shape
        torch.Size([1, 2, 24, 4, 16])
    """

    def __init__(
        self,
        num_prototypes: int = 128,
        *,
        choice: Choice | Literal["segments"] = "orthogonal",
        shared: bool = True,
        candidates: Literal["queries", "queries+keys"] = "queries",
        subsample: int | None = None,
        refine: bool = False,
        ridge: float = 0.0,
        dropout: float = 0.0,
        deterministic_eval: bool = True,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        if num_prototypes < 1:
            raise ValueError(f"Orthoformer attention needs num_prototypes >= 1, got {num_prototypes}.")
        if choice not in ("orthogonal", "random", "segments"):
            raise ValueError(f"`choice` must be 'orthogonal', 'random' or 'segments', not {choice!r}.")
        if candidates not in ("queries", "queries+keys"):
            raise ValueError(f"`candidates` must be 'queries' or 'queries+keys', not {candidates!r}.")
        self.num_prototypes = num_prototypes
        self.choice = choice
        self.shared = shared
        self.candidates = candidates
        self.subsample = subsample
        self.refine = refine
        self.ridge = ridge
        self.dropout = dropout
        self.deterministic_eval = deterministic_eval
        self.generator = generator

    @classmethod
    def from_config(cls, config: Any) -> AttentionKernel:
        a = config.kernel
        return cls(
            a.num_prototypes,
            choice=a.choice,
            shared=a.shared,
            candidates=a.candidates,
            subsample=a.subsample,
            refine=a.refine,
            ridge=a.ridge,
            dropout=config.attention_dropout,
        )

    @classmethod
    def improved(cls, num_prototypes: int = 128, *, shared: bool = True) -> "OrthoformerAttention":
        """A closer approximation at nearly the same cost: one Lloyd step, norm correction, ridge (method.md §4)."""
        return cls(num_prototypes, shared=shared, refine=True, ridge=0.01)

    def prepare(self, q: Queries, k: Keys, v: Values, frames: int, bias: Bias = None, query_mask: Mask = None) -> Pool:
        scale = q.shape[-1] ** -0.25
        prototypes = self._choose(q.detach() * scale, k.detach() * scale, frames, bias, query_mask)
        penalty = prototypes.square().sum(dim=-1) / 2 if self.refine else None
        values = self._read(prototypes, k, v, frames, bias, penalty)
        return read_prototypes(prototypes, values, penalty=penalty, dropout=self.dropout if self.training else 0.0)

    def macs(self, n: int, m: int, frames: int, num_heads: int, head_dim: int) -> float:
        groups, c = 1 if self.shared else frames, num_heads * head_dim
        candidates = (n + m if self.candidates == "queries+keys" else n) // groups
        r = min(self.num_prototypes, candidates)
        searched = candidates if self.subsample is None else min(candidates, self.subsample * r)
        products = n * r * groups + 2 * r * m + n * r * frames
        if self.choice == "orthogonal":
            products += groups * searched * r
        if self.refine:  # who is nearest to whom, and the means
            products += 2 * groups * candidates * r
        if self.ridge > 0.0:  # the overlap of the prototypes, and the values through its inverse
            products += groups * r * r + frames * r * r
        return float(products * c) + (groups * num_heads * r**3 / 3 if self.ridge > 0.0 else 0.0)

    def _choose(
        self, q: Tensor, k: Tensor, frames: int, bias: Tensor | None, query_mask: Tensor | None
    ) -> Float[Tensor, "b h g r d"]:
        """Prototypes of each group: one group for all frames if shared, else one group per frame."""
        groups = 1 if self.shared else frames
        if q.shape[2] % groups:
            raise ValueError(f"per-frame prototypes: {q.shape[2]} queries do not divide into {groups} frames.")
        tokens = rearrange(q, "b h (g n) d -> b h g n d", g=groups)
        mask = None
        if query_mask is not None:
            mask = repeat(query_mask, "b (g n) -> b h g n", h=q.shape[1], g=groups)
        if self.candidates == "queries+keys":
            tokens, mask = _append_keys(tokens, mask, k, bias)
        if self.choice == "segments":
            chosen = segment_means(tokens, self.num_prototypes, mask)
        else:
            index = select_prototypes(
                tokens,
                self.num_prototypes,
                choice=self.choice,
                mask=mask,
                subsample=self.subsample,
                deterministic=self.deterministic_eval and not self.training,
                generator=self.generator,
            )
            chosen = take_tokens(tokens, index)
        return _lloyd_step(chosen, tokens, mask) if self.refine else chosen

    def _read(
        self, prototypes: Tensor, k: Tensor, v: Tensor, frames: int, bias: Tensor | None, penalty: Tensor | None
    ) -> Float[Tensor, "b h f r e"]:
        """What each prototype pools from each key frame."""
        k, v = (rearrange(x, "b h (f s) d -> (b f) h s d", f=frames) for x in (k, v))
        each = rearrange(prototypes.expand(-1, -1, frames, -1, -1), "b h f r d -> (b f) h r d").to(k.dtype)
        mask = None if bias is None else rearrange(finite_frames(bias), "b f s -> (b f) 1 1 s")
        values = F.scaled_dot_product_attention(each, k, v, attn_mask=mask, scale=k.shape[-1] ** -0.25)
        values = rearrange(values, "(b f) h r e -> b h f r e", f=frames)
        if self.ridge == 0.0:
            return values
        logits = prototypes @ prototypes.transpose(-1, -2)
        overlap = softmax(logits if penalty is None else logits - penalty[..., None, :])
        overlap = overlap + self.ridge * torch.eye(overlap.shape[-1], dtype=overlap.dtype, device=overlap.device)
        untangled: Tensor = torch.linalg.solve(overlap, values.to(overlap.dtype))
        return untangled.to(values.dtype)


def read_prototypes(
    prototypes: Float[Tensor, "b h g r d"],
    values: Float[Tensor, "b h f r e"],
    *,
    penalty: Float[Tensor, "b h g r"] | None = None,
    dropout: float = 0.0,
) -> Pool:
    """Answers queries with what the prototypes like them hold of each frame.

    `softmax(QPᵀ)·Y`, the last product of Orthoformer and Nyström. There is one group of prototypes for all frames, or
    one for each; `penalty` is taken off their logits. Where every group holds one frame this is ordinary attention to
    few keys, and the fused kernel does it without keeping the n × r weights. Where one group holds several frames, all
    of them share one softmax, which a fused kernel would compute again for each: there the weights are kept
    (docs/decisions.md, "reading prototypes").
    """
    groups, frames = prototypes.shape[2], values.shape[2]
    held = rearrange(values, "b h (g k) r e -> b h g r (k e)", g=groups)

    def fused(q: Float[Tensor, "b h n d"]) -> Float[Tensor, "b h n f e"]:
        each = repeat(q, "b h n d -> (b g) h n d", g=groups)
        few, one = (rearrange(x, "b h g r d -> (b g) h r d") for x in (prototypes.to(q.dtype), held))
        found = F.scaled_dot_product_attention(each, few, one, dropout_p=dropout, scale=q.shape[-1] ** -0.25)
        return rearrange(found, "(b g) h n e -> b h n g e", g=groups)

    def weighed(q: Float[Tensor, "b h n d"]) -> Float[Tensor, "b h n f e"]:
        logits = (q * q.shape[-1] ** -0.25)[:, :, None] @ prototypes.transpose(-1, -2).to(q.dtype)
        weights = softmax(logits if penalty is None else logits - penalty[..., None, :]).to(held.dtype)
        found = F.dropout(weights, dropout) @ held
        return rearrange(found, "b h g n (k e) -> b h n (g k) e", k=frames // groups)

    return fused if groups == frames and penalty is None else weighed


def _append_keys(tokens: Tensor, mask: Tensor | None, k: Tensor, bias: Tensor | None) -> tuple[Tensor, Tensor | None]:
    groups = tokens.shape[2]
    keys = rearrange(k, "b h (g m) d -> b h g m d", g=groups)
    if mask is not None or bias is not None:
        real_q = tokens.new_ones(tokens.shape[:-1], dtype=torch.bool) if mask is None else mask
        real_k = keys.new_ones(keys.shape[:-1], dtype=torch.bool)
        if bias is not None:
            visible = rearrange(is_visible(bias), "b f s -> b (f s)")
            real_k = repeat(visible, "b (g m) -> b h g m", h=k.shape[1], g=groups)
        mask = torch.cat((real_q, real_k), dim=-1)
    return torch.cat((tokens, keys), dim=-2), mask


def _lloyd_step(prototypes: Tensor, tokens: Tensor, mask: Tensor | None) -> Tensor:
    """Each prototype becomes the mean of the tokens nearest to it; one that is nearest to none stays."""
    closeness = tokens @ prototypes.transpose(-1, -2) - prototypes.square().sum(dim=-1)[..., None, :] / 2
    member = F.one_hot(closeness.argmax(dim=-1), prototypes.shape[-2]).to(tokens.dtype)
    if mask is not None:
        member = member * mask[..., None].to(member.dtype)
    count = member.sum(dim=-2)[..., None]
    mean = member.transpose(-1, -2) @ tokens / count.clamp(min=1)
    return torch.where(count > 0, mean, prototypes)
