"""Performer: positive random features in place of the softmax, the paper's comparison (method.md §4)."""

from typing import Any

import torch
from einops import rearrange
from jaxtyping import Float
from torch import Tensor

from motionformer.attention.contract import AttentionKernel, Bias, Keys, Mask, Pool, Queries, Values, register_kernel
from motionformer.attention.projection import finite_frames, without_autocast

_EPSILON = 1e-6


@register_kernel("performer")
class PerformerAttention(AttentionKernel):
    """Attention with `num_features` random features; the projection is drawn once and saved with the weights.

    Args:
        head_dim: d, channels of a head.
        num_features: random features.
        generator: draws the projection [default: PyTorch's global generator].

    Example:
        >>> q = k = v = torch.randn(1, 2, 24, 16)
        >>> PerformerAttention(16)(q, k, v, frames=4).shape
        torch.Size([1, 2, 24, 4, 16])
    """

    projection: Float[Tensor, "features d"]

    def __init__(self, head_dim: int, num_features: int = 256, *, generator: torch.Generator | None = None) -> None:
        super().__init__()
        self.register_buffer("projection", _orthogonal_features(num_features, head_dim, generator))

    @classmethod
    def from_config(cls, config: Any) -> AttentionKernel:
        return cls(config.dim // config.num_heads, config.kernel.num_features)

    def prepare(self, q: Queries, k: Keys, v: Values, frames: int, bias: Bias = None, query_mask: Mask = None) -> Pool:
        with without_autocast(k.device):
            features = self._key_features(k, bias)
            by_frame = rearrange(features, "b h (f s) m -> b h f m s", f=frames)
            read = by_frame @ rearrange(v, "b h (f s) e -> b h f s e", f=frames).to(by_frame.dtype)
            total = by_frame.sum(dim=-1)

        def pool(q: Float[Tensor, "b h n d"]) -> Float[Tensor, "b h n f e"]:
            with without_autocast(q.device):
                logits, half_norm = self._logits(q)
                features = self._features(logits, half_norm, logits.amax(dim=-1, keepdim=True))
                above = torch.einsum("bhnm,bhfme->bhnfe", features, read)
                below = torch.einsum("bhnm,bhfm->bhnf", features, total)
                below = below.clamp(min=torch.finfo(below.dtype).tiny)  # zero only where a frame has no visible key
                pooled: Tensor = (above / below[..., None]).to(v.dtype)
            return pooled

        return pool

    def macs(self, n: int, m: int, frames: int, num_heads: int, head_dim: int) -> float:
        features, read = (n + m) * head_dim, (m + n * frames) * head_dim
        return float(self.projection.shape[0] * num_heads * (features + read + n * frames))

    def _key_features(self, k: Tensor, bias: Float[Tensor, "b f s"] | None) -> Float[Tensor, "b h m features"]:
        logits, half_norm = self._logits(k)
        if bias is None:
            return self._features(logits, half_norm, logits.amax(dim=(-1, -2), keepdim=True))
        # what all keys of a frame share cancels in its softmax, and must not overflow before
        shift = finite_frames(bias).amax(dim=-1, keepdim=True)
        weight = rearrange(bias - shift, "b f s -> b 1 (f s) 1").to(logits.dtype).exp()
        logits = logits.masked_fill(weight == 0, -float("inf"))
        largest = logits.amax(dim=(-1, -2), keepdim=True)
        return self._features(logits, half_norm, largest.masked_fill(largest == -float("inf"), 0.0)) * weight

    def _logits(self, x: Tensor) -> tuple[Float[Tensor, "b h n m"], Float[Tensor, "b h n 1"]]:
        """In float32 at least: the smallest features are below the range of half precision."""
        wide = torch.promote_types(self.projection.dtype, torch.float32)
        x = x.to(wide) * x.shape[-1] ** -0.25
        return x @ self.projection.to(wide).T, x.square().sum(dim=-1, keepdim=True) / 2

    def _features(self, logits: Tensor, half_norm: Tensor, largest: Tensor) -> Float[Tensor, "b h n m"]:
        features: Tensor = logits.shape[-1] ** -0.5 * (torch.exp(logits - half_norm - largest) + _EPSILON)
        return features


def _orthogonal_features(num: int, dim: int, generator: torch.Generator | None = None) -> Float[Tensor, "{num} {dim}"]:
    """Gaussian directions, orthogonal within each block of `dim`, with the lengths of Gaussian vectors."""
    blocks = [_random_rotation(dim, generator) for _ in range(-(-num // dim))]
    lengths = torch.randn(num, dim, generator=generator).norm(dim=1)
    features: Tensor = torch.cat(blocks)[:num] * lengths[:, None]
    return features


def _random_rotation(dim: int, generator: torch.Generator | None) -> Float[Tensor, "{dim} {dim}"]:
    """Uniform over all rotations: QR alone is not, until the signs of R are taken out."""
    q, r = torch.linalg.qr(torch.randn(dim, dim, generator=generator))
    rotation: Tensor = q * r.diagonal().sign()
    return rotation
