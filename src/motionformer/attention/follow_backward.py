"""`follow` with its backward pass written out.

Autograd would keep two `[n h c]` intermediates for each layer, twelve times the tokens at base size. Here they are
computed again, block by block, while they are in the cache: less memory and less time. The gradients are those of
`follow`, to rounding (a test compares them, another checks them against finite differences).
"""

from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from motionformer.attention.follow import (
    Projections,
    affinity,
    blocks,
    by_token,
    follow,
    own_query,
    own_tokens,
    pool,
)


def follow_frugally(
    tokens: Float[Tensor, "b f n c"],
    own: Int[Tensor, " n"],
    projections: Projections,
    frame_bias: Float[Tensor, "b f"] | None = None,
    dropout: float = 0.0,
) -> Float[Tensor, "b n c"]:
    """`follow`, with the frugal backward pass where a gradient is wanted and nothing else is in the way."""
    p = projections
    inputs = (tokens, p.to_query, p.query_bias, p.to_key, p.to_value)
    wanted = torch.is_grad_enabled() and any(x is not None and x.requires_grad for x in inputs)
    if not wanted or dropout > 0.0 or torch.compiler.is_compiling():
        return follow(tokens, own, projections, frame_bias, dropout)
    out: Tensor = _Follow.apply(tokens, own, frame_bias, *inputs[1:])  # type: ignore[no-untyped-call]
    return out


class _Follow(torch.autograd.Function):
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
        projections = Projections(to_query, query_bias, to_key, to_value)
        kept, pooled = [], []
        for block, mine in blocks(tokens, own, to_key.shape[0]):
            query = own_query(block, mine, projections)
            weight = affinity(block, query, to_key, frame_bias)
            pooled.append(pool(block, weight, to_value))
            kept += [query, weight]
        ctx.save_for_backward(tokens, own, to_query, query_bias, to_key, to_value, *kept)
        return torch.cat(pooled, dim=1)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        tokens, own, to_query, query_bias, to_key, to_value, *kept = ctx.saved_tensors
        projections = Projections(to_query, query_bias, to_key, to_value)
        grad_tokens = torch.empty_like(tokens)
        grad_query = torch.zeros_like(to_query)
        grad_bias = None if query_bias is None else torch.zeros_like(query_bias)
        grad_key = torch.zeros_like(to_key)
        grad_value = None if to_value is None else torch.zeros_like(to_value)
        start = 0
        pieces = blocks(tokens, own, to_key.shape[0])
        for i, (block, mine) in enumerate(pieces):
            stop = start + mine.shape[0]
            found = _block_backward(block, mine, projections, kept[2 * i], kept[2 * i + 1], grad[:, start:stop])
            grad_tokens[:, :, start:stop] = found["tokens"]
            grad_query += found["to_query"]
            grad_key += found["to_key"]
            if grad_bias is not None:
                grad_bias += found["query_bias"]
            if grad_value is not None:
                grad_value += found["to_value"]
            start = stop
        return grad_tokens, None, None, grad_query, grad_bias, grad_key, grad_value


def _block_backward(
    tokens: Tensor, own: Tensor, projections: Projections, query: Tensor, weight: Tensor, grad: Tensor
) -> dict[str, Tensor]:
    """Gradients of one block: through the pooling, the softmax over time, and the query, in this order."""
    b, _, n, c = tokens.shape
    h, d, _ = projections.to_key.shape
    each = by_token(tokens)
    found: dict[str, Tensor] = {}

    if projections.to_value is None:
        grad_head = grad.unflatten(-1, (h, d))
        grad_weight = torch.einsum("bfnhd,bnhd->bnhf", tokens.unflatten(-1, (h, d)), grad_head).flatten(0, 1)
        shares: Tensor = weight.unflatten(0, (b, n))
        grad_tokens = (shares.transpose(2, 3)[..., None] * grad_head[:, :, None]).flatten(3).flatten(0, 1)
    else:
        grad_head = grad.reshape(b * n, h, d).transpose(0, 1)
        grad_pooled = (grad_head @ projections.to_value).transpose(0, 1)
        found["to_value"] = grad_head.transpose(1, 2) @ (weight @ each).transpose(0, 1)
        grad_weight = grad_pooled @ each.transpose(1, 2)
        grad_tokens = weight.transpose(1, 2) @ grad_pooled

    grad_logits = weight * (grad_weight - (grad_weight * weight).sum(dim=-1, keepdim=True))
    folded = (query @ projections.to_key).transpose(0, 1)
    grad_tokens = torch.baddbmm(grad_tokens, grad_logits.transpose(1, 2), folded)
    grad_folded = (grad_logits @ each).transpose(0, 1)
    found["to_key"] = query.transpose(1, 2) @ grad_folded
    grad_query = (grad_folded @ projections.to_key.transpose(1, 2)).transpose(0, 1).reshape(b * n, c) * d**-0.5

    found["to_query"] = grad_query.T @ own_tokens(tokens, own)
    found["query_bias"] = grad_query.sum(dim=0)
    by_clip: Tensor = grad_tokens.unflatten(0, (b, n))
    place = torch.arange(n, device=own.device)
    by_clip[:, place, own] += (grad_query @ projections.to_query).unflatten(0, (b, n))
    found["tokens"] = by_clip.transpose(1, 2)
    return found
