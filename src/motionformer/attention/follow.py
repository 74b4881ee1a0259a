"""Trajectory attention, second half: follow each query through time (paper §3.1, eqs. 3–4; method.md §3).

The function of the paper with the two projections moved out of the time axis ("folded", docs/decisions.md): `W_k`
goes into the query, `W_v` comes after the pooling, so that no trajectory token is ever projected. Queries are taken
in small blocks, so that the `[n h c]` intermediates stay in the cache. The backward pass is written out in
`follow_backward.py`. Projections that are more than a matrix (`is_plain`) are not folded but called.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from motionformer.attention.exact import softmax

BLOCK_ELEMENTS = 2 << 20
"""Elements of an `[n h c]` intermediate that a block may have on a CPU: 8 MB of float32."""


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
    pooled = []
    for block, mine in blocks(tokens, own, projections.to_key.shape[0]):
        weight = temporal_weights(block, mine, projections, frame_bias)
        weight = F.dropout(weight, dropout) if dropout > 0.0 else weight
        pooled.append(pool(block, weight, projections.to_value))
    return pooled[0] if len(pooled) == 1 else torch.cat(pooled, dim=1)


def temporal_weights(
    tokens: Float[Tensor, "b f n c"],
    own: Int[Tensor, " n"],
    projections: Projections,
    frame_bias: Float[Tensor, "b f"] | None = None,
) -> Float[Tensor, "bn h f"]:
    """How much each query trusts each frame of its trajectory, per head."""
    return affinity(tokens, own_query(tokens, own, projections), projections.to_key, frame_bias)


def own_query(tokens: Tensor, own: Tensor, projections: Projections) -> Float[Tensor, "h bn d"]:
    """The scaled query of step 2, made from the trajectory's token in the query's own frame."""
    h, d, _ = projections.to_key.shape
    query = F.linear(own_tokens(tokens, own), projections.to_query, projections.query_bias) * d**-0.5
    heads: Tensor = query.unflatten(1, (h, d))
    return heads.transpose(0, 1)


def affinity(
    tokens: Tensor,
    query: Float[Tensor, "h bn d"],
    to_key: Tensor,
    frame_bias: Tensor | None,
    scratch: Float[Tensor, "h bn c"] | None = None,
) -> Float[Tensor, "bn h f"]:
    """Softmax over frames; the key projection is folded into the query."""
    logits = torch.bmm(query, to_key, out=scratch).transpose(0, 1) @ by_token(tokens).transpose(1, 2)
    return _over_frames(logits, tokens, frame_bias)


def projected_weights(
    query: Float[Tensor, "bn c"],
    keys: Float[Tensor, "b f n c"],
    num_heads: int,
    frame_bias: Float[Tensor, "b f"] | None = None,
) -> Float[Tensor, "bn h f"]:
    """`temporal_weights` from queries and keys that are projected already: nothing is folded."""
    queries: Tensor = query.unflatten(1, (num_heads, -1))
    logits = torch.einsum(
        "qhd,qfhd->qhf", queries * queries.shape[-1] ** -0.5, by_token(keys).unflatten(2, (num_heads, -1))
    )
    return _over_frames(logits, keys, frame_bias)


def _over_frames(logits: Float[Tensor, "bn h f"], tokens: Tensor, frame_bias: Tensor | None) -> Float[Tensor, "bn h f"]:
    if frame_bias is not None:
        logits = logits + frame_bias.repeat_interleave(tokens.shape[2], dim=0)[:, None]
    return softmax(logits).to(tokens.dtype)


def pool(
    tokens: Float[Tensor, "b f n c"],
    weight: Float[Tensor, "bn h f"],
    to_value: Tensor | None,
    scratch: Float[Tensor, "bn h c"] | None = None,
) -> Float[Tensor, "b n c"]:
    """The weighted mean of each trajectory; its projection comes after the pooling."""
    b, _, n, c = tokens.shape
    if to_value is not None:
        pooled = torch.bmm(weight, by_token(tokens), out=scratch)
        return (pooled.transpose(0, 1) @ to_value.transpose(1, 2)).transpose(0, 1).reshape(b, n, c)
    by_head = tokens.unflatten(-1, (weight.shape[1], -1))
    return torch.einsum("bfnhd,bnhf->bnhd", by_head, weight.unflatten(0, (b, n))).flatten(2)


def own_tokens(tokens: Float[Tensor, "b f n c"], own: Int[Tensor, " n"]) -> Float[Tensor, "bn c"]:
    return tokens[:, own, torch.arange(own.shape[0], device=own.device)].flatten(0, 1)


def by_token(tokens: Float[Tensor, "b f n c"]) -> Float[Tensor, "bn f c"]:
    return tokens.transpose(1, 2).flatten(0, 1)


def blocks(tokens: Float[Tensor, "b f n c"], own: Int[Tensor, " n"], num_heads: int) -> list[tuple[Tensor, Tensor]]:
    """Even pieces along the queries: small on a CPU, one elsewhere and while a graph is traced."""
    b, _, n, c = tokens.shape
    if tokens.device.type != "cpu" or torch.compiler.is_compiling():
        return [(tokens, own)]
    pieces = max(1, round(b * n * num_heads * c / BLOCK_ELEMENTS))
    size = -(-n // pieces)
    return list(zip(tokens.split(size, dim=2), own.split(size), strict=True))
