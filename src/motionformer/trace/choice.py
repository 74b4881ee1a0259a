"""Which layers and heads to look at, as a user says it: a number, `last`, `all` or `mean`."""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from motionformer.errors import TraceError

Which = int | str


@dataclass(frozen=True)
class Choice:
    """Some of the layers, or of the heads: shown one by one, or as their mean."""

    numbers: tuple[int, ...]
    is_mean: bool

    @property
    def names(self) -> tuple[str, ...]:
        """One for each thing shown."""
        return ("mean",) if self.is_mean else tuple(map(str, self.numbers))

    def pick(self, rows: Float[Tensor, "k ..."]) -> list[Float[Tensor, "..."]]:
        """What is shown of the rows of `numbers`."""
        return [rows.mean(dim=0)] if self.is_mean else list(rows)


def choose_layers(which: Which, depth: int) -> Choice:
    """`last`, `all`, `mean` or a number from 0."""
    return Choice((depth - 1,), False) if which == "last" else _choose(which, depth, "layer", "last, all, mean")


def choose_heads(which: Which, num_heads: int) -> Choice:
    """`all`, `mean` or a number from 0."""
    return _choose(which, num_heads, "head", "all, mean")


def pick_all(rows: Float[Tensor, "l h ..."], layers: Choice, heads: Choice) -> list[tuple[str, str, Tensor]]:
    """Name of the layer, name of the head, and the row, of everything that is shown; `rows` has all heads."""
    shown = []
    for layer, of_layer in zip(layers.names, layers.pick(rows), strict=True):
        picked = heads.pick(of_layer[torch.tensor(heads.numbers)])
        shown += [(layer, head, row) for head, row in zip(heads.names, picked, strict=True)]
    return shown


def _choose(which: Which, count: int, noun: str, words: str) -> Choice:
    if which in ("all", "mean"):
        return Choice(tuple(range(count)), which == "mean")
    try:
        number = int(which)
    except ValueError:
        raise TraceError(f"{noun} is {words} or a number; not {which!r}.") from None
    if not 0 <= number < count:
        raise TraceError(f"there is no {noun} {number}: the model has {count}, counted from 0 to {count - 1}.")
    return Choice((number,), False)
