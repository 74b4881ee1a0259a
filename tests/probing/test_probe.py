"""Frozen features, heads and their choice, the model and the report."""

from motionformer import evaluate
from motionformer.probing import ProbeResult


def test_the_model_predicts_what_the_probe_scored(probed: ProbeResult) -> None:
    results = evaluate(str(probed.model), str(probed.folder / "val.csv"), show_progress=False)
    report = probed.report
    right = results.averaged("class").argmax(axis=1) == results.labels["class"]
    assert len(results) == report["test"]["videos"]
    assert int(right.sum()) == report["test"]["correct"]
    wrong = {results.paths[i]: float(results.averaged("class")[i].max()) for i in range(len(right)) if not right[i]}
    assert {one["path"] for one in report["wrong"]} == set(wrong)
    print(report["test"], report["cross_validation"], report["chosen"])
