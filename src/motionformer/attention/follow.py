"""Trajectory attention, second half: follow each query through time (paper §3.1, eqs. 3–4; SPEC steps 2–3).

The function of the paper with the two projections moved out of the time axis ("folded", docs/decisions.md): `W_k`
goes into the query, `W_v` comes after the pooling, so that no trajectory token is ever projected. `follow` states it;
`_Follow` is the same function with its backward pass written out, which recomputes the two large intermediates
`[n h c]` instead of keeping them.
"""

from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from motionformer.attention.exact import softmax


@dataclass(frozen=True)
class Projections:
    """The matrices of steps 2–3. Without `to_value` a head averages its own slice of the trajectory."""

    to_query: Float[Tensor, "c c"]
    query_bias: Float[Tensor, " c"] | None
    to_key: Float[Tensor, "h d c"]
    to_value: Float[Tensor, "h d c"] | None


def follow(
    tokens: Float[Tensor, "b f n c"],
    own: Int[Tensor, " n"],
    projections: Projections,
    frame_bias: Float[Tensor, "b f"] | None = None,
    dropout: float = 0.0,
) -> Float[Tensor, "b n c"]:
    """Average each query's trajectory, trusting most the frames that resemble what it saw in its own frame `own`."""
    p = projections
    weights = [w for w in (p.to_query, p.query_bias, p.to_key, p.to_value) if w is not None]
    needs_grad = torch.is_grad_enabled() and any(x.requires_grad for x in (tokens, *weights))
    if needs_grad and dropout == 0.0 and not torch.compiler.is_compiling():
        out: Tensor = _Follow.apply(tokens, own, frame_bias, p.to_query, p.query_bias, p.to_key, p.to_value)  # type: ignore[no-untyped-call]
        return out
    weight = temporal_weights(tokens, own, p, frame_bias)
    return _pool(tokens, F.dropout(weight, dropout) if dropout > 0.0 else weight, p.to_value)


def temporal_weights(
    tokens: Float[Tensor, "b f n c"],
    own: Int[Tensor, " n"],
    projections: Projections,
    frame_bias: Float[Tensor, "b f"] | None = None,
) -> Float[Tensor, "bn h f"]:
    """How much each query trusts each frame of its trajectory, per head."""
    query = _own_query(tokens, own, projections.to_query, projections.query_bias, projections.to_key)
    return _affinity(tokens, query, projections.to_key, frame_bias)


def _own_query(
    tokens: Tensor, own: Tensor, to_query: Tensor, query_bias: Tensor | None, to_key: Tensor
) -> Float[Tensor, "h bn d"]:
    """The scaled query of step 2, made from the trajectory's token in the query's own frame."""
    mine = tokens[:, own, torch.arange(own.shape[0], device=own.device)].flatten(0, 1)
    query = F.linear(mine, to_query, query_bias) * to_key.shape[1] ** -0.5
    heads: Tensor = query.unflatten(1, to_key.shape[:2])
    return heads.transpose(0, 1)


def _affinity(
    tokens: Tensor, query: Float[Tensor, "h bn d"], to_key: Tensor, frame_bias: Tensor | None
) -> Float[Tensor, "bn h f"]:
    """Softmax over frames; the key projection is folded into the query."""
    logits = (query @ to_key).transpose(0, 1) @ _by_token(tokens).transpose(1, 2)
    if frame_bias is not None:
        logits = logits + frame_bias.repeat_interleave(tokens.shape[2], dim=0)[:, None]
    return softmax(logits).to(tokens.dtype)


def _pool(
    tokens: Float[Tensor, "b f n c"], weight: Float[Tensor, "bn h f"], to_value: Tensor | None
) -> Float[Tensor, "b n c"]:
    b, _, n, c = tokens.shape
    if to_value is not None:
        pooled = weight @ _by_token(tokens)
        return (pooled.transpose(0, 1) @ to_value.transpose(1, 2)).transpose(0, 1).reshape(b, n, c)
    by_head = tokens.unflatten(-1, (weight.shape[1], -1))
    return torch.einsum("bfnhd,bnhf->bnhd", by_head, weight.unflatten(0, (b, n))).flatten(2)


def _by_token(tokens: Float[Tensor, "b f n c"]) -> Float[Tensor, "bn f c"]:
    return tokens.transpose(1, 2).flatten(0, 1)


class _Follow(torch.autograd.Function):
    """`follow` with a backward pass that keeps `[b n c]` and `[b n h f]`, never `[b n h c]`."""

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
        query = _own_query(tokens, own, to_query, query_bias, to_key)
        weight = _affinity(tokens, query, to_key, frame_bias)
        ctx.save_for_backward(tokens, own, to_query, query_bias, to_key, to_value, query, weight)
        return _pool(tokens, weight, to_value)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        tokens, own, to_query, query_bias, to_key, to_value, query, weight = ctx.saved_tensors
        b, _, n, c = tokens.shape
        h = weight.shape[1]
        by_token = _by_token(tokens)

        # through the value projection and the pooling
        if to_value is None:
            grad_head = grad.unflatten(-1, (h, -1))
            grad_value = None
            grad_weight = torch.einsum("bfnhd,bnhd->bnhf", tokens.unflatten(-1, (h, -1)), grad_head).flatten(0, 1)
            grad_tokens = weight.unflatten(0, (b, n)).transpose(2, 3)[..., None] * grad_head[:, :, None]
            grad_tokens = grad_tokens.flatten(3).flatten(0, 1)
        else:
            grad_head = grad.reshape(b * n, h, -1).transpose(0, 1)
            grad_pooled = (grad_head @ to_value).transpose(0, 1)
            grad_value = grad_head.transpose(1, 2) @ (weight @ by_token).transpose(0, 1)
            grad_weight = grad_pooled @ by_token.transpose(1, 2)
            grad_tokens = weight.transpose(1, 2) @ grad_pooled

        # through the softmax over time
        grad_logits = weight * (grad_weight - (grad_weight * weight).sum(dim=-1, keepdim=True))
        folded = (query @ to_key).transpose(0, 1)
        grad_tokens = torch.baddbmm(grad_tokens, grad_logits.transpose(1, 2), folded)
        del folded
        grad_folded = (grad_logits @ by_token).transpose(0, 1)
        grad_key = query.transpose(1, 2) @ grad_folded
        grad_query = (grad_folded @ to_key.transpose(1, 2)).transpose(0, 1).reshape(b * n, c)
        grad_query = grad_query * to_key.shape[1] ** -0.5

        # through the query, into the token of its own frame
        place = torch.arange(n, device=own.device)
        grad_to_query = grad_query.T @ tokens[:, own, place].flatten(0, 1)
        grad_tokens = grad_tokens.unflatten(0, (b, n))
        grad_tokens[:, place, own] += (grad_query @ to_query).unflatten(0, (b, n))
        grad_bias = None if query_bias is None else grad_query.sum(dim=0)
        return grad_tokens.transpose(1, 2), None, None, grad_to_query, grad_bias, grad_key, grad_value
