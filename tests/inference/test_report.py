"""Figures of whole results: failed videos, EPIC-Kitchens, several labels; tables, files and pictures of them."""

import csv
import io
import json
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from motionformer.errors import EvaluationError
from motionformer.inference import (
    Results,
    challenge_submission,
    confusion,
    print_summary,
    summarise,
    write_challenge,
    write_reports,
)
from motionformer.inference.metrics import best_actions, is_action_in_top, mean_of_proportions, wilson
from motionformer.inference.pictures import _draw_precision, draw_confusion, draw_pictures
from tests.inference.made import made_results, random_scores

LABELS = np.arange(30) % 6


def some_results(**options: object) -> Results:
    return made_results({"class": random_scores(30, 2, 3, 6)}, {"class": LABELS}, **options)  # type: ignore[arg-type]


def test_failed_videos_are_wrong_in_one_figure_and_absent_in_the_other() -> None:
    whole, broken = some_results(), some_results(failures={3: "gone", 4: "cut"})
    right = whole.averaged("class").argmax(axis=1) == LABELS
    found = summarise(broken)["tasks"]["class"]
    kept = np.delete(right, [3, 4])
    assert found["all"]["top1"] == pytest.approx(kept.sum() / 30)
    assert found["readable"]["top1"] == pytest.approx(kept.sum() / 28)
    of_class_3 = [right[i] for i in range(30) if LABELS[i] == 3 and i != 3]
    assert found["classes"][3]["top1"] == pytest.approx(sum(of_class_3) / 5)
    assert found["top1_by_views"][-1] == pytest.approx(found["all"]["top1"])
    assert confusion(broken).sum() == 28
    untouched = summarise(whole)["tasks"]["class"]
    assert untouched["all"] == untouched["readable"]


def test_top_5_of_five_classes_is_left_out() -> None:
    found = summarise(made_results({"class": random_scores(9, 1, 1, 5)}, {"class": np.arange(9) % 5}))
    assert set(found["tasks"]["class"]["all"]) == {"top1", "mean_class"}


def test_without_labels_there_are_no_figures() -> None:
    found = summarise(made_results({"class": random_scores(4, 1, 1, 6)}, {"class": [-1] * 4}))
    assert found["labelled"] == 0
    assert found["tasks"]["class"] == {"num_classes": 6}


def test_some_without_labels() -> None:
    labels = np.where(np.arange(30) < 20, LABELS, -1)
    results = made_results({"class": random_scores(30, 1, 1, 6)}, {"class": labels})
    right = results.averaged("class").argmax(axis=1)[:20] == LABELS[:20]
    assert summarise(results)["labelled"] == 20
    assert summarise(results)["tasks"]["class"]["all"]["top1"] == right.mean()


def test_nothing_could_be_read(tmp_path: Path) -> None:
    found = write_reports(some_results(failures=dict.fromkeys(range(30), "gone")), tmp_path)
    assert found["tasks"]["class"]["all"] == {"top1": 0, "top5": 0, "mean_class": 0}
    assert found["tasks"]["class"]["readable"] == {"top1": None, "top5": None, "mean_class": None}

    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is no JSON")

    assert json.loads((tmp_path / "summary.json").read_text(), parse_constant=refuse) == found
    print_summary(found, Console(file=io.StringIO()))


def epic_results(**options: object) -> Results:
    rng = np.random.default_rng(0)
    scores = {"verb": random_scores(40, 2, 1, 7), "noun": random_scores(40, 2, 1, 20, seed=1)}
    labels = {"verb": rng.integers(0, 7, 40), "noun": rng.integers(0, 20, 40)}
    for task in labels:  # half of the time the best one is the true one
        labels[task][::2] = scores[task].mean(axis=(1, 2))[::2].argmax(axis=1)
    return made_results(scores, labels, **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("top", [1, 5])
def test_action_is_the_loop_over_all_pairs(top: int) -> None:
    results = epic_results()
    verb, noun = results.averaged("verb"), results.averaged("noun")
    found = is_action_in_top(verb, noun, results.labels["verb"], results.labels["noun"], top)
    for i in range(40):
        pairs = [(float(verb[i, v]) * float(noun[i, n]), v, n) for v in range(7) for n in range(20)]
        best = [(v, n) for _, v, n in sorted(pairs, key=lambda pair: -pair[0])[:top]]
        assert found[i] == ((results.labels["verb"][i], results.labels["noun"][i]) in best)
        assert [pair for pair, _ in best_actions(verb[i], noun[i], top)] == best


def test_an_action_is_right_when_both_are() -> None:
    results = epic_results(failures={0: "gone"})
    right = [results.averaged(task).argmax(axis=1) == results.labels[task] for task in ("verb", "noun")]
    both = (right[0] & right[1])[1:]
    found = summarise(results)["tasks"]["action"]
    assert found["all"]["top1"] == pytest.approx(both.sum() / 40)
    assert found["readable"]["top1"] == pytest.approx(both.mean())
    assert 0 < both.mean() < min(right[0].mean(), right[1].mean())
    assert found["num_classes"] == 140


def test_the_challenge_gets_what_it_wants(tmp_path: Path) -> None:
    results = epic_results(failures={2: "gone"})
    write_challenge(results, tmp_path / "test.json", pretraining=1, labels=4, data=3)
    sent = json.loads((tmp_path / "test.json").read_text())
    assert {key: sent[key] for key in sent if key != "results"} == {
        "version": "0.2",
        "challenge": "action_recognition",
        "sls_pt": 1,
        "sls_tl": 4,
        "sls_td": 3,
    }
    assert list(sent["results"]) == list(results.ids)
    one = sent["results"]["video 5"]
    assert [len(one[task]) for task in ("verb", "noun", "action")] == [7, 20, 100]
    assert one["verb"]["3"] == pytest.approx(float(results.averaged("verb")[5, 3]))
    for pair, score in one["action"].items():
        v, n = pair.split(",")
        assert score == pytest.approx(one["verb"][v] * one["noun"][n])
    assert min(one["action"].values()) >= sorted(
        (a * b for a in one["verb"].values() for b in one["noun"].values()), reverse=True
    )[100] * (1 - 1e-9)
    assert set(sent["results"]["video 2"]["verb"].values()) == {0.0}
    with pytest.raises(EvaluationError, match="verb and noun"):
        challenge_submission(some_results())


def test_several_labels_give_map(tmp_path: Path) -> None:
    targets = np.random.default_rng(0).random((30, 6)) < 0.4
    results = made_results({"class": random_scores(30, 1, 1, 6)}, {"class": targets}, failures={0: "gone"})
    found = summarise(results)["tasks"]["class"]
    assert 0 < found["all"]["map"] < 1
    assert found["all"]["map"] != found["readable"]["map"]
    assert found["classes"][2]["videos"] == targets[:, 2].sum()
    assert [file.name for file in draw_pictures(results, tmp_path)] == ["precision.png"]


def test_dollars_in_names_are_dollars(tmp_path: Path) -> None:
    confused = draw_confusion(np.eye(2, dtype=np.int64), ("$_$", "US$5"))
    ranked = _draw_precision([{"class": "$_$", "videos": 1, "average_precision": 0.5}], 0.5)
    for number, figure in enumerate((confused, ranked)):
        figure.savefig(tmp_path / f"{number}.png")


def test_the_picture_of_many_classes_shows_the_worst() -> None:
    classes = [{"class": f"c{i}", "videos": int(i != 3), "average_precision": i / 100} for i in range(50)]
    axes = _draw_precision(classes, 0.25).axes[0]
    names = [label.get_text() for label in axes.get_yticklabels()]
    assert (len(names), names[0], names[-1]) == (40, "c40 (1)", "c0 (1)")
    assert axes.get_title() == "mean 25.0 %; the 40 worst of 49 classes"


def test_saved_and_loaded_is_the_same(tmp_path: Path) -> None:
    for number, results in enumerate((some_results(failures={7: 'line\nbreak, "quote"'}), epic_results())):
        folder = tmp_path / str(number)
        results.save(folder)
        again = Results.load(folder)
        assert again.header == results.header
        assert summarise(again) == summarise(results)
        assert json.dumps(summarise(again)) == json.dumps(summarise(results))  # tasks in the same order, too
        assert (again.ids, again.paths, again.failures) == (results.ids, results.paths, results.failures)
        for task in results.tasks:
            np.testing.assert_array_equal(again.scores[task], results.scores[task])
            np.testing.assert_array_equal(again.labels[task], results.labels[task])


def test_the_csv_says_the_same(tmp_path: Path) -> None:
    results = some_results(failures={7: 'line\nbreak, "quote"'})
    results.save(tmp_path)
    rows = list(csv.DictReader(io.StringIO((tmp_path / "results.csv").read_text())))
    right = sum(int(row["right"]) for row in rows)
    assert right / 30 == pytest.approx(summarise(results)["tasks"]["class"]["all"]["top1"])
    assert rows[7]["status"] == "failed"
    assert rows[7]["reason"] == 'line\nbreak, "quote"'
    assert rows[7]["label_name"] == "class 1"
    assert rows[8]["prediction_name"] == f"class {rows[8]['prediction']}"


def test_a_file_name_that_is_no_utf8_survives(tmp_path: Path) -> None:
    odd = "clip-\udcff.mp4"
    results = some_results()
    named = Results(results.header, (odd, *results.ids[1:]), results.paths, results.labels, results.scores, {})
    named.save(tmp_path)
    assert Results.load(tmp_path).ids[0] == odd
    assert b"clip-\xff.mp4" in (tmp_path / "results.csv").read_bytes()


def test_tables_files_and_pictures(tmp_path: Path) -> None:
    results = epic_results(failures={2: "gone"})
    summary = write_reports(results, tmp_path)
    assert json.loads((tmp_path / "summary.json").read_text()) == summary
    table = list(csv.reader((tmp_path / "confusion-verb.csv").open()))
    assert [[int(cell) for cell in row[1:]] for row in table[1:]] == confusion(results, "verb").tolist()
    console = Console(file=io.StringIO(), width=100)
    print_summary(summary, console, show=3)
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert "action: all videos, failed ones wrong" in text
    assert f"{100 * summary['tasks']['action']['readable']['top1']:.2f}" in text
    assert "1 of 40 videos could not be read" in text
    names = {file.name for file in draw_pictures(results, tmp_path)}
    expected = {f"{kind}-{task}.png" for kind in ("confusion", "reliability", "views") for task in ("verb", "noun")}
    assert names == expected
    assert all((tmp_path / name).stat().st_size > 1000 for name in names)


def test_intervals_are_those_of_the_counts() -> None:
    """Failed videos are wrong under `all` and absent under `readable`; classes have their own."""
    results = some_results(failures={3: "gone", 7: "gone"})
    found = summarise(results)["tasks"]["class"]
    labels, scores = results.labels["class"], results.averaged("class")
    for which, rows in (("all", range(len(results))), ("readable", np.flatnonzero(results.readable))):
        right = [i not in results.failures and bool(scores[i].argmax() == labels[i]) for i in rows]
        sure = found["intervals"][which]
        assert (sure["top1"]["correct"], sure["top1"]["videos"]) == (sum(right), len(right))
        assert (sure["top1"]["low"], sure["top1"]["high"]) == wilson(sum(right), len(right))
        by_class = [[r for i, r in zip(rows, right, strict=True) if labels[i] == k] for k in range(scores.shape[1])]
        wanted = mean_of_proportions([sum(of) for of in by_class], [len(of) for of in by_class])
        assert (sure["mean_class"]["low"], sure["mean_class"]["high"]) == pytest.approx(wanted)
        if which == "all":
            assert [(one["low"], one["high"]) for one in found["classes"]] == [
                wilson(sum(of), len(of)) for of in by_class
            ]


def test_map_has_an_interval() -> None:
    rng = np.random.default_rng(0)
    targets = rng.random((30, 3)) < 0.5
    scores = (0.5 * rng.random((30, 1, 1, 3)) + 0.3 * targets[:, None, None]).astype(np.float32)
    found = summarise(made_results({"class": scores}, {"class": targets}))["tasks"]["class"]
    sure = found["intervals"]["all"]["map"]
    assert sure["low"] < found["all"]["map"] < sure["high"]
