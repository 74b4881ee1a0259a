"""Results become figures: a plain dictionary, for JSON, tables and pictures alike.

Every accuracy is given twice. `all`: over all labelled videos, those that could not be read counted as wrong, which is
the figure to publish. `readable`: over the videos that could be read. They are equal when nothing failed. `intervals`
holds the 95 % confidence interval of each (`intervals.py`), and how many videos were right.
"""


from collections.abc import Callable, Collection
from typing import Any

import numpy as np
from jaxtyping import Bool, Int64

from motionformer.inference import metrics
from motionformer.inference.classes import SINGLE
from motionformer.inference.metrics import is_action_in_top, is_epic
from motionformer.inference.metrics import Interval, mean_average_precision_interval, mean_of_shares, wilson
from motionformer.inference.results import Results
from motionformer.video import ReadFacts

import json
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from motionformer.inference.classes import SINGLE
from motionformer.inference.metrics import show_interval
from motionformer.inference.results import Results, write_atomically
from motionformer.runs import write_csv

TOPS = (1, 5)
Mask = Bool[np.ndarray, " n"]


def summarise(results: Results) -> dict[str, Any]:
    """Everything but the confusion matrix, which is large."""
    header = results.header
    tasks = {task: _summarise_task(results, task) for task in results.tasks}
    if is_epic(results):
        tasks["action"] = _summarise_action(results)
    return {
        "model": header.model,
        "model_fingerprint": header.model_fingerprint,
        "data": header.data,
        "data_fingerprint": header.data_fingerprint,
        "videos": len(results),
        "labelled": int(_labelled(results).sum()),
        "failed": len(results.failures),
        "views": header.views,
        "crops": header.crops,
        "protocol": {"protocol": "uniform", **header.protocol},
        "precision": header.precision,
        "training_overlap": results.overlap,
        "tasks": tasks,
        "read": summarise_reads(results.facts.values()),
        "damaged": [
            {"id": results.ids[i], "path": results.paths[i]} for i in sorted(results.facts) if results.facts[i].damaged
        ],
        "failures": [
            {"id": results.ids[i], "path": results.paths[i], "reason": why} for i, why in results.failures.items()
        ],
    }


def summarise_reads(facts: Collection[ReadFacts]) -> dict[str, Any] | None:
    """Frames of a clip, the fewest that differ in one, and how many videos repeat frames or are damaged."""
    if not facts:
        return None
    return {
        "videos": len(facts),
        "frames": max(one.frames for one in facts),
        "fewest_distinct_frames": min(one.distinct_frames for one in facts),
        "videos_with_repeated_frames": sum(one.distinct_frames < one.frames for one in facts),
        "damaged_videos": sum(bool(one.damaged) for one in facts),
    }


def read_notes(read: dict[str, Any] | None) -> list[str]:
    """What of a summary of reads makes scores mean something else, as sentences."""
    notes = []
    if read and (count := read["videos_with_repeated_frames"]):
        notes.append(
            f"{count} of {read['videos']} videos show frames several times (the fewest distinct ones:"
            f" {read['fewest_distinct_frames']} of {read['frames']} in a clip): they are slower than the rate at which"
            " clips are sampled, or shorter than a clip. --sample-by frames counts a video's own frames."
        )
    if read and (count := read["damaged_videos"]):
        notes.append(
            f"{count} of {read['videos']} videos are damaged where they were read: their scores are of patched-up"
            " frames. `motionformer data check` says where."
        )
    return notes


def confusion(results: Results, task: str = SINGLE) -> Int64[np.ndarray, "k k"]:
    """Row: the true class; column: the predicted. Of the videos that could be read."""
    return metrics.confusion_matrix(results.averaged(task), results.labels[task])


def _summarise_task(results: Results, task: str) -> dict[str, Any]:
    if results.labels[task].ndim == 2:
        return _summarise_multilabel(results, task)
    known = results.labels[task] >= 0
    names = results.header.class_names[task]
    if not known.any():
        return {"num_classes": len(names)}
    scores, labels = results.averaged(task)[known], results.labels[task][known]
    readable = results.readable[known]
    right = metrics.is_in_top(scores, labels, 1)
    counts, accuracies = metrics.class_accuracy(right, labels, len(names))
    _, of_readable = metrics.class_accuracy(right[readable], labels[readable], len(names))
    figures = _twice(lambda top: metrics.is_in_top(scores, labels, top), readable, len(names))
    figures["all"]["mean_class"] = metrics.mean_over_classes(accuracies)
    figures["readable"]["mean_class"] = metrics.mean_over_classes(of_readable) if readable.any() else None
    for which, chosen in (("all", np.ones_like(readable)), ("readable", readable)):
        found_counts = (np.bincount(labels[mask & chosen], minlength=len(names)) for mask in (right, chosen))
        figures["intervals"][which]["mean_class"] = _bounds(mean_of_shares(*(c.tolist() for c in found_counts)))
    found: dict[str, Any] = {"num_classes": len(names), **figures}
    if readable.any():
        found["calibration"] = _calibration(scores[readable], labels[readable])
        by_views = metrics.accuracy_by_views(results.scores[task][known], labels)
        found["top1_by_views"] = by_views[:, -1].tolist()
        found["top1_by_crops"] = by_views[-1].tolist()
    found["classes"] = [
        {"class": name, "videos": int(count), "top1": None if count == 0 else float(value)}
        | _class_bounds(float(value), int(count))
        for name, count, value in zip(names, counts, accuracies, strict=True)
    ]
    return found


def _summarise_action(results: Results) -> dict[str, Any]:
    """The pair as one thing. The joint rule, not the product of the two accuracies."""
    known = _labelled(results)
    sizes = [len(results.header.class_names[task]) for task in ("verb", "noun")]
    if not known.any():
        return {"num_classes": sizes[0] * sizes[1]}
    verb, noun = (results.averaged(task)[known] for task in ("verb", "noun"))
    verbs, nouns = (results.labels[task][known] for task in ("verb", "noun"))
    figures = _twice(
        lambda top: is_action_in_top(verb, noun, verbs, nouns, top), results.readable[known], sizes[0] * sizes[1]
    )
    return {"num_classes": sizes[0] * sizes[1], **figures}


def _summarise_multilabel(results: Results, task: str) -> dict[str, Any]:
    """Average precision needs scores, so a failed video gets zeros under `all`: last in every class's ranking."""
    readable, scores, targets = results.readable, results.averaged(task), results.labels[task]
    names = results.header.class_names[task]
    mean, values = metrics.mean_average_precision(np.nan_to_num(scores), targets)
    readable_mean, _ = metrics.mean_average_precision(scores[readable], targets[readable])
    return {
        "num_classes": len(names),
        "all": {"map": None if np.isnan(mean) else mean},
        "readable": {"map": None if np.isnan(readable_mean) else readable_mean},
        "intervals": {
            "all": {"map": _bounds(mean_average_precision_interval(np.nan_to_num(scores), targets))},
            "readable": {"map": _bounds(mean_average_precision_interval(scores[readable], targets[readable]))},
        },
        "classes": [
            {"class": name, "videos": int(count), "average_precision": None if count == 0 else float(value)}
            for name, count, value in zip(names, targets.sum(axis=0), values, strict=True)
        ],
    }


def _twice(is_right: Callable[[int], Mask], readable: Mask, num_classes: int) -> dict[str, dict[str, Any]]:
    """Top-5 of five classes or fewer is always right, and is left out."""
    found: dict[str, dict[str, Any]] = {"all": {}, "readable": {}, "intervals": {"all": {}, "readable": {}}}
    for top in TOPS:
        if top == 1 or num_classes > top:
            right = is_right(top)
            found["all"][f"top{top}"] = float(right.mean())
            found["readable"][f"top{top}"] = float(right[readable].mean()) if readable.any() else None
            for which, mask in (("all", right), ("readable", right[readable])):
                counts = {"correct": int(mask.sum()), "videos": len(mask)}
                found["intervals"][which][f"top{top}"] = {**_bounds(wilson(*counts.values())), **counts}
    return found


def _bounds(interval: Interval | None) -> dict[str, float | None]:
    low, high = interval or (None, None)
    return {"low": low, "high": high}


def _class_bounds(accuracy: float, count: int) -> dict[str, float | None]:
    return _bounds(wilson(round(accuracy * count), count) if count else None)


def _calibration(scores: Any, labels: Any) -> dict[str, Any]:
    found = metrics.calibration(scores, labels)
    return {
        "error": found.error,
        "bins": [
            {
                "videos": int(count),
                "score": None if count == 0 else float(mean),
                "accuracy": None if count == 0 else float(a),
            }
            for count, mean, a in zip(found.counts, found.confidence, found.accuracy, strict=True)
        ],
    }


def _labelled(results: Results) -> Mask:
    masks = [np.ones(len(results), dtype=bool) if one.ndim == 2 else one >= 0 for one in results.labels.values()]
    every: Mask = np.logical_and.reduce(masks)
    return every


# ---- evaluation/report: """A summary as tables for people, and as files beside the results."""

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
