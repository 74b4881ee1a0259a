"""Frames in memory are taken right, or refused with what is accepted; nothing is guessed."""

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from motionformer.inference import FeatureExtractor, Predictor
from motionformer.models import Motionformer
from motionformer.video import open_video

Maker = Callable[[torch.Tensor], Any]


@pytest.fixture(scope="module")
def frames(clip: Path) -> torch.Tensor:
    with open_video(clip) as video:
        return video.read(range(40))


def as_images(frames: torch.Tensor) -> list[Any]:
    image = pytest.importorskip("PIL.Image")
    return [image.fromarray(frame.numpy()) for frame in frames]


def read_only(frames: torch.Tensor) -> np.ndarray:
    array = frames.numpy().copy()
    array.setflags(write=False)
    return array


RIGHT: dict[str, Maker] = {
    "tensor": lambda frames: frames,
    "array": lambda frames: frames.numpy(),
    "read-only array": read_only,
    "turned array": lambda frames: np.ascontiguousarray(frames.numpy()[::-1])[::-1],
    "list of arrays": lambda frames: list(frames.numpy()),
    "list of tensors": list,
    "tuple of tensors": tuple,
    "images": as_images,
}


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("kind", list(RIGHT))
def test_every_kind_of_frames_is_the_file(kind: str, model: Motionformer, clip: Path, frames: torch.Tensor) -> None:
    predictor, video = Predictor(model), RIGHT[kind](frames)
    found = predictor(video, fps=30.0)
    np.testing.assert_array_equal(found.scores["class"], predictor(clip).scores["class"])
    assert found.facts == predictor(clip).facts
    for options in ({}, {"segments": 0.4}):
        extractor = FeatureExtractor(model, **options)
        in_memory, of_file = extractor(video, fps=30.0), extractor(clip)
        np.testing.assert_array_equal(in_memory.values, of_file.values)
        np.testing.assert_allclose(in_memory.times, of_file.times)


WRONG: dict[str, tuple[Maker, type[Exception], str]] = {
    "floats of 0 to 1": (lambda f: f / 255, ValueError, r"not float32.*\(frames \* 255\)"),
    "floats of 0 to 255": (lambda f: f.numpy().astype(np.float64), ValueError, "not float64"),
    "integers": (lambda f: f.int(), ValueError, "not int32"),
    "channels first": (lambda f: f.permute(0, 3, 1, 2), ValueError, r"permute\(0, 2, 3, 1\)"),
    "channels before time": (lambda f: f.permute(3, 0, 1, 2), ValueError, r"permute\(1, 2, 3, 0\)"),
    "batch": (lambda f: f[None].repeat(2, 1, 1, 1, 1), ValueError, "one video at a time.* each of its 2"),
    "one image": (lambda f: f[0], ValueError, r"not \[64, 96, 3\]"),
    "grey": (lambda f: f[..., 0], ValueError, r"not \[40, 64, 96\]"),
    "alpha": (lambda f: torch.cat((f, f[..., :1]), -1), ValueError, r"not \[40, 64, 96, 4\]"),
    "none": (lambda f: f[:0], ValueError, r"not \[0, 64, 96, 3\]"),
    "grey images": (lambda f: [i.convert("L") for i in as_images(f)], ValueError, r'image.convert\("RGB"\)'),
    "two sizes": (lambda f: [f[0].numpy(), f[1, 1:].numpy()], ValueError, "have one size"),
    "lists of numbers": (lambda f: [1, 2, 3], TypeError, "not int"),
    "paths and frames": (lambda f: ["a.mp4", f[0].numpy()], TypeError, "a path, not numpy.ndarray"),
    "a file in memory": (lambda f: io.BytesIO(b"video"), TypeError, "not _io.BytesIO"),
    "bytes": (lambda f: b"video", TypeError, "not bytes"),
    "a mapping": (lambda f: {"video": "a.mp4"}, TypeError, "not dict"),
    "nothing": (lambda f: None, TypeError, "not NoneType"),
    "strings": (lambda f: np.array(["a.mp4", "b.mp4"]), ValueError, "not an array of <U5"),
}


@pytest.mark.parametrize("kind", list(WRONG))
def test_what_is_no_video_is_refused_at_once(kind: str, model: Motionformer, frames: torch.Tensor) -> None:
    make, error, message = WRONG[kind]
    with pytest.raises(error, match=message) as caught:
        Predictor(model)(make(frames))
    assert "[t H W 3]" in str(caught.value) or "one size" in str(caught.value)
    with pytest.raises(error):
        FeatureExtractor(model)(make(frames))


def test_an_open_file_is_refused(model: Motionformer, clip: Path) -> None:
    with clip.open("rb") as file, pytest.raises(TypeError, match=r"not _io.BufferedReader. Write .* give its path"):
        Predictor(model)(file)


def test_paths_are_still_paths(model: Motionformer, clip: Path) -> None:
    predictor = Predictor(model)
    label = predictor(clip).label
    assert [one.label for one in predictor([clip, str(clip)])] == [label, label]
    assert [one.label for one in predictor(path for path in (clip,))] == [label]
    assert list(predictor([])) == []
    with pytest.raises(TypeError, match="each is a path, not int"):
        next(iter(predictor(number for number in (1,))))


def test_a_rate_that_would_be_ignored_is_refused(model: Motionformer, clip: Path, frames: torch.Tensor) -> None:
    for call in (Predictor(model), FeatureExtractor(model)):
        with pytest.raises(ValueError, match="a file has its own rate"):
            call(clip, fps=10.0)
        for wrong in (0.0, -1.0, float("nan"), float("inf")):
            with pytest.raises(ValueError, match="must be a positive number of frames per second"):
                call(frames, fps=wrong)


def test_frames_of_a_stream_are_checked_too(model: Motionformer, frames: torch.Tensor) -> None:
    with pytest.raises(ValueError, match="not float32"):
        next(Predictor(model).stream(iter(frames / 255), 30.0))
    assert len(list(Predictor(model).stream(iter(frames.numpy()), 30.0))) > 1


def test_clips_to_encode_are_floats(model: Motionformer) -> None:
    with pytest.raises(ValueError, match=r"normalised floats \[b 3 t H W\]; not uint8 \[1, 3, 4, 16, 16\]"):
        FeatureExtractor(model).encode(torch.zeros(1, 3, 4, 16, 16, dtype=torch.uint8))
