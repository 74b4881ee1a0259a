"""`motionformer finetune`: videos in, a model that loads out; the written recipe is the same run."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

from motionformer import load_model
from motionformer.cli import app
from motionformer.data.motion import write_videos
from motionformer.errors import MotionformerError
from motionformer.training.recipe import load_recipe

SMALL = ["--epochs", "1", "--size", "32", "--batch", "16", "model.changes.depth=1", "data.workers=0"]


@pytest.fixture
def videos(tmp_path: Path) -> Path:
    write_videos(tmp_path / "moves", "easy", 40, frames=8, size=32)
    return tmp_path / "moves"


def test_videos_in_model_out(videos: Path, tmp_path: Path, run_python: Callable[[str], str]) -> None:
    arguments = ["motionformer", "finetune", str(videos), "--output", str(tmp_path / "run"), *SMALL, "--json"]
    result = json.loads(run_python(f"import sys; sys.argv = {arguments}; from motionformer.cli import main; main()"))
    model = load_model(result["model"])
    assert model.config.labels == tuple(sorted(folder.name for folder in videos.iterdir() if folder.is_dir()))
    assert 0.0 <= result["last"]["top1"] <= 1.0
    assert load_recipe(tmp_path / "run" / "recipe.yaml").to_dict() == result["recipe"]
    assert (tmp_path / "run" / "train.csv").read_text().count("\n") == 33  # four of five a class, and a first line


def test_a_plan_is_only_said(videos: Path, tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["finetune", str(videos), "--output", str(tmp_path / "run"), *SMALL, "--plan"])
    assert done.exit_code == 0, done.output
    for words in ("32 to learn from, 8 held out", "trajectory attention", "random weights, seed 0"):
        assert words in done.output
    assert not (tmp_path / "run").exists()


def test_a_plan_as_json(videos: Path, tmp_path: Path) -> None:
    words = ["finetune", str(videos), "--output", str(tmp_path / "run"), *SMALL, "--plan", "--json"]
    done = CliRunner().invoke(app, words)
    assert json.loads(done.stdout)["videos"] == {"train": 32, "val": 8}
    assert not (tmp_path / "run").exists()


def test_wrong_wishes(videos: Path, tmp_path: Path) -> None:
    assert CliRunner().invoke(app, ["finetune", str(tmp_path / "none")]).exit_code == 2
    with pytest.raises(MotionformerError, match=r"model\.train is all, head or last:N"):
        CliRunner().invoke(app, ["finetune", str(videos), "--train", "tail"], catch_exceptions=False)
    with pytest.raises(MotionformerError, match="lrr"):
        CliRunner().invoke(app, ["finetune", str(videos), "optimiser.lrr=1"], catch_exceptions=False)
