"""Exact softmax attention, one softmax per key frame.

Every key frame is one call of the fused kernel, so no query × key matrix is ever stored (docs/decisions.md,
"one fused call per key frame").
"""

from typing import Any

import torch
import torch.nn.functional as F
from einops import rearrange, repeat
from jaxtyping import Float
from torch import Tensor

from motionformer.attention.contract import AttentionKernel, Bias, Keys, Mask, Pool, Queries, Values, register_kernel
from motionformer.attention.projection import finite_frames


@register_kernel("exact")
class ExactAttention(AttentionKernel):
    """Softmax over the patches of each key frame, computed by `scaled_dot_product_attention`.

    Args:
        dropout: of the attention weights, in training.

    Example:
        >>> q = k = v = torch.randn(1, 2, 24, 16)
        >>> ExactAttention()(q, k, v, frames=4).shape
        torch.Size([1, 2, 24, 4, 16])
    """

    def __init__(self, dropout: float = 0.0) -> None:
        super().__init__()
        self.dropout = dropout

    @classmethod
    def from_config(cls, config: Any) -> AttentionKernel:
        return cls(config.attention_dropout)

    def prepare(self, q: Queries, k: Keys, v: Values, frames: int, bias: Bias = None, query_mask: Mask = None) -> Pool:
        k, v = (rearrange(x, "b h (f s) d -> (b f) h s d", f=frames) for x in (k, v))
        mask = None if bias is None else rearrange(finite_frames(bias), "b f s -> (b f) 1 1 s")

        def pool(q: Float[Tensor, "b h n d"]) -> Float[Tensor, "b h n f e"]:
            dropout = self.dropout if self.training else 0.0
            q = repeat(q, "b h n d -> (b f) h n d", f=frames)
            pooled = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, dropout_p=dropout)
            return rearrange(pooled, "(b f) h n e -> b h n f e", f=frames)

        return pool

    def macs(self, n: int, m: int, frames: int, num_heads: int, head_dim: int) -> float:
        return 2.0 * n * m * num_heads * head_dim  # logits, and the pooling


@register_kernel("norm_st")
class SpaceTimeNormAttention(ExactAttention):
    """The paper's `Norm_ST` ablation: one softmax over space *and* time, still pooled frame by frame.

    A query's weights then sum to one over all frames, so the frames of a trajectory differ in total weight.

    Args:
        dropout: of the attention weights, in training.

    Example:
        >>> create_model("motionformer-tiny", kernel="norm_st").config.kernel.kind
        'norm_st'
    """

    def prepare(self, q: Queries, k: Keys, v: Values, frames: int, bias: Bias = None, query_mask: Mask = None) -> Pool:
        values = rearrange(v, "b h (f s) e -> b h f s e", f=frames)
        mask = None if bias is None else finite_frames(rearrange(bias, "b f s -> b 1 (f s)"))

        def pool(q: Float[Tensor, "b h n d"]) -> Float[Tensor, "b h n f e"]:
            logits = q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5
            if mask is not None:
                logits = logits + mask[:, None]
            weights = softmax(logits).to(values.dtype)
            weights = F.dropout(weights, self.dropout, self.training)
            by_frame = rearrange(weights, "b h n (f s) -> b h f n s", f=frames)
            return rearrange(by_frame @ values, "b h f n e -> b h n f e")

        return pool


def softmax(logits: Tensor) -> Tensor:
    """Softmax over the last axis, in float32 at least."""
    return logits.softmax(dim=-1, dtype=torch.promote_types(logits.dtype, torch.float32))
