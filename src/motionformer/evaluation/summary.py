"""Results become figures: a plain dictionary, for JSON, tables and pictures alike.

Every accuracy is given twice. `all`: over all labelled videos, those that could not be read counted as wrong, which is
the figure to publish. `readable`: over the videos that could be read. They are equal when nothing failed. `intervals`
holds the 95 % confidence interval of each (`intervals.py`), and how many videos were right.
"""

from collections.abc import Callable, Collection
from typing import Any

import numpy as np
from jaxtyping import Bool, Int64

from motionformer.evaluation import metrics
from motionformer.evaluation.classes import SINGLE
from motionformer.evaluation.epic import is_action_in_top, is_epic
from motionformer.evaluation.intervals import Interval, mean_average_precision_interval, mean_of_shares, wilson
from motionformer.evaluation.results import Results
from motionformer.video import ReadFacts

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
