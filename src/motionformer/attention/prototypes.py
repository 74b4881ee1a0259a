"""Prototypes: the few tokens that stand for all of them (paper §3.3; method.md §4).

`select_prototypes` works on any vectors, feature maps included. Every random draw comes from a generator; with
`deterministic=True` nothing is drawn at all.

Greedy orthogonal selection (algorithm 1): start somewhere; then always take the candidate whose largest |cosine| to
those already taken is smallest. The loop nobody can misread lives in tests/literal/selection.py; the three ways here
return the same indices:

* few candidates: one Gram matrix, then gathers with a running maximum;
* many: lazy blocks. A candidate's largest |cosine| only grows, so a value that was not updated is a lower bound.
  Pick inside a shortlist of the smallest while the pick stays below everyone else's bound, then update everyone
  against the whole block with one matrix product;
* while `torch.export` traces: a running maximum with no data-dependent control flow and no operator of ours.

Rows (batch × heads) advance together, each at its own pace.
"""

from typing import Literal

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

Choice = Literal["orthogonal", "random"]
_TAKEN = 2.0
"""Above every cosine: taken already, though still usable if nothing else is left."""
_FORBIDDEN = 4.0
"""Above taken: padding, never chosen while any real candidate exists."""
_SHORTLIST = 64


def select_prototypes(
    candidates: Float[Tensor, "*batch n d"],
    num: int,
    *,
    choice: Choice = "orthogonal",
    start: Int[Tensor, "*batch"] | int | None = None,
    mask: Bool[Tensor, "*batch n"] | None = None,
    subsample: int | None = None,
    deterministic: bool = False,
    generator: torch.Generator | None = None,
) -> Int[Tensor, "*batch r"]:
    """Indices of `num` candidates that represent the rest; of all of them if there are fewer.

    No gradient flows through the choice.

    Args:
        candidates: any vectors.
        num: r, how many to select.
        choice: `orthogonal` takes, again and again, the candidate least aligned with those already taken; `random`
            takes any.
        start: index of the first one [default: drawn; the first real candidate when `deterministic`].
        mask: True for real candidates: padding is never selected, and where fewer than `num` are real some are
            selected twice.
        subsample: consider only this many times `num` random candidates [default: all].
        deterministic: draw nothing.
        generator: of every random draw [default: PyTorch's global one].

    Returns:
        The indices, in the order in which they were taken.

    Raises:
        ValueError: `num` is below 1, or `choice` is unknown.

    Example:
        >>> vectors = torch.tensor([[1.0, 0.0], [0.9, 0.1], [0.0, 1.0]])
        >>> select_prototypes(vectors, 2, deterministic=True)
        tensor([0, 2])
    """
    *batch, n, _ = candidates.shape
    if num < 1:
        raise ValueError(f"select_prototypes needs num >= 1, got {num}.")
    num = min(num, n)
    rows = candidates.detach().flatten(0, -3) if batch else candidates.detach()[None]
    mask = None if mask is None else mask.reshape(rows.shape[:2])
    draw = _Draw(rows, deterministic, generator)
    if choice == "random":
        return draw.order(mask)[:, :num].reshape(*batch, num)
    if choice != "orthogonal":
        raise ValueError(f"`choice` must be 'orthogonal' or 'random', not {choice!r}.")
    first = None if start is None else _as_rows(start, rows)
    pool = None
    if subsample is not None and subsample * num < n:
        pool = draw.order(mask)[:, : subsample * num]
        if first is not None:
            pool, first = _begin_with(first, pool), torch.zeros_like(first)
        rows = take_tokens(rows, pool)
        mask = None if mask is None else mask.gather(1, pool)
    if first is None:
        first = draw.start(mask, rows.shape[1])
    half = rows.dtype in (torch.float16, torch.bfloat16)
    index = _greedy_orthogonal(F.normalize(rows.float() if half else rows, dim=-1), num, first, mask)
    if pool is not None:
        index = pool.gather(1, index)
    return index.reshape(*batch, num)


def take_tokens(tokens: Float[Tensor, "*batch n d"], index: Int[Tensor, "*batch r"]) -> Float[Tensor, "*batch r d"]:
    """The tokens at `index`. A plain gather: `take_along_dim` would fix the batch size of an exported model."""
    return tokens.gather(-2, index[..., None].expand(*index.shape, tokens.shape[-1]))


def segment_means(
    tokens: Float[Tensor, "*batch n d"], num: int, mask: Bool[Tensor, "*batch n"] | None = None
) -> Float[Tensor, "*batch r d"]:
    """Means of `num` consecutive runs of real tokens: disjoint, none left out, the shorter runs first (method.md §4).

    Args:
        tokens: any vectors.
        num: r, the number of runs; at most n.
        mask: True for real tokens. Where fewer than `num` are real, a run is one of them, and some are in several.

    Returns:
        The means.

    Example:
        >>> segment_means(torch.tensor([[1.0], [3.0], [5.0]]), 2)
        tensor([[1.],
                [4.]])
    """
    n = tokens.shape[-2]
    num = min(num, n)
    if mask is None:
        length, num_longer = divmod(n, num)
        shorter, longer = tokens.split(((num - num_longer) * length, num_longer * (length + 1)), dim=-2)
        means: Tensor = shorter.unflatten(-2, (num - num_longer, length)).mean(dim=-2)
        if num_longer == 0:
            return means
        return torch.cat((means, longer.unflatten(-2, (num_longer, length + 1)).mean(dim=-2)), dim=-2)
    rank = mask.cumsum(dim=-1) - 1
    count = mask.sum(dim=-1, keepdim=True).clamp(min=1)
    run = torch.arange(num + 1, device=tokens.device)
    edge = run * (count // num) + (run - num + count % num).clamp(min=0)
    low, high = edge[..., :-1], edge[..., 1:]
    spread = run[:-1] * count // num  # where there are fewer real tokens than runs
    low, high = torch.where(count < num, spread, low), torch.where(count < num, spread + 1, high)
    member = (rank[..., None, :] >= low[..., None]) & (rank[..., None, :] < high[..., None])
    member = (member & mask[..., None, :]).to(tokens.dtype)
    return member @ tokens / member.sum(dim=-1, keepdim=True).clamp(min=1)


def _begin_with(first: Int[Tensor, " rows"], pool: Int[Tensor, "rows m"]) -> Int[Tensor, "rows m"]:
    """The pool with `first` in front; where it was in the pool already, it is swapped."""
    pool = torch.where(pool == first[:, None], pool[:, :1], pool)
    return torch.cat((first[:, None], pool[:, 1:]), dim=1)


class _Draw:
    """Where randomness comes from: a generator, the global one, or (deterministic) nowhere."""

    def __init__(self, rows: Tensor, deterministic: bool, generator: torch.Generator | None) -> None:
        self.rows, self.deterministic, self.generator = rows, deterministic, generator

    def uniform(self, *shape: int) -> Tensor:
        device = self.rows.device
        if self.generator is None:
            return torch.rand(shape, device=device)
        return torch.rand(shape, generator=self.generator, device=self.generator.device).to(device)

    def order(self, mask: Tensor | None) -> Tensor:
        """All candidates in random order; padding is left out by repeating the real ones in turn."""
        num_rows, n, _ = self.rows.shape
        if self.deterministic:  # multiples of the golden ratio: evenly spread, however many are taken
            key = torch.arange(n, device=self.rows.device) * 2654435769 % 2**32
            key = (key.float() / 2**32).expand(num_rows, n)
        else:
            key = self.uniform(num_rows, n)
        if mask is None:
            return key.argsort(dim=1)
        order = key.masked_fill(~mask, 2.0).argsort(dim=1)
        count = mask.sum(dim=1, keepdim=True).clamp(min=1)
        return order.gather(1, torch.arange(n, device=order.device) % count)

    def start(self, mask: Tensor | None, n: int) -> Tensor:
        num_rows = self.rows.shape[0]
        device = self.rows.device
        where = torch.zeros(num_rows, device=device) if self.deterministic else self.uniform(num_rows)
        if mask is None:
            return (where * n).long()
        rank = (where * mask.sum(dim=1)).long()
        return (mask.cumsum(dim=1) > rank[:, None]).to(torch.uint8).argmax(dim=1)


def _as_rows(start: Tensor | int, rows: Tensor) -> Tensor:
    if isinstance(start, int):
        return torch.full((rows.shape[0],), start, device=rows.device)
    return start.reshape(-1).to(rows.device)


def _greedy_orthogonal(
    unit: Float[Tensor, "rows n d"],
    num: int,
    start: Int[Tensor, " rows"],
    mask: Bool[Tensor, "rows n"] | None = None,
) -> Int[Tensor, "rows {num}"]:
    """Indices of `num` near-orthogonal rows of `unit` (unit vectors), in the order they were taken."""
    blocked = torch.zeros_like(unit[..., 0])
    if mask is not None:
        blocked = blocked.masked_fill(~mask, _FORBIDDEN)
    if torch.compiler.is_exporting():
        return _by_running_maximum(unit, num, start, blocked)
    chosen: Tensor = _select(unit, num, start, blocked)
    return chosen


@torch.library.custom_op("motionformer::greedy_orthogonal", mutates_args=())
def _select(unit: Tensor, num: int, start: Tensor, blocked: Tensor) -> Tensor:
    """The opaque operator that `torch.compile` sees: its number of steps depends on the data."""
    if unit.shape[1] <= max(4 * num, _SHORTLIST + 1):
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
        largest = largest.scatter(1, chosen[-1], _TAKEN)
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
        largest[rows, newest] = _TAKEN
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
        bound.scatter_(1, taken, _TAKEN)
        if int(count.min()) == num:
            return chosen[:, :num].contiguous()  # the layout that the operator promises
        smallest, short = bound.topk(_SHORTLIST + 1, dim=1, largest=False, sorted=True)
        short = short[:, :-1].sort(dim=1).values  # by index: ties go to the first, as in the plain loop
        vectors = torch.take_along_dim(unit, short[..., None], dim=1)
        picks, went = _pick_from(bound.gather(1, short), vectors, smallest[:, -1], num - count)
        index = short.gather(1, picks)
        position = count[:, None] + torch.arange(picks.shape[1], device=unit.device)
        chosen.scatter_(1, torch.where(went, position, num), index)
        count += went.sum(dim=1)
        newest = vectors[rows[:, None], picks] * went[..., None]
        # A paused row writes its first pick again, a finished row is not read again: the shapes stay equal.
        taken = torch.where(went, index, index[:, :1])


def _pick_from(value: Tensor, vectors: Tensor, limit: Tensor, missing: Tensor) -> tuple[Tensor, Tensor]:
    """Indices picked inside the shortlist, step by step, and whether each row still went along at that step.

    A row pauses when its best is no longer below everyone else's bound. Its values only grow, so it stays paused.
    """
    gram = (vectors @ vectors.transpose(1, 2)).abs_()
    gram.diagonal(dim1=1, dim2=2).fill_(_TAKEN)
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
