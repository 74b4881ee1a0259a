"""The picture of an outcome: lines where its rows are points of lines, else bars."""

import math
from typing import Any

from matplotlib.figure import Figure

from motionformer.experiments.tables.experiments import Experiment
from motionformer.experiments.tables.outcome import Line, Outcome, by_group

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
            yerr=[line.deviation or 0.0 for line in lines],
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
