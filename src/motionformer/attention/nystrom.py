"""Nyström attention with segment-mean landmarks, the paper's comparison (method.md §4).

`softmax(QK̃ᵀ) · pinv(softmax(Q̃K̃ᵀ)) · (softmax(Q̃Kᵀ)V)` with landmarks Q̃, K̃. The inverse is a fixed number of matrix
products, and it meets the small r × d product, not the long n × r one.
"""

from typing import Any

import torch
import torch.nn.functional as F
from einops import rearrange, repeat
from jaxtyping import Float
from torch import Tensor

from motionformer.attention.contract import AttentionKernel, Bias, Keys, Mask, Pool, Queries, Values, register_kernel
from motionformer.attention.exact import softmax
from motionformer.attention.orthoformer import read_prototypes
from motionformer.attention.projection import finite_frames, is_visible
from motionformer.attention.prototypes import segment_means


@register_kernel("nystrom")
class NystromAttention(AttentionKernel):
    """Attention through `num_landmarks` mean queries and mean keys, each a run of neighbours in time, then space.

    Where there are fewer queries or keys than that, as in the small groups of divided attention, there are as many
    landmarks as the fewer of the two: a mean query and a mean key make a pair.

    Args:
        num_landmarks: r, the number of landmarks.
        inverse_steps: iterations of the pseudo-inverse.
        dropout: of the attention weights, in training.
        constant_landmarks: let no gradient through the landmarks, as the released code does.

    Raises:
        ValueError: `num_landmarks` is below 1.

    Example:
        >>> q = k = v = torch.randn(1, 2, 24, 16)
        >>> NystromAttention(8)(q, k, v, frames=4).shape
        torch.Size([1, 2, 24, 4, 16])
    """

    def __init__(
        self,
        num_landmarks: int = 128,
        *,
        inverse_steps: int = 6,
        dropout: float = 0.0,
        constant_landmarks: bool = False,
    ) -> None:
        super().__init__()
        if num_landmarks < 1:
            raise ValueError(f"Nyström attention needs num_landmarks >= 1, got {num_landmarks}.")
        self.num_landmarks = num_landmarks
        self.inverse_steps = inverse_steps
        self.dropout = dropout
        self.constant_landmarks = constant_landmarks

    @classmethod
    def from_config(cls, config: Any) -> AttentionKernel:
        return cls(config.kernel.num_prototypes, dropout=config.attention_dropout, constant_landmarks=True)

    def prepare(self, q: Queries, k: Keys, v: Values, frames: int, bias: Bias = None, query_mask: Mask = None) -> Pool:
        scale = q.shape[-1] ** -0.25
        key_mask = None if bias is None else rearrange(is_visible(bias), "b f s -> b (f s)")
        num = min(self.num_landmarks, q.shape[2], k.shape[2])
        fixed_q, fixed_k = (q.detach(), k.detach()) if self.constant_landmarks else (q, k)
        mean_q = _landmarks(fixed_q * scale, num, frames, query_mask)
        mean_k = _landmarks(fixed_k * scale, num, frames, key_mask)
        keys, values = (rearrange(x, "b h (f s) d -> (b f) h s d", f=frames) for x in (k, v))
        readers = repeat(mean_q, "b h r d -> (b f) h r d", f=frames).to(keys.dtype)
        mask = None if bias is None else rearrange(finite_frames(bias), "b f s -> (b f) 1 1 s")
        read = F.scaled_dot_product_attention(readers, keys, values, attn_mask=mask, scale=scale)
        inverse = _iterative_inverse(softmax(mean_q @ mean_k.transpose(-1, -2)), self.inverse_steps)
        read = rearrange(read, "(b f) h r e -> b h r (f e)", f=frames).to(inverse.dtype)
        held = rearrange(inverse @ read, "b h r (f e) -> b h f r e", f=frames).to(v.dtype)
        return read_prototypes(mean_k[:, :, None], held, dropout=self.dropout if self.training else 0.0)

    def macs(self, n: int, m: int, frames: int, num_heads: int, head_dim: int) -> float:
        r, c = min(self.num_landmarks, n, m), num_heads * head_dim
        inverse = r * r * c + num_heads * self.inverse_steps * 4 * r**3 + r * r * frames * c
        return float(n * r * c + 2 * r * m * c + inverse + n * r * frames * c)


def _landmarks(x: Tensor, num: int, frames: int, mask: Tensor | None) -> Float[Tensor, "b h r d"]:
    """Means over runs of tokens ordered by position, all frames of a position together."""
    if x.shape[2] % frames:  # queries of no grid stay in their order
        frames = 1
    x = rearrange(x, "b h (f s) d -> b h (s f) d", f=frames)
    if mask is not None:
        mask = repeat(mask, "b (f s) -> b h (s f)", f=frames, h=x.shape[1])
    return segment_means(x, num, mask)


def _iterative_inverse(matrix: Float[Tensor, "*batch r r"], steps: int = 6) -> Float[Tensor, "*batch r r"]:
    """The pseudo-inverse of a row-stochastic matrix by a third-order iteration (six steps are the published choice)."""
    identity = torch.eye(matrix.shape[-1], dtype=matrix.dtype, device=matrix.device)
    inverse = matrix.transpose(-1, -2) / matrix.sum(dim=-2, keepdim=True).amax(dim=-1, keepdim=True)
    for _ in range(steps):
        product = matrix @ inverse
        inverse = 0.25 * inverse @ (13 * identity - product @ (15 * identity - product @ (7 * identity - product)))
    return inverse
