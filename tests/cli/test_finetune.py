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
from motionformer.inference.metrics import wilson
from motionformer.training.recipe import load_recipe

SMALL = ["--epochs", "1", "--size", "32", "--batch-size", "16", "model.changes.depth=1", "data.workers=0"]


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
    assert result["kept"] == result["last"]
    sure = result["confidence"]["top1"]
    assert (sure["videos"], sure["correct"]) == (8, round(8 * result["kept"]["top1"]))
    assert (sure["low"], sure["high"]) == wilson(sure["correct"], 8)
    refuse_training_videos(result["model"], videos, tmp_path / "run")
    assert load_recipe(tmp_path / "run" / "recipe.yaml").to_dict() == result["recipe"]
    assert (tmp_path / "run" / "train.csv").read_text().count("\n") == 33  # four of five a class, and a first line


def refuse_training_videos(model: str, videos: Path, run: Path) -> None:
    """The test split of the folder is not what was held out: it is refused, and what was held out is scored."""
    quick = ["--workers", "0", "--json"]
    with pytest.raises(MotionformerError, match=r"\d+ of \d+ videos are training videos .* --allow-overlap") as refused:
        CliRunner().invoke(app, ["evaluate", model, str(videos), "--split", "test", *quick], catch_exceptions=False)
    assert "val.csv" in str(refused.value)
    asked = ["evaluate", model, str(videos), "--allow-overlap", *quick]
    said = json.loads(CliRunner().invoke(app, asked, catch_exceptions=False).stdout)["training_overlap"]
    assert (said["known"], said["videos"]) == (True, 32)
    held_out = ["evaluate", model, str(run / "val.csv"), *quick]
    said = json.loads(CliRunner().invoke(app, held_out, catch_exceptions=False).stdout)
    assert said["training_overlap"]["videos"] == 0
    top1 = said["tasks"]["class"]["intervals"]["all"]["top1"]
    assert (top1["low"], top1["high"]) == wilson(top1["correct"], top1["videos"])


def test_a_plan_is_only_said(videos: Path, tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["finetune", str(videos), "--output", str(tmp_path / "run"), *SMALL, "--plan"])
    assert done.exit_code == 0, done.output
    twins = "left ↔ right"
    for words in ("32 for training, 8 held out", "trajectory attention", "random weights, seed 0", "mirrored", twins):
        assert words in done.output
    assert not (tmp_path / "run").exists()


def test_a_plan_as_json(videos: Path, tmp_path: Path) -> None:
    words = ["finetune", str(videos), "--output", str(tmp_path / "run"), *SMALL, "--plan", "--json"]
    done = CliRunner().invoke(app, words)
    said = json.loads(done.stdout)
    assert said["videos"] == {"train": 32, "val": 8}
    assert said["mirrored"] == "down-left ↔ down-right, left ↔ right, up-left ↔ up-right, others as themselves"
    assert said["steps"] == 2
    assert said["notes"] == [
        "only 2 optimiser steps (the default is 60 or more): use more epochs, or a smaller batch"
    ]  # one epoch was asked for
    assert not (tmp_path / "run").exists()


def test_names_are_printed_as_they_are(videos: Path, tmp_path: Path) -> None:
    """Brackets and colons are no markup; what cannot be read, and a file on both sides, are told at the end."""
    (videos / "up").rename(videos / "[bold]")
    paths = sorted(videos.rglob("*.mp4"))
    (broken := paths[0]).write_bytes(b"nothing")
    rows = [f"{path},{path.parent.name},0,1" for path in paths if path.parent.name not in ("left", "down")]
    rows += [f"{path},wave [/b] :dog:,0,1" for path in sorted((videos / "down").iterdir())]
    rows += [f"{next((videos / 'left').iterdir())},left,0,{end / 10}" for end in range(1, 6)]
    (tmp_path / "[list].csv").write_text("\n".join(["path,label,start,end", *rows]))
    words = ["finetune", str(tmp_path / "[list].csv"), "--output", str(tmp_path / "[draft]"), *SMALL]
    runner = CliRunner(env={"COLUMNS": "1000", "TERM": "dumb"})
    done = runner.invoke(app, [*words, "data.max_failed_share=0.5"], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    for name in ("[list]", "[bold]", "wave [/b] :dog:"):
        assert name in done.output
    plan, result = done.output.split("videos correct")
    assert f"model: {tmp_path}/[draft]/model" in result
    assert "1 of" in result
    assert str(broken) in result
    assert "the metrics are too good" in plan
    assert "the metrics are too good" in result


def test_videos_that_are_not_there(videos: Path, tmp_path: Path) -> None:
    next((videos / "up").iterdir()).unlink()
    (videos / "up" / "dead.mp4").symlink_to("nowhere")
    words = ["finetune", str(videos), "--output", str(tmp_path / "run"), *SMALL, "--plan"]
    with pytest.raises(MotionformerError, match=r"dead\.mp4 .*`--missing drop`"):
        CliRunner().invoke(app, words, catch_exceptions=False)
    done = CliRunner().invoke(app, [*words, "--missing", "drop"], catch_exceptions=False)
    assert "31 for training, 8 held out" in done.output
    assert "1 of 40 videos are not there" in done.output


def test_wrong_options(videos: Path, tmp_path: Path) -> None:
    assert CliRunner().invoke(app, ["finetune", str(tmp_path / "none")]).exit_code == 2
    with pytest.raises(MotionformerError, match=r"model\.train .tail. must be all, head, last:N, adapter, lora:RANK"):
        CliRunner().invoke(app, ["finetune", str(videos), "--train", "tail"], catch_exceptions=False)
    with pytest.raises(MotionformerError, match="lrr"):
        CliRunner().invoke(app, ["finetune", str(videos), "optimiser.lrr=1"], catch_exceptions=False)
