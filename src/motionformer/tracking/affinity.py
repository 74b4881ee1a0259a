"""Carry labels from frames where they are known to one where they are not (paper, appendix: DAVIS).

Every token of the new frame asks the tokens of the context frames: those in the same neighbourhood, of these the
`top_k` most alike, and takes the mean of their labels weighted by a softmax of the likeness. Knows no pixels, no model
and no queue.
"""

from dataclasses import dataclass

import torch
from einops import rearrange
from jaxtyping import Float
from torch import Tensor

BUDGET = 8 << 20
"""Elements of the affinities held at once, 32 MB of float32; one row of tokens is asked at least."""


@dataclass(frozen=True)
class FrameTokens:
    """What a frame asks with and is found by, in each head, on its grid of tokens. The two may be the same."""

    query: Float[Tensor, "h y x d"]
    key: Float[Tensor, "h y x d"]


@dataclass(frozen=True)
class Affinity:
    """How likeness becomes weights.

    `radius` is the reach of the neighbourhood in tokens, up, down and to the sides; None is the whole frame. `top_k`
    keys share the weight of a query; None is all of them. Logits are `query · key / temperature`.
    """

    radius: int | None = 12
    top_k: int | None = 5
    temperature: float = 0.1

    def __post_init__(self) -> None:
        if (self.radius or 0) < 0 or (self.top_k is not None and self.top_k < 1) or self.temperature <= 0:
            raise ValueError(f"the radius is 0 or more, top_k 1 or more, the temperature above 0: not {self}.")


def propagate(
    query: Float[Tensor, "h y x d"],
    keys: Float[Tensor, "f h y x d"],
    labels: Float[Tensor, "f o y x"],
    affinity: Affinity,
) -> Float[Tensor, "o y x"]:
    """The labels of the frame that `query` belongs to; those of a token sum to 1 if the given ones do.

    Goes through the frame head by head and a few rows at a time, and compares them with the rows within reach only, so
    memory hardly grows with the frame and work grows with the neighbourhood.
    """
    heads, height, width, _ = query.shape
    if heads > 1:
        each = (propagate(query[h, None], keys[:, h, None], labels, affinity) for h in range(heads))
        return sum(each, start=torch.zeros((), device=query.device)) / heads
    reach = max(height, width) if affinity.radius is None else affinity.radius
    query = query / affinity.temperature
    keys = rearrange(keys, "f 1 v u d -> 1 v (f u) d").contiguous()  # rows first: those within reach are one slice
    labels = rearrange(labels, "f o v u -> v (f u) o")
    columns = torch.arange(width, device=query.device)
    far = ((columns[:, None] - columns).abs() > reach).repeat(1, keys.shape[2] // width)
    step = rows_at_once(width * keys.shape[2], height, reach)
    out = []
    for top in range(0, height, step):
        bottom = min(top + step, height)
        near = slice(max(0, top - reach), min(height, bottom + reach))
        logits = query[:, top:bottom].flatten(1, 2) @ keys[:, near].flatten(1, 2).transpose(1, 2)
        logits = rearrange(logits, "h (y x) (v w) -> h y x v w", x=width, w=keys.shape[2])
        rows = torch.arange(top, bottom, device=query.device)
        beyond = (rows[:, None] - torch.arange(near.start, near.stop, device=query.device)).abs() > reach
        logits.masked_fill_(beyond[:, None, :, None], -float("inf"))
        logits.masked_fill_(far[:, None, :], -float("inf"))
        out.append(_mean_label(logits.flatten(3), labels[near].flatten(0, 1), affinity.top_k))
    return rearrange(torch.cat(out), "y x o -> o y x")


def rows_at_once(pairs: int, height: int, reach: int) -> int:
    """How many rows of queries to ask together within the budget, if a row and a row make `pairs` affinities."""
    rows = 1
    while rows < height and 2 * rows * min(height, 2 * rows + 2 * reach) * pairs <= BUDGET:
        rows *= 2
    return rows


def _mean_label(
    logits: Float[Tensor, "h y x keys"], labels: Float[Tensor, "keys o"], top_k: int | None
) -> Float[Tensor, "y x o"]:
    if top_k is None or top_k >= logits.shape[-1]:
        return (logits.softmax(dim=-1) @ labels).mean(dim=0)
    best, where = logits.topk(top_k, dim=-1)
    return (best.softmax(dim=-1)[..., None] * labels[where]).sum(dim=-2).mean(dim=0)
