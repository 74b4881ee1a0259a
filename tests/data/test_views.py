"""Frames resized as they come and cropped clip by clip are the whole clips transformed at once, bit by bit."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from tests.data.conftest import raw_reader
from tests.video.numbered import read_number, write_lying_video, write_video
from torch import Tensor

from motionformer.data import ClipReader, Record, eval_sampler
from motionformer.data import clips as clips_module
from motionformer.video import open_video
from motionformer.video.memory import DecodedFrames
from motionformer.video.spec import InputSpec
from motionformer.video.transforms import eval_transform

CPU = torch.device("cpu")
SPEC = InputSpec(frames=4, height=16, width=16, stride=3, fps=30.0, views=3, crops=3)
SPECS = [
    {},
    {"crops": 1, "views": 1},
    {"channels": "BGR", "frames": 6, "stride": 2},
    {"sampling": "segments", "views": 1},
    {"height": 80, "width": 112},  # larger than the video: frames grow
]


@pytest.fixture(scope="module")
def clip(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_video(tmp_path_factory.mktemp("clip") / "clip.mp4", num_frames=40)


def read_at_once(path: Path, spec: InputSpec) -> Tensor:
    """Every clip at full size, each through the whole transform of each crop."""
    crops = ("centre",) if spec.crops == 1 else (0, 1, 2)
    reader = raw_reader(eval_sampler(spec), [eval_transform(spec, crop) for crop in crops])
    clips, _ = reader.read_labelled(Record(path))
    return clips.reshape(-1, *clips.shape[-4:])


@pytest.mark.parametrize("changes", SPECS, ids=str)
def test_equal_to_whole_clips(changes: dict, clip: Path) -> None:
    spec = replace(SPEC, **changes)
    expected = read_at_once(clip, spec)
    reader = ClipReader(spec)
    found = torch.stack(list(reader.clips(reader.read(clip), CPU)))
    assert torch.equal(found, expected)
    assert found.shape[0] == (1 if spec.sampling == "segments" else spec.views) * spec.crops


@pytest.mark.parametrize(("sampling", "frames"), [("segments", 20), ("stride", 18)])
def test_a_number_of_frames_that_was_wrong(sampling: str, frames: int, tmp_path: Path) -> None:
    """20 frames are announced, two of which do not exist."""
    path = write_lying_video(tmp_path / "x.mp4", num_frames=18, places=(7, 12))
    spec = InputSpec(sampling=sampling, frames=frames, stride=1, views=1, crops=1, height=64, width=96)
    reader = ClipReader(spec)
    views = reader.read(path)
    assert [read_number(frame) for frame in views.frames] == list(range(18))
    assert torch.equal(torch.stack(list(reader.clips(views, CPU))), read_at_once(path, spec))


def test_reading_in_pieces_changes_nothing(clip: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reader = ClipReader(SPEC)
    whole = reader.read(clip)
    monkeypatch.setattr(clips_module, "_BYTES_AT_ONCE", 3 * 64 * 96 * 2)  # two frames
    pieces = reader.read(clip)
    assert torch.equal(whole.frames, pieces.frames)
    assert whole.shown == pieces.shown


def test_frames_are_as_good_as_a_file(clip: Path) -> None:
    reader = ClipReader(SPEC)
    with open_video(clip) as video:
        frames, fps = video.read(range(video.metadata.num_frames)), video.metadata.fps
    from_file, from_frames = reader.read(clip), reader.read(DecodedFrames(frames, fps))
    assert torch.equal(from_file.frames, from_frames.frames)
    assert from_file.shown == from_frames.shown
    assert from_file.times == from_frames.times


def test_times_of_views(clip: Path) -> None:
    """40 frames at 30 a second; a clip spans 3 · 3 + 1 = 10 of them."""
    times = ClipReader(SPEC).read(clip).times
    assert times == [(0.0, 10 / 30), (15 / 30, 25 / 30), (1.0, 40 / 30)]
