"""Clips backwards: the frames turned round and nothing else; shares, mapped classes, files, errors."""

import json
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from motionformer import load_model
from motionformer.cli import app
from motionformer.data.motion import MotionBenchmark, write_videos
from motionformer.errors import EvaluationError
from motionformer.inference import MotionVideos, ReversedVideos, compare_reversed, evaluate, open_source
from motionformer.inference.reversal import describe_reversed, parse_pairs
from motionformer.models.motionformer import Motionformer

PAIRS = {"right": "left", "up": "down", "up-right": "down-left", "up-left": "down-right"}


@pytest.fixture(scope="module")
def model() -> Motionformer:
    return load_model("motion-tiny")


@pytest.fixture(scope="module")
def source(model: Motionformer) -> MotionVideos:
    return MotionVideos(MotionBenchmark("easy", "test", 16), model.config.input)


def test_frames_are_turned_round_and_labels_follow_the_pairs(source: MotionVideos) -> None:
    turned = ReversedVideos(source, {"left": "right"})
    assert torch.equal(turned.read(3), source.read(3).flip(2))  # type: ignore[union-attr]
    labels = [(a.label, b.label) for a, b in zip(source.entries, turned.entries, strict=True)]
    names = [tuple(source.class_names[label] for label in pair if isinstance(label, int)) for pair in labels]
    assert ("right", "left") in names
    assert ("left", "right") in names
    assert all(a == b for a, b in names if a not in ("left", "right"))
    assert turned.protocol()["reversed"] is True


def test_a_model_of_motion_gives_a_reversed_clip_the_opposite(model: Motionformer, source: MotionVideos) -> None:
    forwards = evaluate(model, source, batch_size=16)
    plain = compare_reversed(forwards, evaluate(model, ReversedVideos(source), batch_size=16))
    assert (plain["same"]["correct"], plain["same"]["videos"]) == (0, 16)
    assert (plain["top1"]["share"], plain["top1_reversed"]["share"]) == (1.0, 0.0)
    paired = compare_reversed(forwards, evaluate(model, ReversedVideos(source, PAIRS), batch_size=16))
    assert paired["top1_reversed"]["share"] == 1.0
    assert {one["class"]: one["becomes"] for one in paired["classes"]}["up-left"] == "down-right"
    assert paired["reverse_of"]["left"] == "right"
    lines = describe_reversed(paired, show=2)
    assert lines[0].startswith("reversed clips: 0.0 % (95 % CI 0.0–")
    assert "down ↔ up" in lines[1]
    assert lines[-1] == "  … and 6 more"


def test_a_model_without_time_keeps_its_predictions(model: Motionformer, source: MotionVideos) -> None:
    """The share of clips that keep their class is that of their own frames, not of another clip's."""

    class Still(torch.nn.Module):
        config = model.config

        def forward(self, clip: torch.Tensor) -> torch.Tensor:
            return model(clip.mean(dim=2, keepdim=True).expand_as(clip))

    found = compare_reversed(*(evaluate(Still(), one, batch_size=16) for one in (source, ReversedVideos(source))))
    assert found["same"]["share"] == 1.0
    assert found["top1"] == found["top1_reversed"]


def test_files_that_cannot_be_read_are_wrong_and_no_prediction(model: Motionformer, tmp_path: Path) -> None:
    write_videos(tmp_path / "clips", "easy", 8, size=48)
    (tmp_path / "clips" / "up" / "00002.mp4").write_bytes(b"no video")
    source = open_source(tmp_path / "clips", model.config.input, class_names=model.config.labels)
    forwards, backwards = (evaluate(model, one, show_progress=False) for one in (source, ReversedVideos(source)))
    found = compare_reversed(forwards, backwards)
    assert (found["same"]["videos"], found["top1"]["videos"], found["top1_reversed"]["videos"]) == (7, 8, 8)
    assert next(one for one in found["classes"] if one["class"] == "up")["becomes"] is None
    with pytest.raises(EvaluationError, match="not of one model on the same videos"):
        compare_reversed(forwards, evaluate(model, MotionVideos(MotionBenchmark("easy", "val", 8), model.config.input)))


def test_the_command_writes_it_everywhere(tmp_path: Path) -> None:
    words = ["evaluate", "motion-tiny", "motion:easy:8", "--num-workers", "0", "--reversed", "--output", str(tmp_path)]
    done = CliRunner().invoke(app, [*words, "--reverse-of", "left=right", "--json"], catch_exceptions=False)
    summary = json.loads(done.stdout)
    assert summary["reversed"]["top1_reversed"]["correct"] == 2  # left and right
    assert json.loads((tmp_path / "summary.json").read_text())["reversed"] == summary["reversed"]
    assert (tmp_path / "reversed" / "results.csv").exists()
    again = CliRunner().invoke(app, [*words, "--reverse-of", "left=right"], catch_exceptions=False)
    assert "reversed clips: 0.0 %" in again.output
    with pytest.raises(EvaluationError, match="another"):  # the reversed results there are of other pairs
        CliRunner().invoke(app, words, catch_exceptions=False)
    assert CliRunner().invoke(app, [*words[:5], "--reverse-of", "left=right"]).exit_code == 2


def test_pairs_that_make_no_sense(source: MotionVideos) -> None:
    with pytest.raises(EvaluationError, match="no class 'sideways'; there are right, up-right"):
        ReversedVideos(source, {"left": "sideways"})
    with pytest.raises(EvaluationError, match="'left' has two reverses, 'right' and 'up'"):
        ReversedVideos(source, {"left": "right", "up": "left"})
    with pytest.raises(EvaluationError, match="as in open=close"):
        parse_pairs(["left"])
