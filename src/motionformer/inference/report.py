"""Results become metrics and reports: a summary (plain values), tables for people, files, a challenge submission.

Every accuracy is given twice. `all`: over all labelled videos, those that could not be read counted as wrong, which is
the metric to publish. `readable`: over the videos that could be read. They are equal when nothing failed. `intervals`
holds the 95 % confidence interval of each, and how many videos were right.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Bool, Int64
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from motionformer.errors import EvaluationError
from motionformer.inference import metrics
from motionformer.inference.results import Results, read_notes, summarise_reads
from motionformer.inference.reversal import compare_reversed, describe_reversed
from motionformer.inference.scorer import SINGLE
from motionformer.logging import show_count
from motionformer.runs import write_atomically, write_csv

_NAMES = {"top1": "top-1", "top5": "top-5", "mean_class": "mean of classes", "map": "mAP"}
_Mask = Bool[np.ndarray, " n"]


def summarise(results: Results, backwards: Results | None = None) -> dict[str, Any]:
    """The metrics of an evaluation, in plain values, for JSON, tables and pictures alike.

    Args:
        results: of `evaluate`, or read by `Results.load`.
        backwards: of the same videos reversed (`ReversedVideos`).

    Returns:
        What was evaluated, and by task `all` and `readable` (`top1`, `top5`, `mean_class`; `map` for any number of
        classes per video), their `intervals`, `calibration`, `top1_by_views`, and the `classes`; with `backwards` also
        `reversed` (`compare_reversed`).

    Example:
        ```python
        summarise(results)["tasks"]["class"]["all"]["top1"]  # 0.856
        ```
    """
    header = results.header
    tasks = {task: _summarise_task(results, task) for task in results.tasks}
    if results.is_epic:
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
        **({} if backwards is None else {"reversed": compare_reversed(results, backwards)}),
    }


def confusion(results: Results, task: str = SINGLE) -> Int64[np.ndarray, "k k"]:
    """The confusion matrix of the videos that could be read.

    Args:
        results: of an evaluation.
        task: "class", or "verb" and "noun" of EPIC-Kitchens.

    Returns:
        Counts `[k k]`; row: the true class, column: the predicted one.
    """
    return metrics.confusion_matrix(results.averaged(task), results.labels[task])


def print_summary(summary: dict[str, Any], console: Console, *, show: int = 10, kept: bool = False) -> None:
    """Print the accuracies, the effect of the number of views, the worst classes, and which videos failed.

    Args:
        summary: of `summarise`.
        console: rich's, to print to.
        show: classes and failed videos to list.
        kept: whether there is a results file.
    """
    views = f"{show_count(summary['views'], 'view')} × {show_count(summary['crops'], 'crop')}"
    views += f", {summary['protocol']['protocol']} protocol"
    _print(console, f"{summary['model']} on {summary['data']}: {show_count(summary['videos'], 'video')}, {views}")
    if not summary["labelled"]:
        where = "the scores are in the results file" if kept else "--output DIR keeps the scores"
        _print(console, f"no labels: nothing to measure; {where}")
    else:
        console.print(_accuracies(summary))
    overlap = summary["training_overlap"]  # in red if the model has learnt from these videos
    _print(console, f"training videos in this test: {overlap['note']}", style="red" if overlap.get("videos") else None)
    for task, found in summary["tasks"].items():
        prefix = "" if task == SINGLE else f"{task}: "
        if len(found.get("top1_by_views", [])) > 1:
            _print(console, f"{prefix}top-1, %, by number of temporal views: {_curve(found['top1_by_views'])}")
        if len(found.get("top1_by_crops", [])) > 1:
            _print(console, f"{prefix}top-1, %, by number of crops: {_curve(found['top1_by_crops'])}")
        if "calibration" in found:
            _print(console, f"{prefix}expected calibration error: {_percent(found['calibration']['error'])}")
        if show and "classes" in found and summary["labelled"]:
            console.print(_worst(found["classes"], f"{prefix}lowest classes", show))
    for line in describe_reversed(summary["reversed"], show) if "reversed" in summary else []:
        _print(console, line)
    for note in read_notes(summary["read"]):
        _print(console, f"note: {note}", style="yellow")
    for one in summary["damaged"][:show]:
        _print(console, f"  damaged: {one['path'] or one['id']}")
    failures, most = summary["failures"], max(show, 1)
    if failures:
        text = f"{len(failures)} of {show_count(summary['videos'], 'video')} could not be read:"
        console.print(text, style="red", highlight=False)
    for one in failures[:most]:
        _print(console, f"  {one['path'] or one['id']}: {one['reason']}")
    if len(failures) > most:
        _print(console, f"  … and {len(failures) - most} more")


def write_reports(results: Results, folder: Path, backwards: Results | None = None) -> dict[str, Any]:
    """Write `summary.json`, and for every task `classes.csv` and `confusion.csv`.

    Args:
        results: of an evaluation.
        folder: an existing folder.
        backwards: of the same videos reversed (`ReversedVideos`).

    Returns:
        The summary, as of `summarise`.
    """
    summary = summarise(results, backwards)
    text = json.dumps(summary, indent=1, allow_nan=False)  # no other program reads NaN
    write_atomically(folder / "summary.json", text)
    for task, names in results.header.class_names.items():
        end = "" if task == SINGLE else f"-{task}"
        classes = summary["tasks"][task].get("classes")
        if classes:
            rows = [list(classes[0]), *(["" if v is None else str(v) for v in one.values()] for one in classes)]
            write_csv(folder / f"classes{end}.csv", rows)
        if classes and results.labels[task].ndim == 1:
            counted = confusion(results, task).tolist()
            rows = [["true \\ predicted", *names], *([n, *map(str, r)] for n, r in zip(names, counted, strict=True))]
            write_csv(folder / f"confusion{end}.csv", rows)
    return summary


def challenge_submission(
    results: Results, *, pretraining: int = -1, labels: int = -1, data: int = -1
) -> dict[str, Any]:
    """What the EPIC-Kitchens-100 action recognition challenge takes, as `test.json` in a zip.

    Args:
        results: of verbs and nouns. A video that could not be read has zeros: the challenge wants every action.
        pretraining, labels, data: the supervision levels `sls_pt`, `sls_tl`, `sls_td` of the challenge's rules; -1:
            not declared.

    Raises:
        EvaluationError: the results are of other tasks.
    """
    if not results.is_epic:
        raise EvaluationError(
            f"the challenge needs verb and noun scores; these results have {', '.join(results.tasks)}."
        )
    verbs, nouns = (np.nan_to_num(results.averaged(task)) for task in ("verb", "noun"))
    entries = {}
    for name, verb, noun in zip(results.ids, verbs, nouns, strict=True):
        entries[name] = {
            "verb": {str(i): float(score) for i, score in enumerate(verb)},
            "noun": {str(i): float(score) for i, score in enumerate(noun)},
            "action": {f"{v},{n}": score for (v, n), score in metrics.best_actions(verb, noun, 100)},
        }
    levels = {"sls_pt": pretraining, "sls_tl": labels, "sls_td": data}
    return {"version": "0.2", "challenge": "action_recognition", **levels, "results": entries}


def write_challenge(results: Results, file: Path, **levels: int) -> None:
    """Write the submission of `challenge_submission` as JSON."""
    write_atomically(file, json.dumps(challenge_submission(results, **levels)))


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
    values = _over_all_and_readable(lambda top: metrics.is_in_top(scores, labels, top), readable, len(names))
    values["all"]["mean_class"] = metrics.mean_over_classes(accuracies)
    values["readable"]["mean_class"] = metrics.mean_over_classes(of_readable) if readable.any() else None
    for which, chosen in (("all", np.ones_like(readable)), ("readable", readable)):
        found_counts = (np.bincount(labels[mask & chosen], minlength=len(names)) for mask in (right, chosen))
        values["intervals"][which]["mean_class"] = _bounds(
            metrics.mean_of_proportions(*(c.tolist() for c in found_counts))
        )
    found: dict[str, Any] = {"num_classes": len(names), **values}
    if readable.any():
        found["calibration"] = _calibration(scores[readable], labels[readable])
        by_views = metrics.accuracy_by_views(results.scores[task][known], labels)
        found["top1_by_views"] = by_views[:, -1].tolist()
        found["top1_by_crops"] = by_views[-1].tolist()
    found["classes"] = [
        {"class": name, "videos": int(count), "top1": None if count == 0 else float(value)}
        | _bounds(metrics.wilson(round(float(value) * int(count)), int(count)) if count else None)
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
    values = _over_all_and_readable(
        lambda top: metrics.is_action_in_top(verb, noun, verbs, nouns, top),
        results.readable[known],
        sizes[0] * sizes[1],
    )
    return {"num_classes": sizes[0] * sizes[1], **values}


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
            "all": {"map": _bounds(metrics.mean_average_precision_interval(np.nan_to_num(scores), targets))},
            "readable": {"map": _bounds(metrics.mean_average_precision_interval(scores[readable], targets[readable]))},
        },
        "classes": [
            {"class": name, "videos": int(count), "average_precision": None if count == 0 else float(value)}
            for name, count, value in zip(names, targets.sum(axis=0), values, strict=True)
        ],
    }


def _over_all_and_readable(
    is_right: Callable[[int], _Mask], readable: _Mask, num_classes: int
) -> dict[str, dict[str, Any]]:
    """Top-5 of five classes or fewer is always right, and is left out."""
    found: dict[str, dict[str, Any]] = {"all": {}, "readable": {}, "intervals": {"all": {}, "readable": {}}}
    for top in (1, 5):
        if top == 1 or num_classes > top:
            right = is_right(top)
            found["all"][f"top{top}"] = float(right.mean())
            found["readable"][f"top{top}"] = float(right[readable].mean()) if readable.any() else None
            for which, mask in (("all", right), ("readable", right[readable])):
                counts = {"correct": int(mask.sum()), "videos": len(mask)}
                found["intervals"][which][f"top{top}"] = {**_bounds(metrics.wilson(*counts.values())), **counts}
    return found


def _bounds(interval: metrics.Interval | None) -> dict[str, float | None]:
    low, high = interval or (None, None)
    return {"low": low, "high": high}


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


def _labelled(results: Results) -> _Mask:
    masks = [np.ones(len(results), dtype=bool) if one.ndim == 2 else one >= 0 for one in results.labels.values()]
    every: _Mask = np.logical_and.reduce(masks)
    return every


def _accuracies(summary: dict[str, Any]) -> Table:
    failed = summary["failed"]
    table = Table(title="accuracy, %", title_justify="left")
    table.add_column("")
    table.add_column("right", justify="right")
    kinds = [name for name in _NAMES if any(name in one.get("all", {}) for one in summary["tasks"].values())]
    for name in kinds:
        table.add_column(_NAMES[name], justify="right")
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
        bounds = _interval(one)
        table.add_row(
            escape(one["class"]), str(one["videos"]), _percent(one[key], "") + (f" ({bounds})" if bounds else "")
        )
    if len(ranked) > show:
        table.add_row(f"… and {len(ranked) - show} more", "", "")
    return table


def _interval(interval: dict[str, Any] | None) -> str:
    if interval is None or interval.get("low") is None:
        return ""
    return metrics.show_interval(interval["low"], interval["high"])


def _print(console: Console, text: str, style: str | None = None) -> None:
    console.print(text, style=style, highlight=False, markup=False, soft_wrap=True)


def _curve(values: list[float]) -> str:
    return ", ".join(f"{count} → {_percent(value, '')}" for count, value in enumerate(values, start=1))


def _percent(value: float | None, sign: str = " %") -> str:
    return "–" if value is None else f"{100 * value:.2f}{sign}"
