"""A timeline as a picture: the scores of the strongest classes along time, and the segments above the threshold."""

from pathlib import Path
from typing import Any

import numpy as np

from motionformer.evaluation.pictures import plain
from motionformer.predict.timeline import Timeline

STRONGEST = 6
"""Classes drawn. More lines than this cannot be told apart."""


def draw_timeline(timeline: Timeline, file: Path, threshold: float = 0.5) -> Path:
    """A PNG (or what the file's ending says), one panel of curves and one of segments for each task."""
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


def _draw_task(timeline: Timeline, task: str, threshold: float, curves: Any, bars: Any) -> None:
    scores, names = timeline.scores(task), [plain(name) for name in timeline.windows[0].labels[task]]
    strongest = np.argsort(-scores.max(axis=0), kind="stable")[:STRONGEST].tolist()
    middles = [((w.start or 0.0) + (w.end or 0.0)) / 2 for w in timeline.windows]
    colours = {index: f"C{place}" for place, index in enumerate(strongest)}
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
