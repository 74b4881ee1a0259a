"""Frames in memory are taken right, or refused with what is accepted; nothing is guessed."""

import io
import threading
from collections.abc import Callable, Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import fsspec
import numpy as np
import pytest
import torch

from motionformer.data import Failure
from motionformer.errors import VideoError
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


class Decoder:
    """What is used of `torchcodec.decoders.VideoDecoder`."""

    def __init__(self, frames: torch.Tensor, order: str = "NCHW", **about: Any) -> None:
        self.frames = frames.movedim(-1, 1) if order == "NCHW" else frames
        self.metadata = SimpleNamespace(**{"num_frames": len(frames), "average_fps": 30.0, "codec": "h264", **about})
        self.read = 0

    def get_frames_at(self, indices: list[int]) -> SimpleNamespace:
        self.read += len(indices)
        return SimpleNamespace(data=self.frames[indices])


@pytest.fixture(scope="module")
def server(clip: Path) -> Iterator[str]:
    """The folder of the clip, over HTTP."""
    quiet = type("Quiet", (SimpleHTTPRequestHandler,), {"log_message": lambda *_: None})
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(quiet, directory=str(clip.parent))) as served:
        thread = threading.Thread(target=served.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{served.server_port}"
        served.shutdown()
        thread.join()


def test_every_form_of_a_file_is_the_file(model: Motionformer, clip: Path, frames: torch.Tensor, server: str) -> None:
    pytest.importorskip("aiohttp")
    with fsspec.open("memory://some/clip.mp4", "wb") as file:
        file.write(clip.read_bytes())
    forms: dict[str, tuple[Any, str]] = {
        "bytes": (clip.read_bytes(), ""),
        "in memory": ("memory://some/clip.mp4", "memory://some/clip.mp4"),
        "http": (f"{server}/clip.mp4", f"{server}/clip.mp4"),
        "row, not decoded": ({"video": {"path": "clip.mp4", "bytes": clip.read_bytes()}, "label": 1}, "clip.mp4"),
        "row with a path": ({"video": {"path": str(clip), "bytes": None}}, str(clip)),
        "row of paths": ({"video": str(clip)}, str(clip)),
        "column": ({"path": None, "bytes": clip.read_bytes()}, ""),
        "decoder": (Decoder(frames), ""),
        "decoder, channels last": (Decoder(frames, "NHWC"), ""),
        "row, decoded": ({"label": 1, "video": Decoder(frames)}, ""),
        "row of frames": ({"video": frames.numpy()}, ""),
    }
    predictor, extractor = Predictor(model), FeatureExtractor(model, segments=0.4)
    wanted, tokens = predictor(clip), extractor(clip)
    for kind, (video, name) in forms.items():
        found = predictor(video)
        np.testing.assert_array_equal(found.views["class"], wanted.views["class"], err_msg=kind)
        assert found.video == name, kind
        assert found.facts.damaged is (None if "decode" in kind and "not" not in kind else False), kind
        np.testing.assert_array_equal(extractor(video).values, tokens.values, err_msg=kind)
    several = [video for kind, (video, _) in forms.items() if kind not in ("row of frames",)]
    assert [one.label for one in predictor(several)] == [wanted.label] * len(several)
    missing = "memory://some/gone.mp4"
    first, second = predictor.predict_many([f"{server}/clip.mp4", missing])
    assert first.to_dict() == {**wanted.to_dict(), "video": f"{server}/clip.mp4"}
    assert isinstance(second, Failure)
    assert second.path == missing


def test_rows_of_a_hugging_face_data_set(model: Motionformer, clip: Path) -> None:
    datasets = pytest.importorskip("datasets")
    columns = {"video": [str(clip), clip.read_bytes()], "label": [0, 1]}
    features = datasets.Features({"video": datasets.Video(decode=False), "label": datasets.Value("int64")})
    rows = datasets.Dataset.from_dict(columns, features=features)
    predictor = Predictor(model)
    assert [one.label for one in predictor(rows)] == [predictor(clip).label] * 2
    assert [one.video for one in predictor(rows["video"])] == [str(clip), ""]


def test_a_decoder_reads_only_the_frames_of_the_clips(model: Motionformer, frames: torch.Tensor) -> None:
    decoder = Decoder(frames)
    Predictor(model, views=1)(decoder)
    assert decoder.read == 1 + model.config.input.frames  # the first tells the size


def test_what_cannot_be_fetched_or_decoded_says_why(model: Motionformer, frames: torch.Tensor, server: str) -> None:
    predictor = Predictor(model)
    for video, message in (
        (f"{server}/gone.mp4", rf"^{server}/gone.mp4: cannot be fetched \("),
        ("http://127.0.0.1:9/a.mp4", r"^http://127.0.0.1:9/a.mp4: cannot be fetched .*Connect call failed"),
        ("memory://nothing.mp4", r"^memory://nothing.mp4: cannot be fetched"),
        ("nosuch://a.mp4", r"^nosuch://a.mp4: cannot be fetched \(ValueError: Protocol not known: nosuch"),
        (b"no video at all", r"^bytes: "),
        ({"path": "row.mp4", "bytes": b"no video at all"}, r"^row.mp4: "),
        (Decoder(frames, average_fps=None), "average_fps None: both are needed"),
        (Decoder(frames / 255), r"gives frames as float32 \[1, 3, 64, 96\]; bytes"),
        (Decoder(frames, num_frames=400), "the decoder cannot read it"),
    ):
        with pytest.raises(VideoError, match=message) as caught:
            predictor(video)
        assert "/tmp" not in str(caught.value)
    with pytest.raises(ValueError, match="a file has its own rate"):
        predictor(b"", fps=25.0)


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
    "paths and frames": (lambda f: ["a.mp4", f[0].numpy()], TypeError, "or a decoder, not numpy.ndarray"),
    "a file in memory": (lambda f: io.BytesIO(b"video"), TypeError, "not _io.BytesIO"),
    "a row without a video": (lambda f: {"clip": "a.mp4", "label": 1}, TypeError, "has 'clip', 'label', and no video"),
    "a row with nothing": (lambda f: {"video": {"path": None, "bytes": None}}, TypeError, "has 'video', and no video"),
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
    with clip.open("rb") as file, pytest.raises(TypeError, match=r"not _io.BufferedReader. Give its path"):
        Predictor(model)(file)


def test_paths_are_still_paths(model: Motionformer, clip: Path) -> None:
    predictor = Predictor(model)
    label = predictor(clip).label
    assert [one.label for one in predictor([clip, str(clip)])] == [label, label]
    assert [one.label for one in predictor(path for path in (clip,))] == [label]
    assert list(predictor([])) == []
    with pytest.raises(TypeError, match="each is a path, bytes, a row or a decoder, not int"):
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
