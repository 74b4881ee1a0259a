"""What an experiment gave: metrics of every seed, as files (JSON, Markdown card, picture); the page of all outcomes,
docs/reproduction.md."""

import io
import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from matplotlib.figure import Figure

from motionformer.errors import RecipeError
from motionformer.experiments.tables import EXPERIMENTS, Experiment, Request, Row
from motionformer.inference.metrics import show_interval, wilson
from motionformer.runs import write_atomically
from motionformer.training.families import find_row

_COLOURS = ("#7a8691", "#c2571a", "#2563a8", "#1d7a46")
_INK = "#22303c"


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

    @classmethod
    def of(cls, experiment: Experiment, request: Request, about: str, lines: Sequence[Line], **more: str) -> "Outcome":
        """An outcome of this request."""
        named = {"data": request.data_name, "rows": request.rows, **more}
        return cls(experiment.id, request.scale, request.command, about, tuple(lines), **named)

    @classmethod
    def read(cls, file: Path) -> "Outcome":
        """The inverse of the JSON of `write`."""
        values = json.loads(file.read_text(encoding="utf-8"))
        lines = tuple(
            Line(**{**line, "values": tuple(line["values"]), "seeds": tuple(line.get("seeds", ()))})
            for line in values["lines"]
        )
        return cls(**{**values, "lines": lines})

    @property
    def experiment(self) -> Experiment:
        return EXPERIMENTS[self.id]

    @property
    def stem(self) -> str:
        """Of its files; a part of the table has another than the whole, or another part: none is replaced."""
        part = f"rows-{re.sub(r'[^0-9A-Za-z]+', '-', self.rows).strip('-')}" if self.rows else ""
        return "-".join(filter(None, (self.id, self.scale, self.data, part)))

    @property
    def picture_name(self) -> str:
        """Of the picture in `docs/figures`."""
        return "-".join(filter(None, ("results", self.id, self.data))) + ".png"

    @property
    def groups(self) -> dict[str, list[Line]]:
        """Lines that belong together, in their order."""
        groups: dict[str, list[Line]] = {}
        for line in self.lines:
            groups.setdefault(line.group, []).append(line)
        return groups

    def unit(self, group: str) -> str:
        """What is measured in a group."""
        return ", ".join(filter(None, (group, self.measure)))

    def to_markdown(self) -> str:
        """The table for people, of bars one for each group; every seed is shown."""
        if all(line.x is not None for line in self.lines):
            return _table(self.lines, self.measure)
        return "\n".join(_table(lines, self.unit(group)) for group, lines in self.groups.items())

    def draw(self) -> Figure:
        """Lines where the rows are points of lines, else bars, a panel for each group; seeds as dots."""
        if all(line.x is not None for line in self.lines):
            figure = Figure(figsize=(6.4, 3.6), layout="constrained")
            axes = figure.add_subplot()
            _draw_curves(axes, self.groups)
            axes.set(xlabel=self.experiment.x_label, ylabel=self.measure)
            axes.legend(frameon=False)
            axes.grid(axis="both", alpha=0.25)
        else:
            heights = [0.8 + 0.42 * len(lines) for lines in self.groups.values()]
            figure = Figure(figsize=(6.4, 0.4 + sum(heights)), layout="constrained")
            panels = figure.subplots(len(heights), 1, squeeze=False, height_ratios=heights)[:, 0]
            for panel, (group, lines) in zip(panels, self.groups.items(), strict=True):
                _draw_bars(panel, lines, self.unit(group))
        for axes in figure.axes:
            axes.spines[["top", "right"]].set_visible(False)
        return figure

    def write(self, folder: Path) -> list[Path]:
        """`ID-SCALE[-DATA][-rows-TEXT].json`, `.md` (the card) and `.png`, each whole or not at all."""
        picture = io.BytesIO()
        self.draw().savefig(picture, format="png", dpi=130)
        contents: dict[str, str | bytes] = {
            ".json": json.dumps(asdict(self), indent=1, ensure_ascii=False) + "\n",
            ".md": self._to_card(),
            ".png": picture.getvalue(),
        }
        files = [folder / f"{self.stem}{suffix}" for suffix in contents]
        folder.mkdir(parents=True, exist_ok=True)
        for file, content in zip(files, contents.values(), strict=True):
            write_atomically(file, content)
        return files

    def _to_card(self) -> str:
        """What was run, what it gave, and what the original needs."""
        facts = [f"# {self.experiment.name}: {self.experiment.title}", "", f"* Command: `{self.command}`"]
        facts += [f"* What was run: {self.about}"] if self.about else []
        facts += [f"* The original needs: {self.experiment.needs}", ""]
        return "\n".join(facts) + "\n" + self.to_markdown()


def _table(lines: Sequence[Line], unit: str) -> str:
    seeds = sorted({seed for line in lines for seed in line.by_seed()})
    is_timed = any(line.seconds is not None for line in lines)
    has_paper = any(line.paper for line in lines)
    head = [unit, *(["paper"] if has_paper else [])]
    has_spread = len(seeds) > 1
    head += ["mean", "± s.d.", *(f"seed {seed}" for seed in seeds)] if has_spread else ["here"]
    head += ["seconds"] if is_timed else []
    rows = []
    for line in lines:
        spread = [line.show(line.mean), "" if line.std is None else line.show(line.std)] if has_spread else []
        seconds = [f"{line.seconds:.0f}" if line.seconds is not None else ""] if is_timed else []
        there = line.by_seed()
        values = [line.show(there[seed]) + line.interval if seed in there else "" for seed in seeds]
        rows.append([line.label, *([line.paper] if has_paper else []), *spread, *values, *seconds])
    table = [head, ["---", *["---:"] * (len(head) - 1)], *rows]
    return "\n".join("| " + " | ".join(row) + " |" for row in table) + "\n"


def _draw_curves(axes: Any, groups: Mapping[str, list[Line]]) -> None:
    for index, (colour, (group, lines)) in enumerate(zip(_COLOURS, groups.items(), strict=False)):
        aside = 0.05 * (index - (len(groups) - 1) / 2)  # beside each other, so that no error bar hides another
        axes.errorbar(
            [line.x + aside for line in lines if line.x is not None],
            [line.mean for line in lines],
            yerr=[line.std or 0.0 for line in lines],
            color=colour,
            marker="o",
            capsize=3,
            label=group,
        )
    axes.set_xticks(sorted({line.x for lines in groups.values() for line in lines if line.x is not None}))


def _draw_bars(axes: Any, lines: list[Line], measure: str) -> None:
    """Bars, their values beside the names, where nothing can hide them; seeds as dots, the paper's as diamonds."""
    names = [f"{line.label}   {line.show(line.mean)}" for line in lines]
    axes.barh(names, [line.mean for line in lines], color="#8fb3d9", height=0.62)
    shown = [value for line in lines for value in line.values]
    for index, line in enumerate(lines):
        if len(line.values) > 1:
            axes.plot(line.values, [index] * len(line.values), "o", color=_INK, markersize=4)
    published = {index: float(line.paper) for index, line in enumerate(lines) if line.paper}
    axes.plot(list(published.values()), list(published), "D", color="none", markeredgecolor="#c2571a", markersize=6)
    marks = [*(["dots: seeds"] if len(shown) > len(lines) else []), *(["diamonds: paper"] if published else [])]
    axes.set_xlabel("\n".join(filter(None, (measure, "; ".join(marks)))))
    largest = max([*shown, *published.values()])
    if measure.endswith("%") and min(shown) >= 0 and largest <= 100:
        axes.set_xlim(0, 100 if largest > 50 else 10 * math.ceil(largest / 8))
    axes.grid(axis="x", alpha=0.25)
    axes.invert_yaxis()


_DATA = {"k400": "K400", "ssv2": "SSv2"}
_HEAD = """# The paper's tables, and what was run of them

Made by `motionformer reproduce --page docs` from the outcomes in `docs/results`; not written by hand. *Paper* is
the authors' figure, top-1 on the data sets named, as far as it could be confirmed. *Ours* is the same comparison with a
tiny model on the [motion benchmark](motion-benchmark.md) (its `hard` level where none is named) or on a folder of real
videos, in the unit named: the same comparison, not the same numbers. Mean ± deviation over seeds, then every seed.
What they do and do not show is in [results](results.md).
"""


def write_page(docs: Path) -> Path:
    """`docs/reproduction.md`, from `docs/results/*.json`."""
    outcomes = read_outcomes(docs / "results")
    if not outcomes:
        raise RecipeError(f"there are no outcomes (ID-cpu.json) in {docs / 'results'} to make the page of.")
    page = docs / "reproduction.md"
    write_atomically(page, _make_page(outcomes))
    return page


def read_outcomes(folder: Path) -> list[Outcome]:
    """Outcomes of whole tables at the scale of a CPU, those on what is built in before others."""
    outcomes = [Outcome.read(file) for file in folder.glob("*-cpu*.json")]
    whole = [outcome for outcome in outcomes if not outcome.rows]
    return sorted(whole, key=lambda outcome: (outcome.id, outcome.data))


def _make_page(outcomes: Sequence[Outcome]) -> str:
    """The text of the page."""
    found = {name: [outcome for outcome in outcomes if outcome.id == name] for name in EXPERIMENTS}
    rows = [_overview(experiment, found[name]) for name, experiment in EXPERIMENTS.items()]
    table = ["| | what | status | command |", "|---|---|---|---|", *rows]
    sections = [_section(experiment, found[name]) for name, experiment in EXPERIMENTS.items()]
    return _HEAD + "\n" + "\n".join(table) + "\n" + "".join(sections)


def _overview(experiment: Experiment, outcomes: Sequence[Outcome]) -> str:
    name = experiment.id
    if outcomes:
        status, scale = "run small: " + ", ".join(outcome.data or "built-in data" for outcome in outcomes), ""
    else:
        can_run = experiment.cpu or experiment.here
        status, scale = ("not run yet", "") if can_run else ("recipes; needs data and GPUs", " --scale paper")
    return f"| [{experiment.name}](#{name}) | {experiment.title} | {status} | `motionformer reproduce {name}{scale}` |"


def _section(experiment: Experiment, outcomes: Sequence[Outcome]) -> str:
    title = f"\n## {experiment.name}\n\n**{experiment.title}.** "
    name, needs = experiment.id, experiment.needs
    if not experiment.cpu and not experiment.here:
        status = f"Recipes only: the original needs {needs} and GPUs; nothing of it was run.\n\n"
        return title + status + _recipes(experiment.paper)
    original = f"The original (`motionformer reproduce {name} --scale paper`) needs {needs} and GPUs."
    if name in ("t3m", "a4", "a5"):
        original = f"The original needs: {needs}."
    if experiment.published:
        original += f" The paper has {experiment.published}."
    ran = [f"`{outcome.command}`: {outcome.about}.\n" for outcome in outcomes]
    status = "\n".join(ran or [f"Not run yet: `motionformer reproduce {name}`.\n"]) + f"\n{original}\n\n"
    tables = "\n".join(map(_studied, outcomes)) if experiment.here else _recipe_table(experiment.cpu, outcomes)
    if not experiment.here and not any(row.published for row in experiment.cpu):  # ours are other rows
        tables += f"\n{_recipes(experiment.paper)}"
    return title + status + tables + "".join(map(_picture, outcomes))


def _recipes(rows: Sequence[Row]) -> str:
    body = [f"| {row.label} | {_expected(row.recipe)} | `motionformer train {row.recipe}` |" for row in rows]
    return "\n".join(["| | paper | command |", "|---|---|---|", *body]) + "\n"


def _recipe_table(rows: Sequence[Row], outcomes: Sequence[Outcome]) -> str:
    """The paper's result of every row beside ours on each data set."""
    columns = [outcome.data or "motion benchmark" for outcome in outcomes] or ["ours"]
    found: list[Mapping[str, Line]] = [{line.label: line for line in outcome.lines} for outcome in outcomes] or [{}]
    head = ["| | paper | " + " | ".join(columns) + " |", "|---|---|" + "---|" * len(columns)]
    body = [
        f"| {row.label} | {_published(row)} | " + " | ".join(_ours(lines.get(row.label)) for lines in found) + " |"
        for row in rows
    ]
    return "\n".join([*head, *body]) + "\n"


def _studied(outcome: Outcome) -> str:
    """A table for each group of an outcome that is not made of recipes."""
    tables = []
    for group, lines in outcome.groups.items():
        unit = ", ".join(filter(None, (outcome.data, outcome.unit(group))))
        has_paper = any(line.paper for line in lines)
        head = [f"| | paper | {unit} |", "|---|---|---|"] if has_paper else [f"| | {unit} |", "|---|---|"]
        body = [
            f"| {line.label} | {line.paper or '–'} | {_ours(line)} |"
            if has_paper
            else f"| {line.label} | {_ours(line)} |"
            for line in lines
        ]
        tables.append("\n".join([*head, *body]) + "\n")
    return "\n".join(tables)


def _picture(outcome: Outcome) -> str:
    what = f"{outcome.experiment.name}, {outcome.data or 'built-in data'}"
    return f"\n![{what}](figures/{outcome.picture_name})\n"


def _ours(line: Line | None) -> str:
    if line is None:
        return "not run"
    if line.std is None:
        return line.show(line.mean) + line.interval
    each = ", ".join(map(line.show, line.values))
    return f"{line.show(line.mean)} ± {line.show(line.std)} ({each})"


def _published(row: Row) -> str:
    if not row.published:
        return "–"
    said = {name: _expected(f"{folder}/{row.published}") for folder, name in _DATA.items()}
    return said["K400"] if len(set(said.values())) == 1 else "; ".join(f"{name} {text}" for name, text in said.items())


def _expected(recipe: str) -> str:
    """The expected result of a recipe, without its source."""
    return find_row(recipe).expected.partition(" (")[0]
