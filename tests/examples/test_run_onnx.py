"""The example runs where neither this package nor PyTorch can be imported, and predicts what the model predicts."""

import json
import subprocess
import sys
from copy import deepcopy
from dataclasses import asdict, replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import onnx
import pytest
import torch

from motionformer import create_model
from motionformer.data.motion import CLASSES, write_videos
from motionformer.export import export_model
from motionformer.inference import Predictor
from motionformer.models import InputSpec, Motionformer
from motionformer.video import open_video
from motionformer.video.sample import ClipPlan, segment_indices, strided_clip, view_starts
from motionformer.video.transforms import eval_transform
from tests.video.numbered import write_video

EXAMPLE = Path(__file__).parents[2] / "examples/run_onnx.py"
ALONE = """
import runpy, sys
for name in ("motionformer", "torch", "einops"):
    sys.modules[name] = None  # importing it is an error now
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def classify(model: Path, video: Path) -> subprocess.CompletedProcess[str]:
    words = [sys.executable, "-c", ALONE, str(EXAMPLE), str(model), str(video), "--top", "8"]
    return subprocess.run(words, capture_output=True, text=True)


@pytest.fixture(scope="module")
def videos(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("videos")
    write_videos(folder, "easy", 8, size=48, frames=20)
    return sorted(folder.rglob("*.mp4"))


@pytest.fixture(scope="module")
def model() -> Motionformer:
    torch.manual_seed(0)
    made = create_model("joint-tiny", depth=1, labels=CLASSES).eval()
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.add_(torch.randn_like(parameter), alpha=0.1)
    spec = replace(made.config.input, stride=2, channels="BGR", mean=(0.4, 0.5, 0.6))
    made.config = replace(made.config, input=spec)
    return made


@pytest.fixture(scope="module")
def exported(model: Motionformer, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return export_model(model, tmp_path_factory.mktemp("exported") / "model.onnx").path


@pytest.mark.parametrize("sampling", ["stride", "segments"])
def test_the_same_scores_as_the_model(
    sampling: str, model: Motionformer, exported: Path, videos: list[Path], tmp_path: Path
) -> None:
    """Frames are as large as the clip: decoding and sampling are compared, nothing is resized."""
    spec = replace(model.config.input, sampling=sampling)
    done = classify(with_clip(exported, asdict(spec), tmp_path / "model.onnx"), videos[3])
    expected = dict(zip(CLASSES, predict(model, spec, videos[3]).tolist(), strict=True))
    assert max(expected.values()) - min(expected.values()) > 0.05
    assert scores(done) == pytest.approx(expected, abs=2e-3)


@pytest.mark.parametrize(
    "shape",
    [
        {"height": 90, "width": 160},
        {"height": 160, "width": 90},
        {"height": 96, "width": 96, "aspect": Fraction(16, 9)},
        {"height": 96, "width": 96, "aspect": Fraction(1, 2)},
        {"height": 90, "width": 160, "rotation": 90.0},
        {"height": 90, "width": 160, "rotation": -90.0, "aspect": Fraction(4, 3)},
    ],
)
def test_the_same_scores_as_the_predictor(
    shape: dict[str, Any], model: Motionformer, exported: Path, tmp_path: Path
) -> None:
    """Wide, tall, stored in pixels that are not square, stored on their side."""
    video = write_video(tmp_path / "clip.mp4", num_frames=20, **shape)
    assert scores(classify(exported, video)) == pytest.approx(expect(model, video), abs=2e-3)


def test_classes_by_themselves(model: Motionformer, videos: list[Path], tmp_path: Path) -> None:
    """A model for videos of several classes is scored by the sigmoid."""
    several = deepcopy(model)
    several.config = replace(model.config, scoring="sigmoid")
    exported = export_model(several, tmp_path / "model.onnx").path
    assert scores(classify(exported, videos[3])) == pytest.approx(expect(several, videos[3]), abs=2e-3)


def test_a_file_that_is_no_video_is_an_error(exported: Path, tmp_path: Path) -> None:
    (tmp_path / "clip.mp4").write_text("not a video")
    done = classify(exported, tmp_path / "clip.mp4")
    assert done.returncode != 0
    assert "clip.mp4" in done.stderr


def scores(done: subprocess.CompletedProcess[str]) -> dict[str, float]:
    """By class, as the example printed them."""
    assert done.returncode == 0, done.stderr
    lines = [line.split() for line in done.stdout.splitlines()[1:]]
    return {label: float(score) for score, label in lines}


def expect(model: Motionformer, video: Path) -> dict[str, float]:
    """By class, as the package predicts them from one clip and one crop."""
    found = {guess.label: guess.score for guess in Predictor(model, views=1, crops=1)(video).top(8)}
    assert max(found.values()) - min(found.values()) > 0.05
    return found


def with_clip(source: Path, clip: dict[str, Any], target: Path) -> Path:
    """The same network for clips picked in another way."""
    network = onnx.load(source)
    next(p for p in network.metadata_props if p.key == "clip").value = json.dumps(clip)
    onnx.save(network, target)
    return target


def predict(model: Motionformer, spec: InputSpec, path: Path) -> torch.Tensor:
    with open_video(path) as video:
        facts = video.metadata
        plan = ClipPlan(spec.frames, spec.stride, spec.fps)
        start = view_starts(plan, facts.num_frames, facts.fps, 1)[0]
        strided = strided_clip(plan, facts.num_frames, facts.fps, start)
        segments = segment_indices(facts.num_frames, spec.frames)
        frames = video.read(segments if spec.sampling == "segments" else strided)
    with torch.no_grad():
        return model(eval_transform(spec)(frames)[None])[0].softmax(dim=-1)
