"""The contract between "how softmax attention is computed" and "who attends to whom".

An *attend* answers `attend(q, k, v, frames)`: the keys are cut into `frames` equal groups, every query gets one
softmax per group and one pooled value per group (method.md §3, step 1; paper eq. 2). `frames=1` is ordinary attention.
Nothing here knows projections, prefix tokens or blocks.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable

from einops import rearrange
from jaxtyping import Bool, Float
from torch import Tensor, nn

Pool = Callable[[Tensor], Tensor]
"""Queries `[b h n d]` (all of them, or any chunk) → one pooled value per key frame `[b h n f d]`."""


class Attend(nn.Module, ABC):
    """One way to compute softmax attention; an `nn.Module` only for `training`, buffers and devices."""

    @abstractmethod
    def prepare(
        self,
        q: Float[Tensor, "b h n d"],
        k: Float[Tensor, "b h m d"],
        v: Float[Tensor, "b h m e"],
        frames: int,
        bias: Float[Tensor, "b f s"] | None = None,
        query_mask: Bool[Tensor, "b n"] | None = None,
    ) -> Pool:
        """Do the work that is shared by all queries; the result answers any chunk of them.

        `bias` is added to the logits of each key; −inf hides it, and a frame may be hidden throughout: what is pooled
        from it must be finite (see `finite_frames`), and nothing else may depend on it.
        `query_mask` is True for real queries: padded ones are never used as prototypes.
        """

    def macs(self, n: int, m: int, frames: int, num_heads: int, head_dim: int) -> float:
        """Multiply-adds of one clip: n queries, m keys in `frames` frames, no projections. A kernel states its own.

        Raises:
            NotImplementedError: this kernel states none. Nothing is guessed.
        """
        raise NotImplementedError(f"{type(self).__name__} does not state its multiply-adds: give it a method macs.")

    def forward(
        self,
        q: Float[Tensor, "b h n d"],
        k: Float[Tensor, "b h m d"],
        v: Float[Tensor, "b h m e"],
        frames: int = 1,
        *,
        key_mask: Bool[Tensor, "b m"] | None = None,
        key_bias: Float[Tensor, "b m"] | None = None,
        query_mask: Bool[Tensor, "b n"] | None = None,
    ) -> Float[Tensor, "b h n {frames} e"]:
        """One pooled value per query and key frame; zero where a frame has no visible key."""
        bias, visible = split_bias(key_mask, key_bias, frames, q)
        pooled = self.prepare(q, k, v, frames, bias, query_mask)(q)
        if visible is None:
            return pooled
        return pooled * rearrange(visible, "b f -> b 1 1 f 1").to(pooled.dtype)


def split_bias(
    key_mask: Bool[Tensor, "b m"] | None, key_bias: Float[Tensor, "b m"] | None, frames: int, like: Tensor
) -> tuple[Float[Tensor, "b {frames} s"] | None, Bool[Tensor, "b {frames}"] | None]:
    """A mask and a bias over keys as one additive bias per frame, and which frames show any key at all.

    The caller leaves out what was pooled from the others.
    """
    if key_mask is None and key_bias is None:
        return None, None
    bias = like.new_zeros(()) if key_bias is None else key_bias.to(like.dtype)
    if key_mask is not None:
        bias = bias.expand(key_mask.shape).masked_fill(~key_mask, -float("inf"))
    bias = rearrange(bias, "b (f s) -> b f s", f=frames)
    return bias, is_visible(bias).any(dim=-1)


def is_visible(bias: Float[Tensor, "b f s"]) -> Bool[Tensor, "b f s"]:
    """Which keys are not hidden."""
    return bias != -float("inf")


def finite_frames(bias: Float[Tensor, "b f s"]) -> Float[Tensor, "b f s"]:
    """Zero where a frame has no visible key: a softmax over nothing would be no number."""
    return bias.masked_fill(~is_visible(bias).any(dim=-1, keepdim=True), 0.0)
