"""Videos are known by their contents: moved and renamed they are the same, changed they are others."""

import math
import shutil
from pathlib import Path

import pytest
from tests.video.numbered import write_images

from motionformer.data.fingerprints import BLOCK, _fingerprint_video, fingerprint_records, video_set
from motionformer.data.record import Record
from motionformer.models.training_data import WHOLE, TrainingData, VideoSet


def test_the_contents_count_and_not_the_name(tmp_path: Path) -> None:
    (a := tmp_path / "a.mp4").write_bytes(bytes(range(256)) * 4000)  # a megabyte
    shutil.copy(a, b := tmp_path / "b.avi")
    assert _fingerprint_video(a) == _fingerprint_video(b) is not None
    size = a.stat().st_size
    for place in (0, size // 2, size - 1, BLOCK - 1):
        changed = bytearray(a.read_bytes())
        changed[place] ^= 1
        b.write_bytes(changed)
        assert _fingerprint_video(a) != _fingerprint_video(b), place
    b.write_bytes(a.read_bytes() + b"\0")
    assert _fingerprint_video(a) != _fingerprint_video(b)
    assert _fingerprint_video(tmp_path / "gone.mp4") is None


def test_folders_of_frames(tmp_path: Path) -> None:
    (one := tmp_path / "one").mkdir()
    for i in range(5):
        (one / f"{i}.jpg").write_bytes(bytes([i]) * 100)
    shutil.copytree(one, two := tmp_path / "two")
    (two / ".hidden").write_text("x")
    assert _fingerprint_video(one) == _fingerprint_video(two) is not None
    (two / "5.jpg").write_bytes(b"5")
    assert _fingerprint_video(one) != _fingerprint_video(two)
    (tmp_path / "empty").mkdir()
    assert _fingerprint_video(tmp_path / "empty") is None


def test_pieces_meet_or_share_a_file() -> None:
    found = VideoSet.of([("x", (0.0, 5.0)), ("x", (8.0, 9.0)), ("y", WHOLE), ("y", (1.0, 2.0))])
    assert found.overlap("x", (4.9, 8.0)) == "video"
    assert found.overlap("x", (5.0, 8.0)) == "file"
    assert found.overlap("x") == "video"
    assert found.overlap("y", (100.0, math.inf)) == "video"
    assert found.overlap("z") == "none"


def test_large_sets_say_what_they_leave_out(tmp_path: Path) -> None:
    records = []
    for i in range(4):
        (tmp_path / f"{i}.mp4").write_bytes(bytes([i]))
        records += [Record(tmp_path / f"{i}.mp4", start=0.0, end=1.0), Record(tmp_path / f"{i}.mp4", start=1.0)]
    (tmp_path / "1.mp4").unlink()
    found, left_out = video_set(records, limit=3)
    assert len(found) == 2
    assert left_out == 4  # two pieces of the one that is gone, and of the fourth
    assert [one[1] for one in fingerprint_records(records[:2]) if one] == [(0.0, 1.0), (1.0, math.inf)]
    kinds = [one is None for one in fingerprint_records(records)]
    assert kinds == [False, False, True, True, False, False, False, False]


def test_written_and_read_it_is_the_same(tmp_path: Path) -> None:
    train = VideoSet.of([("a", WHOLE), ("b", (0.5, 2.0)), ("b", (3.0, math.inf)), ("motion:easy/train/0", (0.0, 64.0))])
    data = TrainingData(train, VideoSet.of([("c", WHOLE)]), 3, ("some model",))
    data.save(tmp_path)
    assert TrainingData.load(tmp_path) == data
    assert TrainingData.load(tmp_path / "elsewhere") is None
    both = data | TrainingData(VideoSet.of([("b", WHOLE), ("d", WHOLE)]), left_out=1, unknown=("some model", "other"))
    assert both.train.overlap("b", (2.5, 2.6)) == "video"
    assert (len(both.train), both.left_out, both.unknown) == (4, 4, ("some model", "other"))
    (tmp_path / "training_data.json").write_text("[]")
    with pytest.raises(ValueError, match=r"training_data\.json: not a list of training videos"):
        TrainingData.load(tmp_path)


def test_what_lies_beside_frames_is_not_the_video(tmp_path: Path) -> None:
    """The reader takes images only: notes and thumbnails make no other video of it."""
    before = _fingerprint_video(write_images(tmp_path / "a", "%03d.png", num_frames=4))
    (tmp_path / "a" / "notes.txt").write_text("seen")
    assert _fingerprint_video(tmp_path / "a") == before
