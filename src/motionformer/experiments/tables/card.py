"""The card of an outcome: what was run, what it gave, what the original needs; with its JSON and its picture."""

import io
import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from motionformer.experiments.tables.experiments import Experiment
from motionformer.experiments.tables.outcome import Line, Outcome, by_group
from motionformer.runs import write_atomically


def to_markdown(outcome: Outcome) -> str:
    """The table for people, of bars one for each group; every seed is shown."""
    if all(line.x is not None for line in outcome.lines):
        return _table(outcome.lines, outcome.measure)
    return "\n".join(_table(lines, outcome.unit(group)) for group, lines in by_group(outcome).items())


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


def to_card(experiment: Experiment, outcome: Outcome) -> str:
    """What was run, what it gave, and what the original needs."""
    facts = [f"# {experiment.name}: {experiment.title}", "", f"* Command: `{outcome.command}`"]
    facts += [f"* What was run: {outcome.about}"] if outcome.about else []
    facts += [f"* The original needs: {experiment.needs}", ""]
    return "\n".join(facts) + "\n" + to_markdown(outcome)


def write_outcome(experiment: Experiment, outcome: Outcome, folder: Path) -> list[Path]:
    """`ID-SCALE[-DATA][-rows-TEXT].json`, `.md` (the card) and `.png`, each whole or not at all."""
    text = json.dumps(outcome.to_dict(), indent=1, ensure_ascii=False) + "\n"
    picture = io.BytesIO()
    draw(experiment, outcome).savefig(picture, format="png", dpi=130)
    contents: dict[str, str | bytes] = {
        ".json": text,
        ".md": to_card(experiment, outcome),
        ".png": picture.getvalue(),
    }
    files = [folder / f"{outcome.stem}{suffix}" for suffix in contents]
    folder.mkdir(parents=True, exist_ok=True)
    for file, content in zip(files, contents.values(), strict=True):
        write_atomically(file, content)
    return files


COLOURS = ("#7a8691", "#c2571a", "#2563a8", "#1d7a46")
INK = "#22303c"


def draw(experiment: Experiment, outcome: Outcome) -> Figure:
    """Lines where the rows are points of lines, else bars, a panel for each group; seeds as dots."""
    if all(line.x is not None for line in outcome.lines):
        figure = Figure(figsize=(6.4, 3.6), layout="constrained")
        axes = figure.add_subplot()
        _draw_curves(axes, outcome)
        axes.set(xlabel=experiment.x_label, ylabel=outcome.measure)
        axes.legend(frameon=False)
        axes.grid(axis="both", alpha=0.25)
    else:
        groups = by_group(outcome)
        heights = [0.8 + 0.42 * len(lines) for lines in groups.values()]
        figure = Figure(figsize=(6.4, 0.4 + sum(heights)), layout="constrained")
        panels = figure.subplots(len(groups), 1, squeeze=False, height_ratios=heights)[:, 0]
        for panel, (group, lines) in zip(panels, groups.items(), strict=True):
            _draw_bars(panel, lines, outcome.unit(group))
    for axes in figure.axes:
        for side in ("top", "right"):
            axes.spines[side].set_visible(False)
    return figure


def _draw_curves(axes: Any, outcome: Outcome) -> None:
    groups = dict.fromkeys(line.group for line in outcome.lines)
    for place, (colour, group) in enumerate(zip(COLOURS, groups, strict=False)):
        lines = [line for line in outcome.lines if line.group == group and line.x is not None]
        aside = 0.05 * (place - (len(groups) - 1) / 2)  # beside each other, so that no error bar hides another
        axes.errorbar(
            [line.x + aside for line in lines if line.x is not None],
            [line.mean for line in lines],
            yerr=[line.std or 0.0 for line in lines],
            color=colour,
            marker="o",
            capsize=3,
            label=group,
        )
    axes.set_xticks(sorted({line.x for line in outcome.lines if line.x is not None}))


def _draw_bars(axes: Any, lines: list[Line], measure: str) -> None:
    """Bars, their figures beside the names, where nothing can hide them; seeds as dots, the paper's as diamonds."""
    names = [f"{line.label}   {line.show(line.mean)}" for line in lines]
    axes.barh(names, [line.mean for line in lines], color="#8fb3d9", height=0.62)
    shown = [value for line in lines for value in line.values]
    for place, line in enumerate(lines):
        if len(line.values) > 1:
            axes.plot(line.values, [place] * len(line.values), "o", color=INK, markersize=4)
    published = {place: float(line.paper) for place, line in enumerate(lines) if line.paper}
    axes.plot(list(published.values()), list(published), "D", color="none", markeredgecolor="#c2571a", markersize=6)
    marks = [*(["dots: seeds"] if len(shown) > len(lines) else []), *(["diamonds: paper"] if published else [])]
    axes.set_xlabel("\n".join(filter(None, (measure, "; ".join(marks)))))
    largest = max([*shown, *published.values()])
    if measure.endswith("%") and min(shown) >= 0 and largest <= 100:
        axes.set_xlim(0, 100 if largest > 50 else 10 * math.ceil(largest / 8))
    axes.grid(axis="x", alpha=0.25)
    axes.invert_yaxis()
