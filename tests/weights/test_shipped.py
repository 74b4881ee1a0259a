"""The weights that come with the package: there, small, and as good as they are said to be."""

from pathlib import Path

import pytest
import torch

from motionformer import load_model
from motionformer.data.motion import CLASSES, MotionBenchmark, write_videos
from motionformer.inference import evaluate, open_source, summarise
from motionformer.inference.scorer import SampleBy
from motionformer.video.transforms import eval_transform
from motionformer.weights.load import SHIPPED, ship


def test_motion_tiny_loads_by_name_and_knows_directions() -> None:
    model = load_model("motion-tiny")
    assert model.config.labels == CLASSES
    assert model.prefix.dtype == torch.float32  # stored in half precision, used in full
    prepare, clips = eval_transform(model.config.input), list(MotionBenchmark("easy", "test", 64))
    with torch.no_grad():
        found = model(torch.stack([prepare(clip.frames) for clip in clips])).argmax(dim=1)
    right = found == torch.tensor([clip.label for clip in clips])
    assert right.float().mean() > 0.9


def test_storing_halves_the_size_and_keeps_the_answer(tmp_path, monkeypatch) -> None:  # type: ignore[no-untyped-def]
    model = load_model("motion-tiny")
    model.save_pretrained(tmp_path / "trained")
    monkeypatch.setitem(SHIPPED, "motion-tiny", tmp_path / "stored")
    stored = ship(tmp_path / "trained")
    sizes = [(folder / "model.safetensors").stat().st_size for folder in (tmp_path / "trained", stored)]
    assert sizes[1] < 0.55 * sizes[0]
    again = load_model(stored)
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), again.parameters(), strict=True))


def test_the_packages_own_videos_are_at_the_rate_that_models_expect(tmp_path: Path) -> None:
    """At 8 frames a second, a clip sampled by time is 0, 0, 0, 0, 1, 1, 1, 1."""
    model = load_model("motion-tiny")
    write_videos(tmp_path / "usual", "easy", 32, split="test")
    write_videos(tmp_path / "slow", "easy", 32, split="test", fps=8)

    def top1(folder: str, sample_by: SampleBy | None = None) -> tuple[float, int]:
        source = open_source(tmp_path / folder, model.config.input, class_names=CLASSES, sample_by=sample_by)
        found = summarise(evaluate(model, source, show_progress=False))
        return found["tasks"]["class"]["all"]["top1"], found["read"]["fewest_distinct_frames"]

    assert top1("usual") == (pytest.approx(1.0, abs=0.1), 8)
    assert top1("slow") == (pytest.approx(0.15, abs=0.15), 2)
    assert top1("slow", "frames") == top1("usual")
