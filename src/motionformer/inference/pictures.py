"""Pictures of results: confusion matrix, reliability diagram, accuracy against the number of views, timelines."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Int64

from motionformer.inference.report import confusion, summarise
from motionformer.inference.results import Results
from motionformer.inference.scorer import SINGLE
from motionformer.inference.timeline import Timeline

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_MAX_NAMED = 40
_STRONGEST = 6  # classes of a timeline: more lines cannot be told apart
_BLUE, _GREY = "#2563a8", "#9aa3ad"


def draw_pictures(results: Results, folder: Path) -> list[Path]:
    """Draw what these results allow; a list of the files."""
    written = []
    for task, found in summarise(results)["tasks"].items():
        end = "" if task == SINGLE else f"-{task}"
        drawn: dict[str, Figure] = {}
        if "calibration" in found:
            drawn["confusion"] = draw_confusion(confusion(results, task), results.header.class_names[task])
            drawn["reliability"] = _draw_reliability(found["calibration"])
        if "map" in found.get("all", {}):
            drawn["precision"] = _draw_precision(found["classes"], found["all"]["map"])
        if len(found.get("top1_by_views", [])) > 1 or len(found.get("top1_by_crops", [])) > 1:
            drawn["views"] = _draw_views(found["top1_by_views"], found["top1_by_crops"])
        for name, figure in drawn.items():
            file = folder / f"{name}{end}.png"
            figure.savefig(file, dpi=130)
            written.append(file)
    return written


def draw_confusion(counts: Int64[np.ndarray, "k k"], names: tuple[str, ...]) -> "Figure":
    """Rows are normalised: each shows where the videos of one class went."""
    k = len(names)
    side = min(14.0, max(4.5, 2.5 + 0.42 * k)) if k <= _MAX_NAMED else 9.0
    figure, axes = _figure(side + 0.8, side)
    totals = counts.sum(axis=1, keepdims=True)
    shares = np.divide(counts, totals, out=np.zeros(counts.shape), where=totals > 0)
    picture = axes.imshow(shares, cmap="Blues", vmin=0, vmax=1)
    axes.set_xlabel("predicted")
    axes.set_ylabel("true")
    if k <= _MAX_NAMED:
        axes.set_xticks(
            range(k),
            [plain(name) for name in names],
            rotation=90 if k > 12 else 45,
            ha="center" if k > 12 else "right",
            rotation_mode=None if k > 12 else "anchor",
        )
        axes.set_yticks(range(k), [plain(name) for name in names])
    if k <= 20:
        for row, column in np.argwhere(counts > 0):
            colour = "white" if shares[row, column] > 0.5 else "#333333"
            axes.text(column, row, str(counts[row, column]), ha="center", va="center", color=colour, fontsize=8)
    figure.colorbar(picture, ax=axes, shrink=0.8, label="share of the true class")
    return figure


def _draw_reliability(calibration: dict[str, Any]) -> "Figure":
    """How often a score was right, bin by bin; above the diagonal the model is underconfident."""
    figure, axes = _figure(4.8, 4.6)
    bins = calibration["bins"]
    width = 1 / len(bins)
    most = max(one["videos"] for one in bins)
    for i, one in enumerate(bins):
        if one["videos"]:
            left, share = i * width, 0.25 + 0.75 * one["videos"] / most
            axes.bar(left, one["accuracy"], width, align="edge", color=_BLUE, alpha=share, edgecolor="white")
    axes.plot([0, 1], [0, 1], color=_GREY, linestyle="--", linewidth=1)
    axes.set(xlim=(0, 1), ylim=(0, 1), xlabel="score of the prediction", ylabel="share that was right", aspect="equal")
    axes.set_title(
        f"expected calibration error {100 * calibration['error']:.1f} %\nthe fuller a bin, the darker", fontsize=9
    )
    return figure


def _draw_precision(classes: list[dict[str, Any]], mean: float | None) -> "Figure":
    """Videos of several classes: average precision of each class that has videos, best first; the worst if too many."""
    known = sorted((one for one in classes if one["videos"]), key=lambda one: -one["average_precision"])
    shown = known[-_MAX_NAMED:]
    figure, axes = _figure(6.4, max(2.2, 0.9 + 0.24 * len(shown)))
    axes.barh(range(len(shown)), [one["average_precision"] for one in shown], color=_BLUE)
    axes.set_yticks(range(len(shown)), [plain(f"{one['class']} ({one['videos']})") for one in shown])
    axes.invert_yaxis()
    axes.set(xlim=(0, 1), xlabel="average precision")
    if mean is not None:
        axes.axvline(mean, color=_GREY, linestyle="--", linewidth=1)
        which = "" if len(shown) == len(known) else f"; the {len(shown)} worst of {len(known)} classes"
        axes.set_title(f"mean {100 * mean:.1f} %{which}", fontsize=9)
    return figure


def _draw_views(by_views: list[float], by_crops: list[float]) -> "Figure":
    figure, axes = _figure(5.2, 3.6)
    curves = [
        ("temporal views, all crops", by_views, _BLUE, "o"),
        ("crops, all temporal views", by_crops, "#c2571a", "s"),
    ]
    for label, values, colour, marker in curves:
        if len(values) > 1:
            axes.plot(range(1, len(values) + 1), [100 * v for v in values], marker=marker, color=colour, label=label)
    axes.set(xlabel="number averaged", ylabel="top-1, %")
    axes.set_xticks(range(1, max(len(by_views), len(by_crops)) + 1))
    axes.grid(alpha=0.25)
    axes.legend(frameon=False)
    return figure


def draw_timeline(timeline: Timeline, file: Path, threshold: float = 0.5) -> Path:
    """A PNG (or another format, by the file's ending), one panel of curves and one of segments for each task."""
    from matplotlib.figure import Figure  # only who draws waits for it
    from matplotlib.ticker import MultipleLocator

    tasks = timeline.tasks
    figure = Figure(figsize=(10, 3.8 * len(tasks)), layout="constrained", dpi=150)
    figure.suptitle(plain(Path(timeline.video).name or "stream"), fontsize=11, x=0.01, ha="left")
    panels: Any = figure.subplots(2 * len(tasks), 1, sharex=True, height_ratios=[3, 1.2] * len(tasks), squeeze=False)
    for i, task in enumerate(tasks):
        _draw_task(timeline, task, threshold, panels[2 * i, 0], panels[2 * i + 1, 0])
    panels[-1, 0].set_xlabel("time")
    panels[-1, 0].xaxis.set_major_locator(MultipleLocator(_step(timeline.duration)))
    panels[-1, 0].xaxis.set_major_formatter(_clock)
    file.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(file)
    return file


def plain(text: str) -> str:
    """A name as it stands: matplotlib takes what is between two dollar signs for a formula, and fails at bytes that are
    no UTF-8, which become �."""
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "replace").replace("$", r"\$")


def _figure(width: float, height: float) -> "tuple[Figure, Axes]":
    from matplotlib.figure import Figure  # no pyplot: no window, no global state

    figure = Figure(figsize=(width, height), layout="constrained")
    axes = figure.add_subplot()
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    return figure, axes


def _draw_task(timeline: Timeline, task: str, threshold: float, curves: Any, bars: Any) -> None:
    scores, names = timeline.scores(task), [plain(name) for name in timeline.windows[0].labels[task]]
    strongest = np.argsort(-scores.max(axis=0), kind="stable")[:_STRONGEST].tolist()
    middles = [((w.start or 0.0) + (w.end or 0.0)) / 2 for w in timeline.windows]
    colours = {index: f"C{i}" for i, index in enumerate(strongest)}
    for index in strongest:
        marker = "o" if len(middles) < 60 else ""
        curves.plot(middles, scores[:, index], color=colours[index], label=names[index], lw=1.6, marker=marker, ms=3)
    curves.axhline(threshold, color="0.4", lw=0.8, ls="--")
    highest = max(float(scores.max()), threshold)
    curves.set(ylim=(0, min(1.02, 1.15 * highest)), ylabel="score" if task == "class" else plain(f"{task} score"))
    curves.set_xlim(0, timeline.duration)
    curves.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), frameon=False, fontsize=8)
    segments = [one for one in timeline.segments(threshold) if one.task == task and one.index in colours]
    rows = {index: row for row, index in enumerate(dict.fromkeys(one.index for one in segments))}
    for one in segments:
        bars.broken_barh([(one.start, one.end - one.start)], (rows[one.index] - 0.35, 0.7), color=colours[one.index])
    bars.set_yticks(list(rows.values()), [names[index] for index in rows], fontsize=8)
    bars.set_ylim(max(len(rows), 1) - 0.5, -0.5)
    if not segments:
        bars.text(0.5, 0.5, f"no score reaches {threshold:g}", transform=bars.transAxes, ha="center", va="center")
    for panel in (curves, bars):
        panel.set_axisbelow(True)
        panel.spines[["top", "right"]].set_visible(False)
        panel.grid(axis="x", color="0.9", lw=0.6)


def _step(duration: float) -> float:
    """Seconds between ticks: a round part of a minute or an hour, ten ticks at most."""
    steps = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 15.0, 30.0, 60.0, 120.0, 300.0, 600.0, 900.0, 1800.0, 3600.0)
    return next((step for step in steps if duration <= 10 * step), 3600.0 * (1 + duration // 36000))


def _clock(seconds: float, _: object = None) -> str:
    minutes, rest = divmod(max(0.0, seconds), 60)
    hours, minutes = divmod(int(minutes), 60)
    shown = f"{rest:04.1f}" if rest % 1 else f"{rest:02.0f}"
    return f"{hours}:{minutes:02d}:{shown}" if hours else f"{minutes}:{shown}"
