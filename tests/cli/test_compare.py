"""`motionformer compare`, as a user types it."""

import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from motionformer.cli import app
from motionformer.errors import MotionformerError
from tests.inference.made import made_results, random_scores

runner = CliRunner(env={"COLUMNS": "200", "TERM": "dumb"})


@pytest.fixture
def two(tmp_path: Path) -> list[str]:
    """Results where B takes class 2 from A and loses class 0 to it."""
    labels = np.arange(40) % 4
    sure = np.eye(4, dtype=np.float32)
    a = sure[np.where(labels == 2, 3, labels)][:, None, None]
    b = sure[np.where(labels == 0, 1, labels)][:, None, None]
    for name, scores in (("a", a), ("b", b)):
        made_results({"class": scores}, {"class": labels}, model=name).save(tmp_path / name)
    return [str(tmp_path / "a"), str(tmp_path / "b")]


def test_gains_and_losses(two: list[str], tmp_path: Path) -> None:
    result = runner.invoke(app, ["compare", *two, "--csv", str(tmp_path / "changes.csv")])
    assert result.exit_code == 0, result.output
    lines = [line.split() for line in result.output.splitlines()]
    rows = [" ".join(line) for line in lines]
    assert "│ class 2 (10) │ 0.00 (0.0–27.8) │ 100.00 (72.2–100.0) │ +100.00 │" in rows
    assert "│ class 0 (10) │ 100.00 (72.2–100.0) │ 0.00 (0.0–27.8) │ -100.00 │" in rows
    interval = " ".join(next(line for line in lines if "confidence" in line))
    assert interval == "│ 95 % confidence interval │ 59.8–85.8 │ 59.8–85.8 │ -21.38 to +21.38 │"
    assert "right in both 20, in A alone 10, in B alone 10, in neither 0; McNemar's exact p = 1" in result.output
    text = (tmp_path / "changes.csv").read_text().splitlines()
    assert text[1] == "class 2,10,0.000000,1.000000,1.000000"
    assert text[4] == "class 0,10,1.000000,0.000000,-1.000000"


def test_json(two: list[str]) -> None:
    found = json.loads(runner.invoke(app, ["compare", *two, "--json"]).stdout)
    assert (found["a"], found["b"], found["videos"]) == ("a", "b", 40)
    assert [one["gain"] for one in found["classes"]] == [1, 0, 0, -1]
    assert found["intervals"]["gain"]["low"] == pytest.approx(-found["intervals"]["gain"]["high"])


def test_errors(two: list[str], tmp_path: Path) -> None:
    with pytest.raises(MotionformerError, match="no such results file"):
        runner.invoke(app, ["compare", two[0], str(tmp_path / "nothing")], catch_exceptions=False)
    table = Path(two[0]) / "results.csv"
    with pytest.raises(MotionformerError, match=r"csv: not a results file .* give the folder .* results\.npz"):
        runner.invoke(app, ["compare", two[0], str(table)], catch_exceptions=False)
    with pytest.raises(MotionformerError, match="no task 'verb'"):
        runner.invoke(app, ["compare", *two, "--task", "verb"], catch_exceptions=False)
    made_results({"class": random_scores(3, 1, 1, 5)}, {"class": [0, 1, 2]}).save(tmp_path / "c")
    with pytest.raises(MotionformerError, match="different classes"):
        runner.invoke(app, ["compare", two[0], str(tmp_path / "c")], catch_exceptions=False)
    assert runner.invoke(app, ["compare", two[0]]).exit_code == 2
