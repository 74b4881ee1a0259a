"""What was asked of an experiment, and what it gave: metrics of every seed. `report.py` writes and draws them."""

import json
import math
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import mean, stdev
from typing import Any, Literal

from motionformer.errors import RecipeError
from motionformer.experiments.tables import Experiment
from motionformer.inference.metrics import show_interval, wilson

Scale = Literal["cpu", "paper"]


def _ignore(line: str) -> None:
    pass


@dataclass(frozen=True)
class Request:
    """`tell` is called with a line whenever a part is done."""

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
    tell: Callable[[str], None] = _ignore

    @property
    def data_name(self) -> str:
        """What the data are called in tables: a folder's whole name, a file's without its ending; empty if built in."""
        if self.data is None:
            return ""
        path = self.data.resolve()
        return path.name if path.is_dir() else path.stem

    def check_one_process(self) -> None:
        """For an experiment whose rows are computed one after the other."""
        if self.processes > 1:
            raise RecipeError("the rows of this experiment are computed one after the other: leave --processes out.")

    def choose(self, names: Iterable[str]) -> list[str]:
        """The rows asked for, of those with these names; none is an error that lists them."""
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


@dataclass(frozen=True)
class Line:
    """One row of the table: the metric of every seed."""

    label: str
    values: tuple[float, ...]
    seconds: float | None = None
    group: str = ""
    x: float | None = None
    paper: str = ""  # the paper's result, where no recipe's header has it
    seeds: tuple[int, ...] = ()  # of the values; from 0 on by default
    videos: int | None = None  # how many each value, an accuracy in %, is of

    def by_seed(self) -> dict[int, float]:
        """The value of each seed that there is."""
        return dict(zip(self.seeds or range(len(self.values)), self.values, strict=True))

    @property
    def mean(self) -> float:
        return mean(self.values)

    @property
    def std(self) -> float | None:
        return stdev(self.values) if len(self.values) > 1 else None

    def show(self, value: float) -> str:
        """A value of this row, with as many digits as all its values have; zero has no sign."""
        digits = 1 if max(map(abs, self.values)) >= 10 else 2
        return f"{round(value, digits) + 0.0:.{digits}f}"

    @property
    def interval(self) -> str:
        """Behind the accuracy of a single run: its 95 % confidence interval. Several runs show their spread."""
        if self.videos is None or len(self.values) > 1:
            return ""
        bounds = wilson(round(self.values[0] / 100 * self.videos), self.videos)
        return f" (95 % CI {show_interval(*bounds)}, {self.videos} clips)"


@dataclass(frozen=True)
class Outcome:
    """What an experiment gave here.

    `about` is how much was trained and tested, `data` on whose videos, `rows` which rows were asked for, if not all.
    """

    id: str
    scale: str
    command: str
    about: str
    lines: tuple[Line, ...]
    measure: str = "top-1, %"
    data: str = ""
    rows: str = ""

    @property
    def stem(self) -> str:
        return file_stem(self.id, self.scale, self.data, self.rows)

    def unit(self, group: str) -> str:
        """What is measured in a group."""
        return ", ".join(filter(None, (group, self.measure)))

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> "Outcome":
        lines = tuple(
            Line(**{**line, "values": tuple(line["values"]), "seeds": tuple(line.get("seeds", ()))})
            for line in values["lines"]
        )
        return cls(**{**values, "lines": lines})


def file_stem(name: str, scale: str, data: str, rows: str) -> str:
    """Of the files of an outcome; a part of the table has another than the whole, or another part: none is replaced."""
    part = f"rows-{re.sub(r'[^0-9A-Za-z]+', '-', rows).strip('-')}" if rows else ""
    return "-".join(filter(None, (name, scale, data, part)))


def new_outcome(experiment: Experiment, request: Request, about: str, lines: Sequence[Line], **more: str) -> Outcome:
    """An outcome of this request."""
    named = {"data": request.data_name, "rows": request.rows, **more}
    return Outcome(experiment.id, request.scale, request.command, about, tuple(lines), **named)


def read_outcome(file: Path) -> Outcome:
    """The inverse of the JSON of `write_outcome`."""
    return Outcome.from_dict(json.loads(file.read_text(encoding="utf-8")))


def by_group(outcome: Outcome) -> dict[str, list[Line]]:
    """Lines that belong together, in their order."""
    groups: dict[str, list[Line]] = {}
    for line in outcome.lines:
        groups.setdefault(line.group, []).append(line)
    return groups
