"""Queries look up what a few prototypes hold: `softmax(QPᵀ)·Y`, the last product of Orthoformer and Nyström.

Where every group of prototypes holds one frame this is ordinary attention to few keys, and the fused kernel does it
without keeping the n × r weights. Where one group holds several frames, all of them share one softmax, which a kernel
would compute again for each: there the weights are kept (docs/decisions.md, "looking up prototypes").
"""

import torch.nn.functional as F
from einops import rearrange, repeat
from jaxtyping import Float
from torch import Tensor

from motionformer.attention.contract import Pool
from motionformer.attention.exact import softmax


def look_up(
    prototypes: Float[Tensor, "b h g r d"],
    values: Float[Tensor, "b h f r e"],
    *,
    penalty: Float[Tensor, "b h g r"] | None = None,
    dropout: float = 0.0,
) -> Pool:
    """Answers queries with what the prototypes like them hold of each frame.

    There is one group of prototypes for all frames, or one for each; `penalty` is taken off their logits.
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
