"""Finished runs become a table: mean and deviation over seeds, as text, JSON and a picture."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from motionformer.reproduce.experiments import Experiment
from motionformer.reproduce.run import Job, finished


@dataclass(frozen=True)
class Line:
    """One row of the table: top-1 of every seed, in %."""

    label: str
    values: tuple[float, ...]
    seconds: float
    group: str = ""
    x: float | None = None

    @property
    def mean(self) -> float:
        return mean(self.values)

    @property
    def deviation(self) -> float | None:
        return stdev(self.values) if len(self.values) > 1 else None


@dataclass(frozen=True)
class Outcome:
    """What an experiment gave here."""

    id: str
    scale: str
    command: str
    steps: int
    clips: int
    lines: tuple[Line, ...]

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> "Outcome":
        lines = tuple(Line(**{**line, "values": tuple(line["values"])}) for line in values["lines"])
        return cls(**{**values, "lines": lines})


def collect(experiment: Experiment, scale: str, jobs: Sequence[Job], command: str) -> Outcome:
    """The table of the jobs that are finished; rows without a finished run are left out."""
    found: dict[str, list[tuple[Job, dict[str, Any]]]] = {}
    for job, file in finished(jobs):
        found.setdefault(job.row.label, []).append((job, json.loads(file.read_text())))
    lines = tuple(_line(label, runs) for label, runs in found.items())
    cards = [card for runs in found.values() for _, card in runs]
    steps = max((card["plan"]["total_steps"] for card in cards), default=0)
    clips = max((card["data"]["val"]["clips"] for card in cards), default=0)
    return Outcome(experiment.id, scale, command, steps, clips, lines)


def to_markdown(outcome: Outcome) -> str:
    """The table for people; every seed is shown."""
    seeds = max((len(line.values) for line in outcome.lines), default=0)
    head = ["", "mean", "± s.d.", *(f"seed {i}" for i in range(seeds)), "training, s"]
    rows = [
        [
            line.label,
            f"{line.mean:.1f}",
            "" if line.deviation is None else f"{line.deviation:.1f}",
            *(f"{value:.1f}" for value in line.values),
            *[""] * (seeds - len(line.values)),
            f"{line.seconds:.0f}",
        ]
        for line in outcome.lines
    ]
    table = [head, ["---", *["---:"] * (len(head) - 1)], *rows]
    return "\n".join("| " + " | ".join(row) + " |" for row in table) + "\n"


def write_outcome(experiment: Experiment, outcome: Outcome, folder: Path) -> list[Path]:
    """`ID-SCALE.json`, `.md` and `.png`."""
    folder.mkdir(parents=True, exist_ok=True)
    stem = folder / f"{outcome.id}-{outcome.scale}"
    files = [stem.with_suffix(suffix) for suffix in (".json", ".md", ".png")]
    files[0].write_text(json.dumps(outcome.to_dict(), indent=1) + "\n", encoding="utf-8")
    files[1].write_text(to_markdown(outcome), encoding="utf-8")
    draw(experiment, outcome).savefig(files[2], dpi=130)
    return files


def draw(experiment: Experiment, outcome: Outcome) -> Any:
    """Lines where the rows are points of lines, else bars; seeds as dots."""
    from matplotlib.figure import Figure

    is_curve = all(line.x is not None for line in outcome.lines)
    height = 3.6 if is_curve else 1.2 + 0.42 * len(outcome.lines)
    figure = Figure(figsize=(6.4, height), layout="constrained")
    axes = figure.add_subplot()
    (_draw_curves if is_curve else _draw_bars)(axes, outcome)
    if is_curve:
        axes.set(xlabel=experiment.x_label, ylabel="top-1, %")
        axes.legend(frameon=False)
    else:
        axes.set(xlabel="top-1, % (dots: seeds)", xlim=(0, 100))
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    axes.grid(axis="both" if is_curve else "x", alpha=0.25)
    return figure


def _draw_curves(axes: Any, outcome: Outcome) -> None:
    for colour, group in zip(("#7a8691", "#c2571a", "#2563a8", "#1d7a46"), _groups(outcome), strict=False):
        lines = [line for line in outcome.lines if line.group == group]
        axes.errorbar(
            [line.x for line in lines],
            [line.mean for line in lines],
            yerr=[line.deviation or 0.0 for line in lines],
            color=colour,
            marker="o",
            capsize=3,
            label=group,
        )
    axes.set_xticks(sorted({line.x for line in outcome.lines if line.x is not None}))


def _draw_bars(axes: Any, outcome: Outcome) -> None:
    labels = [line.label for line in outcome.lines]
    axes.barh(labels, [line.mean for line in outcome.lines], color="#8fb3d9", height=0.62)
    for place, line in enumerate(outcome.lines):
        axes.plot(line.values, [place] * len(line.values), "o", color="#22303c", markersize=4)
    axes.invert_yaxis()


def _groups(outcome: Outcome) -> list[str]:
    return list(dict.fromkeys(line.group for line in outcome.lines))


def _line(label: str, runs: list[tuple[Job, dict[str, Any]]]) -> Line:
    row = runs[0][0].row
    values = tuple(100 * _score(card) for _, card in sorted(runs, key=lambda run: run[0].seed))
    return Line(label, values, mean(card["seconds"] for _, card in runs), row.group, row.x)


def _score(card: dict[str, Any]) -> float:
    last = card["results"]["last"]
    return float(last["action"] if "action" in last else last["top1"])
