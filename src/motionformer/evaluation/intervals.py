"""How sure a figure is: 95 % confidence intervals of accuracies, from counts. Knows no videos and no files."""

import math
from collections.abc import Sequence

import numpy as np
from jaxtyping import Bool, Float, Float64

Z = 1.959963984540054  # of the normal distribution, two-sided 95 %
RESAMPLES, MOST_SCORES = 1000, 2_000_000
Interval = tuple[float, float]


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


def mean_of_shares(correct: Sequence[int], totals: Sequence[int]) -> Interval:
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
    if n < 2 or not targets.any() or targets.size > MOST_SCORES:
        return None
    resamples = max(200, min(RESAMPLES, int(1e8 / targets.size)))
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
    weight = Z * Z / total
    centre = (share + weight / 2) / (1 + weight)
    half = Z * math.sqrt((share * (1 - share) + weight / 4) / total) / (1 + weight)
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
