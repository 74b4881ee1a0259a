"""Confidence intervals: equal to published figures and to other formulas, and right as often as they say."""

import math

import numpy as np
import pytest

from motionformer.inference.metrics import (
    _Z as Z,
)
from motionformer.inference.metrics import (
    mean_average_precision,
    mean_average_precision_interval,
    mean_of_proportions,
    paired_difference,
    show_share,
    wilson,
)

# Newcombe, Two-sided confidence intervals for the single proportion, Statistics in Medicine 17 (1998), table I,
# method 3
PUBLISHED = {
    (81, 263): (0.2553, 0.3662),
    (15, 148): (0.0624, 0.1605),
    (0, 20): (0.0, 0.1611),
    (1, 29): (0.0061, 0.1718),
}


@pytest.mark.parametrize("counts", PUBLISHED)
def test_wilson_as_published(counts: tuple[int, int]) -> None:
    assert wilson(*counts) == pytest.approx(PUBLISHED[counts], abs=5e-5)


def test_wilson_bounds_are_where_the_score_test_just_rejects() -> None:
    for correct, total in ((113, 132), (1, 2), (7, 8), (499, 1000)):
        for bound in wilson(correct, total):
            score = abs(correct / total - bound) / math.sqrt(bound * (1 - bound) / total)
            assert score == pytest.approx(Z)


def test_edges() -> None:
    assert wilson(0, 0) == (0.0, 1.0)
    low, high = wilson(8, 8)
    assert high == 1.0
    assert low == pytest.approx(1 / (1 + Z * Z / 8))  # all right is not certain
    with pytest.raises(ValueError, match=r"`correct` \(9\) must lie between 0 and `total` \(8\)"):
        wilson(9, 8)


def test_it_is_said_as_a_person_would() -> None:
    assert show_share(113, 132) == "85.6 % (95 % CI 78.6–90.6, 113 of 132)"


def test_the_mean_of_classes_holds_the_truth_as_often_as_it_says() -> None:
    rng = np.random.default_rng(0)
    for num_classes, videos in ((5, 8), (20, 5), (100, 10)):
        held = 0
        for _ in range(400):
            truth = np.clip(rng.normal(0.8, 0.15, num_classes), 0, 1)
            low, high = mean_of_proportions(rng.binomial(videos, truth).tolist(), [videos] * num_classes)
            held += low <= truth.mean() <= high
        assert 0.92 <= held / 400 <= 0.99
    # classes that differ, and videos of a class that hardly do: surer than the same mean of equal classes
    sharp, even = mean_of_proportions([39, 1] * 5, [40, 40] * 5), mean_of_proportions([20, 20] * 5, [40, 40] * 5)
    assert sharp[1] - sharp[0] < 0.8 * (even[1] - even[0])
    assert mean_of_proportions([4] * 5, [4] * 5) == wilson(20, 20)
    # variances of the shares 3/16 · 1/3 each, of their mean 1/32: that of half of 8 videos
    assert mean_of_proportions([1, 3], [4, 4]) == pytest.approx(wilson(4, 8))
    assert mean_of_proportions([3, 0], [4, 0]) == pytest.approx(mean_of_proportions([3], [4]))  # a class without videos


def test_paired_difference_as_published() -> None:
    """Altman et al., Statistics with Confidence (2000), table 6.2: 14, 5, 0, 22, difference 0.12."""
    assert paired_difference(14, 0, 5, 22) == pytest.approx((0.011, 0.226), abs=6e-4)
    assert paired_difference(14, 5, 0, 22) == pytest.approx((-0.226, -0.011), abs=6e-4)
    low, high = paired_difference(10, 0, 0, 0)  # always the same answer: not certain either
    assert low < 0 < high


def test_paired_is_narrower_than_apart_where_models_agree() -> None:
    low, high = paired_difference(80, 3, 7, 10)
    (low_a, high_a), (low_b, high_b) = wilson(83, 100), wilson(87, 100)
    apart = (high_b - low_a) - (low_b - high_a)
    assert low < 0.04 < high
    assert high - low < 0.7 * apart


def test_map_is_that_of_videos_drawn_again() -> None:
    """Against torchmetrics on real copies of the drawn videos."""
    rng = np.random.default_rng(1)
    targets = rng.random((40, 3)) < 0.4
    scores = np.round(0.6 * rng.random((40, 3)) + 0.4 * targets, 1).astype(np.float32)  # with ties
    found = mean_average_precision_interval(scores, targets)
    draws = [rng.integers(40, size=40) for _ in range(200)]
    again = [mean_average_precision(scores[rows], targets[rows])[0] for rows in draws]
    assert found == pytest.approx(tuple(np.quantile(again, (0.025, 0.975))), abs=0.02)
    assert found == mean_average_precision_interval(scores, targets)
    perfect = targets.astype(np.float32)
    assert mean_average_precision_interval(perfect, targets) is None
    assert mean_average_precision_interval(scores[:1], targets[:1]) is None
