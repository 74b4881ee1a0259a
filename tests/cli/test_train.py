"""The command `train`, as a user runs it."""

import json
import re
import signal
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from motionformer.cli import app
from motionformer.data.motion import write_videos
from motionformer.training.module import TrainingModule
from tests.children import run_code
from tests.training.children import SMALL


@pytest.fixture
def recipe(tmp_path: Path) -> Path:
    file = tmp_path / "small.yaml"
    file.write_text(yaml.safe_dump({**SMALL, "epochs": 1, "output": str(tmp_path / "run")}), encoding="utf-8")
    return file


def run(*words: str) -> str:
    result = CliRunner().invoke(app, ["train", *words], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


def test_train_then_again(recipe: Path, tmp_path: Path) -> None:
    table = run(str(recipe), "seed=3", "--quiet")
    assert "run card" in table
    assert re.search(r"top1 [\d.]+ % \(95 %\s+CI|top1 [\d.]+ % \(95 % CI", table.replace("│", ""))
    assert "the weights of the last epoch" in table
    card = json.loads(run(str(recipe), "seed=3", "--json", "--quiet"))
    assert card["recipe"]["seed"] == 3
    assert (tmp_path / "run/model/model.safetensors").exists()


def test_names_are_printed_as_they_are_and_broken_videos_named(recipe: Path, tmp_path: Path) -> None:
    videos = tmp_path / "[videos]"
    write_videos(videos, "easy", 32, frames=6, size=32)
    broken = sorted(videos.rglob("*.mp4"))[3]
    broken.write_bytes(b"not a video")
    data = [f"data.train={videos}", f"data.val={videos}", "data.train_split=''", "data.val_split=''"]
    words = [str(recipe), *data, "data.max_failed_share=0.1", "augmentation.flip=0.5", f"output={tmp_path}/[draft]"]
    plan = run(*words, "--dry-run").replace("│", "").replace("\n", "").replace(" ", "")
    assert "[videos]" in plan
    assert "left↔right" in plan
    result = run(*words, "--quiet")
    assert "[draft]" in result.replace("│", "").replace("\n", "").replace(" ", "")  # long paths are folded
    for part in ("training", "validation"):
        assert f"{part}: 1 of 32 videos could not be read ({broken}" in result


@pytest.mark.parametrize(("step", "how"), [(1, "starts again"), (3, "resumes after step 2")])
def test_ctrl_c_says_how_to_go_on(recipe: Path, monkeypatch: pytest.MonkeyPatch, step: int, how: str) -> None:
    def stop(self: TrainingModule, loss: float, now: int, part: int) -> None:
        if now == step:
            signal.raise_signal(signal.SIGINT)

    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a process in the background ignores it
    try:
        with monkeypatch.context() as patch:
            patch.setattr(TrainingModule, "_log_loss", stop)
            stopped = CliRunner().invoke(app, ["train", str(recipe)])
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGINT, before)
    assert stopped.exit_code == 130
    assert f"run: interrupted. The same command {how}" in stopped.stderr
    assert "run card" in run(str(recipe), "--quiet")


def test_dry_run_and_print_write_nothing(recipe: Path, tmp_path: Path) -> None:
    assert "1 process × 4 at once × 2 accumulated" in run(str(recipe), "--dry-run")
    assert json.loads(run(str(recipe), "--dry-run", "--json"))["plan"]["total_steps"] == 4
    printed = yaml.safe_load(run(str(recipe), "optimiser.lr=3", "--print"))
    assert printed["optimiser"]["lr"] == 3
    assert printed["engine"]["keep"] == 2
    assert not (tmp_path / "run").exists()


def test_a_wrong_key_is_one_message(recipe: Path) -> None:
    done = run_code("from motionformer.cli import main; main()", "train", str(recipe), "optimiser.learning_rate=1")
    assert done.returncode == 1
    assert "learning_rate" in done.stderr
    assert "Traceback" not in done.stderr
