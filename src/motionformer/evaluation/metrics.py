"""How good are the scores? Functions of scores `[n k]` and labels `[n]`, on arrays; they know no videos and no files.

Ties go to the class listed first, in every figure alike.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Float32, Float64, Int, Int64

NUM_BINS = 15


def is_in_top(scores: Float[np.ndarray, "n k"], labels: Int[np.ndarray, " n"], top: int) -> Bool[np.ndarray, " n"]:
    """Whether the true class is among the `top` best; of a video without scores (NaN) it is not."""
    first = scores.argmax(axis=1)[:, None] if top == 1 else np.argsort(-scores, axis=1, kind="stable")[:, :top]
    found: Bool[np.ndarray, " n"] = (first == labels[:, None]).any(axis=1) & ~np.isnan(scores).any(axis=1)
    return found


def confusion_matrix(scores: Float[np.ndarray, "n k"], labels: Int[np.ndarray, " n"]) -> Int64[np.ndarray, "k k"]:
    """Row: the true class; column: the best scored. Videos without scores or label are left out."""
    k = scores.shape[1]
    known = ~np.isnan(scores).any(axis=1) & (labels >= 0)
    pairs = labels[known] * k + scores[known].argmax(axis=1) if known.any() else np.zeros(0, dtype=np.int64)
    return np.bincount(pairs, minlength=k * k).astype(np.int64).reshape(k, k)


def class_accuracy(
    right: Bool[np.ndarray, " n"], labels: Int[np.ndarray, " n"], num_classes: int
) -> tuple[Int64[np.ndarray, " k"], Float64[np.ndarray, " k"]]:
    """Videos of every class, and the share that is right; NaN for a class without videos."""
    counts = np.bincount(labels, minlength=num_classes).astype(np.int64)
    hits = np.bincount(labels[right], minlength=num_classes)
    return counts, np.divide(hits, counts, out=np.full(num_classes, np.nan), where=counts > 0)


def mean_over_classes(values: Float64[np.ndarray, " k"]) -> float:
    """Of the classes that have videos."""
    return float(np.nanmean(values)) if not np.isnan(values).all() else float("nan")


@dataclass(frozen=True)
class Calibration:
    """Is a score of 0.8 right eight times in ten? One row a bin of equal width; empty bins are NaN."""

    error: float
    """Expected calibration error: the gap between score and accuracy, averaged over videos."""
    counts: Int64[np.ndarray, " bins"]
    confidence: Float64[np.ndarray, " bins"]
    accuracy: Float64[np.ndarray, " bins"]


def calibration(
    scores: Float[np.ndarray, "n k"], labels: Int[np.ndarray, " n"], num_bins: int = NUM_BINS
) -> Calibration:
    """Of the best class's score. A bin holds its upper bound."""
    confidence = scores.max(axis=1).astype(np.float64)
    right = scores.argmax(axis=1) == labels
    bins = np.clip(np.ceil(confidence * num_bins).astype(np.int64) - 1, 0, num_bins - 1)
    counts = np.bincount(bins, minlength=num_bins).astype(np.int64)
    empty = np.full(num_bins, np.nan)
    mean = np.divide(np.bincount(bins, confidence, num_bins), counts, out=empty.copy(), where=counts > 0)
    accuracy = np.divide(np.bincount(bins, right, num_bins), counts, out=empty.copy(), where=counts > 0)
    error = float(np.nansum(counts * np.abs(mean - accuracy)) / counts.sum()) if len(scores) else float("nan")
    return Calibration(error, counts, mean, accuracy)


def accuracy_by_views(
    scores: Float32[np.ndarray, "n v c k"], labels: Int[np.ndarray, " n"]
) -> Float64[np.ndarray, "v c"]:
    """Top-1 of 1 … v temporal views times 1 … c crops, from the scores of one pass over all of them.

    Views are added in `spread_order`: a few of them lie as they would if only so many had been asked for.
    """
    n, v, c, k = scores.shape
    found = np.zeros((v, c))
    total = np.zeros((n, c, k))  # of the views so far; of each, the crops so far
    for row, view in enumerate(spread_order(v)):
        total += np.cumsum(scores[:, view, spread_order(c)], axis=1, dtype=np.float64)
        for column in range(c):
            found[row, column] = is_in_top(total[:, column], labels, 1).mean() if n else np.nan
    return found


def spread_order(count: int) -> list[int]:
    """0 … count − 1: the middle, then the ends, then always the one farthest from those before it."""
    order = [(count - 1) // 2]
    while len(order) < count:
        rest = [i for i in range(count) if i not in order]
        order.append(max(rest, key=lambda i: (min(abs(i - j) for j in order), -i)))
    return order


def mean_average_precision(
    scores: Float[np.ndarray, "n k"], targets: Bool[np.ndarray, "n k"]
) -> tuple[float, Float64[np.ndarray, " k"]]:
    """Multi-label: average precision of every class (NaN without a positive), and its mean over the others."""
    import torch
    from torchmetrics.functional.classification import binary_average_precision

    values = np.full(scores.shape[1], np.nan)
    for k in np.flatnonzero(targets.any(axis=0)):  # one by one: torchmetrics refuses a single class as multi-label
        ours, truth = torch.from_numpy(scores[:, k].copy()), torch.from_numpy(targets[:, k]).long()
        values[k] = float(binary_average_precision(ours, truth))
    return mean_over_classes(values), values
