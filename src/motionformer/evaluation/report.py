"""A summary as tables for people, and as files beside the results."""

import json
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from motionformer.evaluation.classes import SINGLE
from motionformer.evaluation.intervals import show_interval
from motionformer.evaluation.results import Results, write_atomically
from motionformer.evaluation.summary import confusion, read_notes, summarise
from motionformer.runs import write_csv

NAMES = {"top1": "top-1", "top5": "top-5", "mean_class": "mean of classes", "map": "mAP"}


def print_summary(summary: dict[str, Any], console: Console, *, show: int = 10, kept: bool = False) -> None:
    """The accuracies, what the number of views did, the worst classes, and which videos failed; `kept` if there is a
    results file."""
    views = f"{_many(summary['views'], 'view')} × {_many(summary['crops'], 'crop')}"
    views += f", {summary['protocol']['protocol']} protocol"
    _say(console, f"{summary['model']} on {summary['data']}: {_many(summary['videos'], 'video')}, {views}")
    if not summary["labelled"]:
        where = "the scores are in the results file" if kept else "--out DIR keeps the scores"
        _say(console, f"no labels: nothing to measure; {where}")
    else:
        console.print(_accuracies(summary))
    _print_overlap(summary["training_overlap"], console)
    for task, found in summary["tasks"].items():
        prefix = "" if task == SINGLE else f"{task}: "
        if len(found.get("top1_by_views", [])) > 1:
            _say(console, f"{prefix}top-1, %, by number of temporal views: {_curve(found['top1_by_views'])}")
        if len(found.get("top1_by_crops", [])) > 1:
            _say(console, f"{prefix}top-1, %, by number of crops: {_curve(found['top1_by_crops'])}")
        if "calibration" in found:
            _say(console, f"{prefix}expected calibration error: {_percent(found['calibration']['error'])}")
        if show and "classes" in found and summary["labelled"]:
            console.print(_worst(found["classes"], f"{prefix}lowest classes", show))
    for note in read_notes(summary["read"]):
        console.print(f"note: {note}", style="yellow", highlight=False, markup=False, soft_wrap=True)
    for one in summary["damaged"][:show]:
        _say(console, f"  damaged: {one['path'] or one['id']}")
    _print_failures(summary, console, show)


def write_reports(results: Results, folder: Path) -> dict[str, Any]:
    """`summary.json`, and for every task `classes.csv` and `confusion.csv`; returns the summary."""
    summary = summarise(results)
    text = json.dumps(summary, indent=1, allow_nan=False)  # no other program reads NaN
    write_atomically(folder / "summary.json", lambda stream: stream.write(text.encode()))
    for task, names in results.header.class_names.items():
        end = "" if task == SINGLE else f"-{task}"
        classes = summary["tasks"][task].get("classes")
        if classes:
            rows = [list(classes[0]), *(["" if v is None else str(v) for v in one.values()] for one in classes)]
            _write_table(folder / f"classes{end}.csv", rows)
        if classes and results.labels[task].ndim == 1:
            counted = confusion(results, task).tolist()
            rows = [["true \\ predicted", *names], *([n, *map(str, r)] for n, r in zip(names, counted, strict=True))]
            _write_table(folder / f"confusion{end}.csv", rows)
    return summary


def _write_table(file: Path, rows: list[list[str]]) -> None:
    write_atomically(file, lambda stream: write_csv(stream, rows))


def _accuracies(summary: dict[str, Any]) -> Table:
    failed = summary["failed"]
    table = Table(title="accuracy, %", title_justify="left")
    table.add_column("")
    table.add_column("right", justify="right")
    kinds = [name for name in NAMES if any(name in one.get("all", {}) for one in summary["tasks"].values())]
    for name in kinds:
        table.add_column(NAMES[name], justify="right")
    for task, found in summary["tasks"].items():
        for which, what in (("all", "all videos, failed ones wrong"), ("readable", "readable videos only")):
            if which in found and (failed or which == "all"):
                label = what if failed else "all videos"
                sure = found["intervals"][which]
                cells = [_percent(found[which].get(name), "") for name in kinds]
                of = f"{sure['top1']['correct']} of {sure['top1']['videos']}" if "top1" in sure else ""
                table.add_row(label if task == SINGLE else f"{task}: {label}", of, *cells)
                table.add_row("  95 % confidence interval", "", *(_interval(sure.get(name)) for name in kinds))
    return table


def _worst(classes: list[dict[str, Any]], title: str, show: int) -> Table:
    key = "top1" if "top1" in classes[0] else "average_precision"
    ranked = sorted((one for one in classes if one["videos"]), key=lambda one: one[key])
    table = Table("class", title=title if len(ranked) > show else "classes, lowest first", title_justify="left")
    table.add_column("videos", justify="right")
    table.add_column("top-1 (95 % CI)" if key == "top1" else "AP", justify="right")
    for one in ranked[:show]:
        table.add_row(escape(one["class"]), str(one["videos"]), _with_interval(one[key], one))
    if len(ranked) > show:
        table.add_row(f"… and {len(ranked) - show} more", "", "")
    return table


def _with_interval(value: float | None, interval: dict[str, Any] | None) -> str:
    bounds = _interval(interval)
    return _percent(value, "") + (f" ({bounds})" if bounds else "")


def _interval(interval: dict[str, Any] | None) -> str:
    if interval is None or interval.get("low") is None:
        return ""
    return show_interval(interval["low"], interval["high"])


def _print_overlap(overlap: dict[str, Any], console: Console) -> None:
    """Whether the model has learnt from these videos; in red if it has."""
    text = f"training videos in this test: {overlap['note']}"
    console.print(text, style="red" if overlap.get("videos") else None, highlight=False, markup=False, soft_wrap=True)


def _print_failures(summary: dict[str, Any], console: Console, show: int) -> None:
    failures = summary["failures"]
    if not failures:
        return
    text = f"{len(failures)} of {_many(summary['videos'], 'video')} could not be read:"
    console.print(text, style="red", highlight=False)
    for one in failures[: max(show, 1)]:
        _say(console, f"  {one['path'] or one['id']}: {one['reason']}")
    if len(failures) > max(show, 1):
        _say(console, f"  … and {len(failures) - max(show, 1)} more")


def _say(console: Console, text: str) -> None:
    console.print(text, highlight=False, markup=False, soft_wrap=True)


def _curve(values: list[float]) -> str:
    return ", ".join(f"{count} → {_percent(value, '')}" for count, value in enumerate(values, start=1))


def _percent(value: float | None, sign: str = " %") -> str:
    return "–" if value is None else f"{100 * value:.2f}{sign}"


def _many(count: int, noun: str) -> str:
    return f"{count} {noun}" + ("" if count == 1 else "s")
