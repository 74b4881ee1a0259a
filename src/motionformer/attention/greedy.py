"""Greedy orthogonal selection, exactly and fast (paper §3.3, algorithm 1; method.md §4).

Start somewhere; then always take the candidate whose largest |cosine| to those already taken is smallest. The loop
nobody can misread lives in tests/literal/selection.py; the three ways here return the same indices:

* few candidates: one Gram matrix, then gathers with a running maximum;
* many: lazy blocks. A candidate's largest |cosine| only grows, so a value that was not updated is a lower bound.
  Pick inside a shortlist of the smallest while the pick stays below everyone else's bound, then update everyone
  against the whole block with one matrix product;
* while `torch.export` traces: a running maximum with no data-dependent control flow and no operator of ours.

Rows (batch × heads) advance together, each at its own pace.
"""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

TAKEN = 2.0
"""Above every cosine: taken already, though still usable if nothing else is left."""
FORBIDDEN = 4.0
"""Above taken: padding, never chosen while any real candidate exists."""
SHORTLIST = 64


def greedy_orthogonal(
    unit: Float[Tensor, "rows n d"],
    num: int,
    start: Int[Tensor, " rows"],
    mask: Bool[Tensor, "rows n"] | None = None,
) -> Int[Tensor, "rows {num}"]:
    """Indices of `num` near-orthogonal rows of `unit` (unit vectors), in the order they were taken."""
    blocked = torch.zeros_like(unit[..., 0])
    if mask is not None:
        blocked = blocked.masked_fill(~mask, FORBIDDEN)
    if torch.compiler.is_exporting():
        return _by_running_maximum(unit, num, start, blocked)
    chosen: Tensor = _select(unit, num, start, blocked)
    return chosen


@torch.library.custom_op("motionformer::greedy_orthogonal", mutates_args=())
def _select(unit: Tensor, num: int, start: Tensor, blocked: Tensor) -> Tensor:
    """The opaque operator that `torch.compile` sees: its number of steps depends on the data."""
    if unit.shape[1] <= max(4 * num, SHORTLIST + 1):
        return _by_gram(unit, num, start, blocked)
    return _by_lazy_blocks(unit, num, start, blocked)


@_select.register_fake
def _(unit: Tensor, num: int, start: Tensor, blocked: Tensor) -> Tensor:
    return start.new_empty(unit.shape[0], num)


def _by_running_maximum(unit: Tensor, num: int, start: Tensor, blocked: Tensor) -> Tensor:
    chosen = [start[:, None]]
    largest = blocked
    for _ in range(num - 1):
        newest = unit.gather(1, chosen[-1][..., None].expand(-1, -1, unit.shape[2]))  # take_along_dim fixes the batch
        largest = torch.maximum(largest, (unit @ newest.transpose(1, 2)).squeeze(-1).abs())
        largest = largest.scatter(1, chosen[-1], TAKEN)
        chosen.append(largest.argmin(dim=1, keepdim=True))
    return torch.cat(chosen, dim=1)


def _by_gram(unit: Tensor, num: int, start: Tensor, blocked: Tensor) -> Tensor:
    gram = (unit @ unit.transpose(1, 2)).abs_()
    rows = torch.arange(unit.shape[0], device=unit.device)
    chosen = start.new_empty(unit.shape[0], num)
    chosen[:, 0] = start
    largest = blocked.clone()
    for step in range(1, num):
        newest = chosen[:, step - 1]
        torch.maximum(largest, gram[rows, newest], out=largest)
        largest[rows, newest] = TAKEN
        chosen[:, step] = largest.argmin(dim=1)
    return chosen


def _by_lazy_blocks(unit: Tensor, num: int, start: Tensor, blocked: Tensor) -> Tensor:
    num_rows = unit.shape[0]
    rows = torch.arange(num_rows, device=unit.device)
    chosen = start.new_zeros(num_rows, num + 1)  # the last column takes what a paused row would write
    chosen[:, 0] = start
    count = torch.ones_like(start)
    bound = blocked.clone()
    newest, taken = unit[rows, start][:, None], start[:, None]
    while True:
        torch.maximum(bound, (newest @ unit.transpose(1, 2)).abs_().amax(dim=1), out=bound)
        bound.scatter_(1, taken, TAKEN)
        if int(count.min()) == num:
            return chosen[:, :num].contiguous()  # the layout that the operator promises
        smallest, short = bound.topk(SHORTLIST + 1, dim=1, largest=False, sorted=True)
        short = short[:, :-1].sort(dim=1).values  # by index: ties go to the first, as in the plain loop
        vectors = torch.take_along_dim(unit, short[..., None], dim=1)
        picks, went = _pick_from(bound.gather(1, short), vectors, smallest[:, -1], num - count)
        index = short.gather(1, picks)
        place = count[:, None] + torch.arange(picks.shape[1], device=unit.device)
        chosen.scatter_(1, torch.where(went, place, num), index)
        count += went.sum(dim=1)
        newest = vectors[rows[:, None], picks] * went[..., None]
        # A paused row writes its first pick again, a finished row is not read again: the shapes stay equal.
        taken = torch.where(went, index, index[:, :1])


def _pick_from(value: Tensor, vectors: Tensor, limit: Tensor, missing: Tensor) -> tuple[Tensor, Tensor]:
    """Places picked inside the shortlist, step by step, and whether each row still went along at that step.

    A row pauses when its best is no longer below everyone else's bound. Its values only grow, so it stays paused.
    """
    gram = (vectors @ vectors.transpose(1, 2)).abs_()
    gram.diagonal(dim1=1, dim2=2).fill_(TAKEN)
    rows = torch.arange(value.shape[0], device=value.device)
    picks, went = [], []
    for step in range(value.shape[1]):
        best, pick = value.min(dim=1)
        go = missing > step if step == 0 else (best < limit) & (missing > step)
        if step > 0 and not bool(go.any()):
            break
        picks.append(pick)
        went.append(go)
        torch.maximum(value, gram[rows, pick], out=value)
    return torch.stack(picks, dim=1), torch.stack(went, dim=1)
