"""`motionformer lra`, as a user types it."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from motionformer.cli import app
from motionformer.errors import AnnotationError, CheckpointError, MotionformerError
from motionformer.experiments.lra.listops import _read_tsv

runner = CliRunner(env={"COLUMNS": "200", "TERM": "dumb"})
SMALL = ["--train", "8", "--dev", "4", "--test", "4"]


def test_make_then_train_then_train_again(tmp_path: Path) -> None:
    made = runner.invoke(app, ["lra", "make", "listops", str(tmp_path / "data"), *SMALL])
    assert made.exit_code == 0, made.output
    assert "8 train, 4 val, 4 test examples" in made.output
    words = ["lra", "train", "listops", "--kernel", "orthoformer-4", "--data", str(tmp_path / "data")]
    words += ["--steps", "2", "--batch-size", "2", "--every", "1", "--output", str(tmp_path / "run")]
    first = runner.invoke(app, words)
    assert first.exit_code == 0, first.output
    assert "step 2" in first.output
    assert "of test" in first.output
    again = runner.invoke(app, [*words, "--json"])
    assert again.exit_code == 0, again.output
    result = json.loads(again.stdout)
    assert result["run"]["steps"] == 2
    assert list(result) == ["run", "dev_accuracy", "test_accuracy", "best_step", "seconds"]
    assert 0 <= result["test_accuracy"] <= 1


def test_make_shorter_expressions(tmp_path: Path) -> None:
    result = runner.invoke(app, ["lra", "make", "listops", str(tmp_path), *SMALL, "--lengths", "60", "120"])
    assert result.exit_code == 0, result.output
    assert all(60 < len(example.texts[0]) < 120 for example in _read_tsv(tmp_path / "basic_train.tsv"))


def test_make_pathfinder(tmp_path: Path) -> None:
    result = runner.invoke(app, ["lra", "make", "pathfinder", str(tmp_path), *SMALL])
    assert result.exit_code == 0, result.output
    assert sorted(file.name for file in tmp_path.iterdir()) == ["test.npz", "train.npz", "val.npz"]


@pytest.mark.parametrize("task", ["listops", "pathfinder"])
def test_make_writes_over_nothing(task: str, tmp_path: Path) -> None:
    """Nor does it leave one split of one set beside two of another."""
    assert runner.invoke(app, ["lra", "make", task, str(tmp_path), *SMALL]).exit_code == 0
    before = {file: file.read_bytes() for file in tmp_path.iterdir()}
    again = runner.invoke(app, ["lra", "make", task, str(tmp_path), *SMALL, "--seed", "5"])
    assert again.exit_code == 2
    assert "already" in again.output
    assert {file: file.read_bytes() for file in tmp_path.iterdir()} == before


def test_costs() -> None:
    result = runner.invoke(app, ["lra", "costs", "--no-memory", "--json"])
    assert result.exit_code == 0, result.output
    found = {row["kernel"]: row["gmacs"] for row in json.loads(result.stdout)}
    assert round(found["orthoformer-64"], 2) == 0.24
    table = runner.invoke(app, ["lra", "costs", "--no-memory"])
    assert "1.21" in table.output


def test_memory_off_linux_is_one_message(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("motionformer.models.costs.PEAK_RESET", tmp_path / "clear_refs")
    result = runner.invoke(app, ["lra", "costs"])
    assert isinstance(result.exception, MotionformerError)
    assert "on Linux only" in str(result.exception)
    assert "--no-memory" in str(result.exception)
    assert runner.invoke(app, ["lra", "costs", "--no-memory"]).exit_code == 0


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["train", "listops", "--kernel", "linformer-3"], "linformer-3"),
        (["train", "image", "--kernel", "exact"], "not generated"),
        (["train", "listops", "--kernel", "exact", "--device", "abacus"], "'abacus' cannot be used here"),
        (["train", "listops", "--kernel", "exact", "--device", "cuda:99"], "'cuda:99' cannot be used here"),
        (["train", "chess", "--kernel", "exact"], "chess"),
        (["make", "text", "out"], "text"),
        (["make", "listops", "out", "--lengths", "10", "20"], "50 or more"),
        (["make", "pathfinder", "out", "--lengths", "100", "200"], "only ListOps has lengths"),
    ],
)
def test_wrong_usage(words: list[str], reason: str) -> None:
    result = runner.invoke(app, ["lra", *words])
    assert result.exit_code == 2
    assert reason in result.output


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (["make", "listops"], "OUT"),
        (["make", "pathfinder"], "OUT"),
        (["train", "listops", "--kernel", "exact", "--output"], "--output"),
    ],
)
def test_a_file_where_a_folder_goes(tmp_path: Path, words: list[str], hint: str) -> None:
    (tmp_path / "there").write_text("mine")
    for folder in (tmp_path / "there", tmp_path / "there/below"):
        result = runner.invoke(app, ["lra", *words, str(folder)])
        assert result.exit_code == 2
        assert f"Invalid value for {hint}" in result.output
        assert "cannot be a folder" in result.output
    assert (tmp_path / "there").read_text() == "mine"


def test_missing_data_is_one_message(tmp_path: Path) -> None:
    result = runner.invoke(app, ["lra", "train", "image", "--kernel", "exact", "--data", str(tmp_path)])
    assert isinstance(result.exception, AnnotationError)
    assert "data_batch" in str(result.exception)


def test_other_data_in_the_same_folder_are_refused(tmp_path: Path) -> None:
    for name, seed in (("one", "0"), ("other", "1")):
        words = ["lra", "make", "listops", str(tmp_path / name), *SMALL, "--lengths", "50", "100", "--seed", seed]
        assert runner.invoke(app, words).exit_code == 0
    words = ["lra", "train", "listops", "--kernel", "orthoformer-4", "--steps", "1", "--batch-size", "2"]
    words += ["--output", str(tmp_path / "run"), "--data"]
    assert runner.invoke(app, [*words, str(tmp_path / "one")]).exit_code == 0
    before = (tmp_path / "run/result.json").read_bytes()
    refused = runner.invoke(app, [*words, str(tmp_path / "other")])
    assert isinstance(refused.exception, CheckpointError)
    assert "test data (.4 examples" in str(refused.exception).replace("'", ".")
    assert (tmp_path / "run/result.json").read_bytes() == before
    (tmp_path / "one").rename(tmp_path / "moved")
    assert runner.invoke(app, [*words, str(tmp_path / "moved")]).exit_code == 0
