"""How good are the scores, and how sure is the metric? Functions of scores `[n k]`, labels `[n]` and counts, on arrays:
accuracy, calibration, mean average precision, actions of EPIC-Kitchens, 95 % confidence intervals.

Ties go to the class listed first, in every metric alike.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Float32, Float64, Int, Int64

NUM_BINS = 15
_Z = 1.959963984540054  # of the normal distribution, two-sided 95 %
_RESAMPLES, _MOST_SCORES = 1000, 2_000_000
Interval = tuple[float, float]


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
class _Calibration:
    """Is a score of 0.8 right eight times in ten? One row a bin of equal width; empty bins are NaN."""

    error: float
    """Expected calibration error: the gap between score and accuracy, averaged over videos."""
    counts: Int64[np.ndarray, " bins"]
    confidence: Float64[np.ndarray, " bins"]
    accuracy: Float64[np.ndarray, " bins"]


def calibration(
    scores: Float[np.ndarray, "n k"], labels: Int[np.ndarray, " n"], num_bins: int = NUM_BINS
) -> _Calibration:
    """Of the best class's score. A bin holds its upper bound."""
    confidence = scores.max(axis=1).astype(np.float64)
    right = scores.argmax(axis=1) == labels
    bins = np.clip(np.ceil(confidence * num_bins).astype(np.int64) - 1, 0, num_bins - 1)
    counts = np.bincount(bins, minlength=num_bins).astype(np.int64)
    empty = np.full(num_bins, np.nan)
    mean = np.divide(np.bincount(bins, confidence, num_bins), counts, out=empty.copy(), where=counts > 0)
    accuracy = np.divide(np.bincount(bins, right, num_bins), counts, out=empty.copy(), where=counts > 0)
    error = float(np.nansum(counts * np.abs(mean - accuracy)) / counts.sum()) if len(scores) else float("nan")
    return _Calibration(error, counts, mean, accuracy)


def accuracy_by_views(
    scores: Float32[np.ndarray, "n v c k"], labels: Int[np.ndarray, " n"]
) -> Float64[np.ndarray, "v c"]:
    """Top-1 of 1 … v temporal views times 1 … c crops, from the scores of one pass over all of them.

    Views are added in `_spread_order`: a few of them lie as they would if only so many had been asked for.
    """
    n, v, c, k = scores.shape
    found = np.zeros((v, c))
    total = np.zeros((n, c, k))  # of the views so far; of each, the crops so far
    for row, view in enumerate(_spread_order(v)):
        total += np.cumsum(scores[:, view, _spread_order(c)], axis=1, dtype=np.float64)
        for column in range(c):
            found[row, column] = is_in_top(total[:, column], labels, 1).mean() if n else np.nan
    return found


def _spread_order(count: int) -> list[int]:
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
    for k in np.flatnonzero(targets.any(axis=0)):  # one by one: torchmetrics takes no single class as multi-label
        ours, truth = torch.from_numpy(scores[:, k].copy()), torch.from_numpy(targets[:, k]).long()
        values[k] = float(binary_average_precision(ours, truth))
    return mean_over_classes(values), values


def is_action_in_top(
    verb: Float32[np.ndarray, "n v"],
    noun: Float32[np.ndarray, "n o"],
    verb_labels: Int[np.ndarray, " n"],
    noun_labels: Int[np.ndarray, " n"],
    top: int,
) -> Bool[np.ndarray, " n"]:
    """Whether the true pair is among the `top` best of all pairs. For `top=1`: whether verb and noun are right."""
    found = np.zeros(len(verb), dtype=bool)
    for i in np.flatnonzero(~np.isnan(verb).any(axis=1)):
        product = _products(verb[i], noun[i])
        true = verb_labels[i] * noun.shape[1] + noun_labels[i]
        before = (product > product[true]).sum() + (product[:true] == product[true]).sum()
        found[i] = before < top
    return found


def best_actions(
    verb: Float32[np.ndarray, " v"], noun: Float32[np.ndarray, " o"], count: int
) -> list[tuple[tuple[int, int], float]]:
    """The pairs with the largest products and these, best first. Ties go to the lower verb, then the lower noun."""
    product = _products(verb, noun)
    order = np.argsort(-product, kind="stable")[:count]
    return [((int(i) // len(noun), int(i) % len(noun)), float(product[i])) for i in order]


def wilson(correct: int, total: int) -> Interval:
    """Wilson's score interval of a share of independent videos; everything is possible of none.

    Args:
        correct: videos that were right.
        total: all videos.

    Returns:
        The lower and the upper bound, in [0, 1].

    Raises:
        ValueError: unless 0 ≤ correct ≤ total.

    >>> [round(bound, 3) for bound in wilson(113, 132)]
    [0.786, 0.906]
    """
    if not 0 <= correct <= total:
        raise ValueError(f"`correct` ({correct}) must lie between 0 and `total` ({total}).")
    if total == 0:
        return 0.0, 1.0
    return _wilson(correct / total, float(total))


def mean_of_proportions(correct: Sequence[int], totals: Sequence[int]) -> Interval:
    """Of the mean of the shares of independent groups (mean class accuracy): Wilson's, for as many videos as one group
    would need for the same variance.

    Resampling videos would be sure of 100 % where each of few videos is right.
    """
    c, n = (np.array(values, dtype=np.float64) for values in (correct, totals))
    c, n = c[n > 0], n[n > 0]
    if not len(n):
        return 0.0, 1.0
    shares = c / n
    mean = float(shares.mean())
    # of a class with one video the spread within is not known: that of all classes stands for it
    within = np.where(n > 1, shares * (1 - shares) / np.maximum(n - 1, 1), mean * (1 - mean))
    variance = float(within.sum()) / len(n) ** 2
    equal = len(n) ** 2 / float((1 / n).sum())  # if all groups had the same share
    effective = mean * (1 - mean) / variance if variance > 0 and 0 < mean < 1 else equal
    return _wilson(mean, min(effective, 2 * float(n.sum())))  # few videos a class may hide how they differ


def paired_difference(both: int, a_alone: int, b_alone: int, neither: int) -> Interval:
    """Of B's share minus A's on the same videos: Newcombe's hybrid score interval (1998, method 10)."""
    total, a, b = both + a_alone + b_alone + neither, both + a_alone, both + b_alone
    (low_a, high_a), (low_b, high_b) = wilson(a, total), wilson(b, total)
    share_a, share_b = a / total, b / total
    product = a * (total - a) * b * (total - b)
    excess = float(both * neither - a_alone * b_alone)
    excess = max(excess - total / 2, 0.0) if excess > 0 else excess  # continuity correction
    phi = excess / math.sqrt(product) if product else 0.0

    def reach(x: float, y: float) -> float:
        return math.sqrt(max(0.0, x * x - 2 * phi * x * y + y * y))

    difference = share_b - share_a
    below = reach(share_b - low_b, high_a - share_a)
    above = reach(high_b - share_b, share_a - low_a)
    return max(-1.0, difference - below), min(1.0, difference + above)


def mean_average_precision_interval(
    scores: Float[np.ndarray, "n k"], targets: Bool[np.ndarray, "n k"]
) -> Interval | None:
    """Of mAP: the percentiles of videos drawn again with replacement, always the same draws. None where they all agree
    (a perfect score, a single video): that is no certainty. None for more than two million scores: minutes of work."""
    n = len(scores)
    if n < 2 or not targets.any() or targets.size > _MOST_SCORES:
        return None
    resamples = max(200, min(_RESAMPLES, int(1e8 / targets.size)))
    weights = np.random.default_rng(0).multinomial(n, np.full(n, 1 / n), size=resamples).T.astype(np.float32)
    values = [_weighted_precision(scores[:, k], targets[:, k], weights) for k in np.flatnonzero(targets.any(axis=0))]
    with np.errstate(invalid="ignore"):
        means = np.array([np.nanmean(row) for row in np.stack(values, axis=1) if not np.isnan(row).all()])
    low, high = np.quantile(means, (0.025, 0.975))
    return None if high - low < 1e-9 else (float(low), float(high))


def show_interval(low: float, high: float) -> str:
    """In per cent, as `78.6–90.6`."""
    return f"{100 * low:.1f}–{100 * high:.1f}"


def show_share(correct: int, total: int) -> str:
    """As `85.6 % (95 % CI 78.6–90.6, 113 of 132)`."""
    if total == 0:
        return "– (0 videos)"
    return f"{100 * correct / total:.1f} % (95 % CI {show_interval(*wilson(correct, total))}, {correct} of {total})"


def _wilson(share: float, total: float) -> Interval:
    weight = _Z * _Z / total
    centre = (share + weight / 2) / (1 + weight)
    half = _Z * math.sqrt((share * (1 - share) + weight / 4) / total) / (1 + weight)
    # the bounds of nothing and of everything are exact; rounding would leave 1e-18
    return (0.0 if share == 0 else centre - half), (1.0 if share == 1 else centre + half)


def _weighted_precision(
    scores: Float[np.ndarray, " n"], target: Bool[np.ndarray, " n"], weights: Float[np.ndarray, "n r"]
) -> Float64[np.ndarray, " r"]:
    """Average precision of every resample, in which a video counts as often as it was drawn; equal scores are one step.
    NaN where no positive was drawn."""
    order = np.argsort(-scores, kind="stable")
    ends = np.append(np.flatnonzero(np.diff(scores[order])), len(scores) - 1)
    drawn = weights[order]
    seen = np.cumsum(drawn, axis=0)[ends]
    right = np.cumsum(drawn * target[order, None], axis=0)[ends]
    precision = np.divide(right, seen, out=np.zeros_like(seen), where=seen > 0)
    hits = (precision * np.diff(right, axis=0, prepend=0)).sum(axis=0, dtype=np.float64)
    values: Float64[np.ndarray, " r"] = np.divide(hits, right[-1], out=np.full(len(hits), np.nan), where=right[-1] > 0)
    return values


def _products(verb: Float32[np.ndarray, " v"], noun: Float32[np.ndarray, " o"]) -> Float64[np.ndarray, " a"]:
    """Of every verb with every noun. Exact, since the product of two floats fits a double: no ties but real ones."""
    return np.outer(verb.astype(np.float64), noun.astype(np.float64)).ravel()
