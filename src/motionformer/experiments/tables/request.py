"""What was asked of an experiment: how large, how often, on what, with how many processes."""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from motionformer.errors import RecipeError

Scale = Literal["cpu", "paper"]


def _say_nothing(line: str) -> None:
    pass


@dataclass(frozen=True)
class Request:
    """`tell` hears a line whenever a part is done."""

    out: Path
    scale: Scale = "cpu"
    seeds: int = 3
    rows: str = ""  # only rows whose name holds this text
    data: Path | None = None  # the user's own, instead of what is built in
    changes: tuple[str, ...] = ()  # key=value
    processes: int = 1
    threads: int = 1
    train: bool = True  # False: collect what is there
    command: str = ""
    tell: Callable[[str], None] = _say_nothing

    @property
    def data_name(self) -> str:
        """What the data are called in tables: a folder's whole name, a file's without its ending; empty if built in."""
        if self.data is None:
            return ""
        place = self.data.resolve()
        return place.name if place.is_dir() else place.stem

    def refuse_processes(self) -> None:
        """For an experiment whose rows are computed one after the other."""
        if self.processes > 1:
            raise RecipeError("the rows of this experiment are computed one after the other: leave --processes out.")

    def choose(self, names: Iterable[str]) -> list[str]:
        """The rows asked for, of those with these names; none is an error that says which there are."""
        there = list(names)
        chosen = [name for name in there if self.rows in name]
        if not chosen:
            raise RecipeError(f"no row has {self.rows!r} in its name; there are: {'; '.join(there)}.")
        return chosen

    def options(self, **defaults: int | float | str) -> dict[str, Any]:
        """`changes` of an experiment that is no recipe: its few settings, each of the type of its default."""
        chosen: dict[str, Any] = dict(defaults)
        for change in self.changes:
            key, equals, value = change.partition("=")
            if not equals or key not in chosen:
                raise RecipeError(f"{change!r}: this experiment takes {', '.join(f'{name}=…' for name in defaults)}.")
            chosen[key] = value if isinstance(defaults[key], str) else _number(change, value, defaults[key])
        return chosen


def _number(change: str, text: str, default: int | float | str) -> int | float:
    try:
        number: int | float = type(default)(text)  # type: ignore[assignment]
    except ValueError:
        number = 0
    if not 0 < number < math.inf:  # nor no number at all
        raise RecipeError(f"{change!r}: it takes a number above zero, such as {default}.")
    return number
