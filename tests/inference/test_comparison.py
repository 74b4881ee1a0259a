"""Gains and losses equal to a loop; results that do not belong together are refused."""

import csv
from dataclasses import replace
from math import comb
from pathlib import Path

import numpy as np
import pytest

from motionformer.errors import EvaluationError
from motionformer.inference import Results, compare
from motionformer.inference.comparison import _mcnemar
from tests.inference.made import made_results, random_scores

LABELS = np.arange(50) % 6


def some(seed: int, model: str = "m", failures: dict[int, str] | None = None) -> Results:
    scores = {"class": random_scores(50, 1, 1, 6, seed=seed)}
    return made_results(scores, {"class": LABELS}, model=model, failures=failures)


def take(results: Results, rows: list[int]) -> Results:
    ids, paths = (tuple(names[i] for i in rows) for names in (results.ids, results.paths))
    labels = {task: values[rows] for task, values in results.labels.items()}
    return Results(results.header, ids, paths, labels, {t: v[rows] for t, v in results.scores.items()}, {})


def test_it_is_the_loop(tmp_path: Path) -> None:
    a, b = some(1, "a", {4: "gone"}), some(2, "b")
    found = compare(a, b)
    right = {
        name: [i not in r.failures and r.averaged("class")[i].argmax() == LABELS[i] for i in range(50)]
        for name, r in (("a", a), ("b", b))
    }
    pairs = list(zip(right["a"], right["b"], strict=True))
    assert found.both_right == pairs.count((True, True))
    assert found.a_right == pairs.count((True, False))
    assert found.b_right == pairs.count((False, True))
    assert found.neither == pairs.count((False, False))
    assert found.a_top1 == pytest.approx(sum(right["a"]) / 50)
    for one in found.classes:
        mine = [i for i in range(50) if f"class {LABELS[i]}" == one.name]
        gain = (sum(right["b"][i] for i in mine) - sum(right["a"][i] for i in mine)) / len(mine)
        assert one.videos == len(mine)
        assert one.gain == pytest.approx(gain)
    gains = [one.gain for one in found.classes]
    assert gains == sorted(gains, reverse=True)
    assert found.notes == ("1 video could not be read in A",)
    found.write_csv(tmp_path / "changes.csv")
    assert len(list(csv.reader((tmp_path / "changes.csv").open()))) == 7


def test_turned_around_every_gain_is_a_loss() -> None:
    there, back = compare(some(1), some(2)), compare(some(2), some(1))
    assert {one.name: one.gain for one in there.classes} == {one.name: -one.gain for one in back.classes}
    assert there.p_value == back.p_value


def test_videos_are_matched_by_name_and_not_by_order() -> None:
    b = some(2)
    mixed = take(b, np.random.default_rng(0).permutation(50).tolist())
    assert compare(some(1), mixed) == compare(some(1), b)


def test_only_common_videos_count() -> None:
    found = compare(take(some(1), list(range(30))), take(some(2), list(range(10, 50))))
    assert (found.videos, found.only_in_a, found.only_in_b) == (20, 10, 20)


def test_classes_in_another_order_are_the_same_classes() -> None:
    b = some(2)
    order = [3, 1, 0, 5, 4, 2]
    names = {"class": tuple(b.header.class_names["class"][k] for k in order)}
    place = np.argsort(order)
    scores = {"class": b.scores["class"][..., order]}
    turned = Results(replace(b.header, class_names=names), b.ids, b.paths, {"class": place[LABELS]}, scores, {})
    assert compare(some(1), turned) == compare(some(1), b)


def test_p_is_the_binomial_and_a_fair_split_is_chance() -> None:
    assert _mcnemar(0, 0) == 1
    assert _mcnemar(5, 5) == 1
    assert _mcnemar(2, 9) == pytest.approx(2 * sum(comb(11, k) for k in range(3)) / 2**11)
    assert _mcnemar(2, 9) == _mcnemar(9, 2)
    assert _mcnemar(4000, 5000) < 1e-20  # large counts neither overflow nor take long


def test_epic_compares_actions_unless_told_otherwise() -> None:
    labels = {"verb": np.arange(30) % 3, "noun": np.arange(30) % 4}
    a, b = (
        made_results({"verb": random_scores(30, 1, 1, 3, seed=s), "noun": random_scores(30, 1, 1, 4, seed=s)}, labels)
        for s in (1, 2)
    )
    action, verb = compare(a, b), compare(a, b, "verb")
    assert action.task == "action"
    assert action.classes[0].name.count(" / ") == 1
    assert action.a_top1 <= verb.a_top1
    with pytest.raises(EvaluationError, match="no task 'thing' in these results; there are verb, noun, action"):
        compare(a, b, "thing")


def test_what_does_not_belong_together_is_refused() -> None:
    a = some(1)
    with pytest.raises(EvaluationError, match="no video in common"):
        compare(a, replace(a, ids=tuple(f"other {i}" for i in range(50))))
    with pytest.raises(EvaluationError, match="labels differ between A and B in 50 videos; the first is video 0"):
        compare(a, replace(a, labels={"class": (LABELS + 1) % 6}))
    with pytest.raises(EvaluationError, match="different classes"):
        compare(a, replace(a, header=replace(a.header, class_names={"class": tuple("uvwxyz")})))
    unlabelled = replace(a, labels={"class": np.full(50, -1)})
    with pytest.raises(EvaluationError, match="no labels"):
        compare(unlabelled, unlabelled)


def test_what_else_differs_is_said() -> None:
    a = some(1, "a")
    b = replace(some(2, "b"), header=replace(a.header, model_fingerprint="b"))
    found = compare(a, replace(b, header=replace(b.header, views=4)))
    assert found.notes == ("they also differ in views",)
    other = replace(b.header, views=4, data_fingerprint="other", protocol={"views": 4, "stride": 2, "seed": 1})
    mine = replace(a, header=replace(a.header, protocol={"views": 1, "stride": 2, "level": {"speed": (0.1, 0.2)}}))
    assert compare(mine, replace(b, header=other)).notes == ("they also differ in views, level, seed",)
    assert compare(a, a).notes == ("both are the same model",)


def test_data_differ_by_videos_not_by_the_numbers_of_their_classes() -> None:
    a = some(1, "a")
    b = replace(some(2, "b"), header=replace(a.header, model_fingerprint="b", data_fingerprint="other"))
    assert compare(a, b).notes == ()
    renamed = replace(b, ids=("another", *b.ids[1:]))
    assert compare(a, renamed).notes == ("they also differ in data",)
