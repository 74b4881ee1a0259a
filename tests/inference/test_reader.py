"""Views held as bytes are the views of the data pipeline, number by number."""

from pathlib import Path

import pytest
import torch

from motionformer.data import Annotations, Record
from motionformer.inference import FileVideos
from motionformer.inference import reader as reader_module
from motionformer.inference.reader import ClipReader
from motionformer.video import open_video
from tests.inference.conftest import CONFIG, make_model
from tests.video.numbered import read_number, write_lying_video

CPU = torch.device("cpu")
SPECS = [
    {},
    {"crops": 1, "views": 1},
    {"channels": "BGR", "frames": 6, "stride": 2},
    {"sampling": "segments", "views": 1},
    {"height": 80, "width": 112},  # larger than the video: frames grow
]


@pytest.mark.parametrize("changes", SPECS, ids=str)
def test_equal_to_the_data_pipeline(changes: dict, clip: Path) -> None:
    spec = make_model(**changes).config.input
    expected = FileVideos(Annotations((Record(clip),), (), "one"), spec).read(0).views
    reader = ClipReader(spec)
    found = torch.stack(list(reader.clips(reader.read(clip), CPU)))
    assert torch.equal(found, expected)
    assert found.shape[0] == (1 if spec.sampling == "segments" else spec.views) * spec.crops


@pytest.mark.parametrize(("sampling", "frames"), [("segments", 20), ("stride", 18)])
def test_a_number_of_frames_that_was_wrong(sampling: str, frames: int, tmp_path: Path) -> None:
    """20 frames are announced, two of which do not exist."""
    path = write_lying_video(tmp_path / "x.mp4", num_frames=18, places=(7, 12))
    spec = make_model(sampling=sampling, frames=frames, stride=1, views=1, crops=1, height=64, width=96).config.input
    reader = ClipReader(spec)
    views = reader.read(path)
    assert [read_number(frame) for frame in views.frames] == list(range(18))
    from_list = FileVideos(Annotations((Record(path),), (), "one"), spec).read(0).views
    assert torch.equal(torch.stack(list(reader.clips(views, CPU))), from_list)


def test_reading_in_pieces_changes_nothing(clip: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reader = ClipReader(CONFIG.input)
    whole = reader.read(clip)
    monkeypatch.setattr(reader_module, "BYTES_AT_ONCE", 3 * 64 * 96 * 2)  # two frames
    pieces = reader.read(clip)
    assert torch.equal(whole.frames, pieces.frames)
    assert whole.shown == pieces.shown


def test_frames_are_as_good_as_a_file(clip: Path) -> None:
    reader = ClipReader(CONFIG.input)
    with open_video(clip) as video:
        frames, fps = video.read(range(video.metadata.num_frames)), video.metadata.fps
    from_file, from_frames = reader.read(clip), reader.take(frames, fps)
    assert torch.equal(from_file.frames, from_frames.frames)
    assert from_file.shown == from_frames.shown
    assert from_file.times == from_frames.times


def test_times_of_views(clip: Path) -> None:
    """40 frames at 30 a second; a clip spans 3 · 3 + 1 = 10 of them."""
    times = ClipReader(CONFIG.input).read(clip).times
    assert times == [(0.0, 10 / 30), (15 / 30, 25 / 30), (1.0, 40 / 30)]
