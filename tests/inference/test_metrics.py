"""Figures equal to loops nobody can misread, and to torchmetrics where it has them."""

import math

import numpy as np
import pytest
import torch
from torchmetrics.functional.classification import (
    multiclass_accuracy,
    multiclass_calibration_error,
    multiclass_confusion_matrix,
)

from motionformer.inference import metrics
from motionformer.inference.scorer import Sigmoid, Softmax, average_views
from tests.inference.made import random_scores

N, K = 200, 7
SCORES = random_scores(N, K)
LABELS = np.random.default_rng(1).integers(0, K - 1, N)  # the last class has no video


@pytest.mark.parametrize("top", [1, 2, 5])
def test_top_k_is_the_loop(top: int) -> None:
    for scores, label, found in zip(SCORES, LABELS, metrics.is_in_top(SCORES, LABELS, top), strict=True):
        ranked = sorted(range(K), key=lambda k: -scores[k])
        assert found == (label in ranked[:top])


def test_top_k_is_torchmetrics() -> None:
    theirs = multiclass_accuracy(torch.tensor(SCORES), torch.tensor(LABELS), K, average="micro", top_k=3)
    assert metrics.is_in_top(SCORES, LABELS, 3).mean() == pytest.approx(theirs.item(), abs=1e-6)


def test_a_video_without_scores_is_never_right() -> None:
    scores = np.full((K, K), np.nan, dtype=np.float32)
    assert not metrics.is_in_top(scores, np.arange(K), K).any()
    assert metrics.confusion_matrix(scores, np.arange(K)).sum() == 0


def test_a_constant_model_gets_one_class_and_not_all() -> None:
    scores = np.full((K, K), 1 / K, dtype=np.float32)
    assert metrics.is_in_top(scores, np.arange(K), 1).tolist() == [True] + [False] * (K - 1)
    assert metrics.is_in_top(scores, np.arange(K), 5).sum() == 5


def test_confusion_matrix_is_the_loop_and_torchmetrics() -> None:
    slow = np.zeros((K, K), dtype=int)
    for scores, label in zip(SCORES, LABELS, strict=True):
        slow[label, max(range(K), key=lambda k: scores[k])] += 1
    ours = metrics.confusion_matrix(SCORES, LABELS)
    assert (ours == slow).all()
    assert (ours == multiclass_confusion_matrix(torch.tensor(SCORES), torch.tensor(LABELS), K).numpy()).all()
    assert np.trace(ours) == metrics.is_in_top(SCORES, LABELS, 1).sum()


def test_class_accuracy_is_the_loop_and_leaves_out_empty_classes() -> None:
    right = metrics.is_in_top(SCORES, LABELS, 1)
    counts, found = metrics.class_accuracy(right, LABELS, K)
    slow = []
    for k in range(K - 1):
        mine = [r for r, label in zip(right, LABELS, strict=True) if label == k]
        assert counts[k] == len(mine)
        slow.append(sum(mine) / len(mine))
    assert found[:-1].tolist() == pytest.approx(slow)
    assert counts[-1] == 0
    assert math.isnan(found[-1])
    assert metrics.mean_over_classes(found) == pytest.approx(sum(slow) / len(slow))


def test_calibration_is_the_loop_and_torchmetrics() -> None:
    found = metrics.calibration(SCORES, LABELS, num_bins=10)
    error = 0.0
    for place in range(10):
        mine = [i for i in range(N) if place / 10 < SCORES[i].max() <= (place + 1) / 10]
        assert found.counts[place] == len(mine)
        if mine:
            score = sum(float(SCORES[i].max()) for i in mine) / len(mine)
            right = sum(bool(SCORES[i].argmax() == LABELS[i]) for i in mine) / len(mine)
            assert found.confidence[place] == pytest.approx(score)
            assert found.accuracy[place] == pytest.approx(right)
            error += len(mine) / N * abs(score - right)
    assert found.error == pytest.approx(error)
    theirs = multiclass_calibration_error(torch.tensor(SCORES), torch.tensor(LABELS), K, n_bins=10)
    assert found.error == pytest.approx(theirs.item(), abs=1e-6)


def test_a_perfect_model_is_calibrated_and_a_boaster_is_not() -> None:
    certain = np.eye(K, dtype=np.float32)[LABELS]
    assert metrics.calibration(certain, LABELS).error == 0
    assert metrics.calibration(np.roll(certain, 1, axis=1), LABELS).error == 1


def test_accuracy_by_views_is_the_loop() -> None:
    scores = random_scores(40, 4, 3, 5)
    labels = np.random.default_rng(2).integers(0, 5, 40)
    found = metrics.accuracy_by_views(scores, labels)
    views, crops = metrics._spread_order(4), metrics._spread_order(3)
    for m in range(4):
        for j in range(3):
            right = 0
            for video, label in zip(scores, labels, strict=True):
                total = sum(video[v, c].astype(np.float64) for v in views[: m + 1] for c in crops[: j + 1])
                right += int(np.argmax(total) == label)
            assert found[m, j] == right / 40
    assert found[-1, -1] == metrics.is_in_top(average_views(scores), labels, 1).mean()


def test_views_are_spread() -> None:
    assert metrics._spread_order(1) == [0]
    assert metrics._spread_order(3) == [1, 0, 2]  # the centre crop alone first
    assert metrics._spread_order(10)[:3] == [4, 9, 0]
    assert sorted(metrics._spread_order(10)) == list(range(10))


def test_map_is_the_loop() -> None:
    scores = random_scores(60, 4)
    targets = np.random.default_rng(3).random((60, 4)) < 0.3
    targets[:, 3] = False
    mean, values = metrics.mean_average_precision(scores, targets)
    for k in range(3):
        ranked = sorted(range(60), key=lambda i: -scores[i, k])
        hits, precisions = 0, []
        for place, i in enumerate(ranked, start=1):
            if targets[i, k]:
                hits += 1
                precisions.append(hits / place)
        assert values[k] == pytest.approx(sum(precisions) / len(precisions), abs=1e-6)
    assert math.isnan(values[3])
    assert mean == pytest.approx(np.nanmean(values))


def test_the_order_of_views_does_not_matter() -> None:
    scores = random_scores(50, 10, 3, 9)
    mixed = scores[:, np.random.default_rng(4).permutation(10)][:, :, [2, 0, 1]]
    assert (average_views(scores) == average_views(mixed)).all()


def test_scores_are_averaged_and_not_logits() -> None:
    logits = torch.tensor([[0.0, 2.0, 0.0], [9.0, 0.0, 0.0]])
    scores = Softmax()(logits)
    mean = average_views(scores.numpy()[None, :, None])[0]
    assert mean == pytest.approx((logits.softmax(-1)[0] / 2 + logits.softmax(-1)[1] / 2).numpy())
    assert Softmax()(logits.bfloat16()).dtype == torch.float32
    assert Sigmoid()(torch.zeros(1, 3)).tolist() == [[0.5, 0.5, 0.5]]
