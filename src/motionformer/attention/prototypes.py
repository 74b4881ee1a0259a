"""Prototypes: the few tokens that stand for all of them (paper §3.3; method.md §4).

`select_prototypes` works on any vectors, feature maps included. Every random draw comes from a generator; with
`deterministic=True` nothing is drawn at all.
"""

from typing import Literal

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

from motionformer.attention.greedy import greedy_orthogonal

Choice = Literal["orthogonal", "random"]


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

    `orthogonal` takes, again and again, the candidate least aligned with those already taken, beginning at `start`
    (drawn when None; the first real candidate when `deterministic`). `random` takes any. `subsample=4` looks only
    at 4 · num random candidates. `mask` is True for real candidates: padding is never selected, and where fewer
    than `num` are real some are selected twice. No gradient flows through the choice.
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
        raise ValueError(f"choice is 'orthogonal' or 'random', not {choice!r}.")
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
    index = greedy_orthogonal(F.normalize(rows.float() if half else rows, dim=-1), num, first, mask)
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

    Where fewer than `num` tokens are real, a run is one of them, and some are in several.
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
    """The pool with `first` in front; where it was in the pool already, it changes places."""
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
