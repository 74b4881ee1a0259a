"""Damage that the decoder reports is said of what was read, and of nothing else."""

from itertools import islice
from pathlib import Path
from typing import Any

import av
import pytest
import torch
from numbered import damage_packet, is_broken, read_number, write_images, write_video

from motionformer.errors import VideoError
from motionformer.video import ReadFacts, open_video
from motionformer.video.container import VideoFile
from motionformer.video.stream import stream_video


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four groups of twelve frames, stored in the order shown."""
    return write_video(tmp_path_factory.mktemp("damage") / "x.mp4", num_frames=48, **{"x264-params": "scenecut=0"})


@pytest.mark.parametrize(
    ("ending", "codec"),
    [("mp4", "libx264"), ("avi", "libx264"), ("avi", "mpeg4"), ("avi", "mjpeg")],  # AVI with B-frames is counted
)
def test_frames_that_differ_are_of_a_damaged_video(ending: str, codec: str, tmp_path: Path) -> None:
    options: dict[str, Any] = {"pixels": "yuvj420p"} if codec == "mjpeg" else {"b_frames": 2}
    source = write_video(tmp_path / f"x.{ending}", num_frames=48, codec=codec, **options)
    wanted = [3, 8, 20, 30, 41]
    with open_video(source) as video:
        intact = video.read(wanted)
        assert video.damaged is False
        assert (video.index is None) == (ending == "avi" and codec != "mjpeg")
    patched_up = 0
    for seed in range(24):
        packet = wanted[seed % 5] if codec == "mjpeg" else seed % 16  # there, no frame leans on another
        path = damage_packet(source, tmp_path / f"y.{ending}", packet, seed)
        if not is_broken(path):
            continue
        try:
            with open_video(path) as video:
                frames, damaged = video.read(wanted), video.damaged
        except VideoError:
            continue
        assert damaged or torch.equal(frames, intact), seed
        patched_up += bool(damaged)
    assert patched_up >= 3, "the test is about such files"


def test_damage_elsewhere_is_not_damage_here(source: Path, tmp_path: Path) -> None:
    """Every frame of a group leans on the one before, none on another group."""
    for seed in range(20):
        path = damage_packet(source, tmp_path / "y.mp4", 26, seed)
        if not is_broken(path):
            continue
        with open_video(path) as video, open_video(source) as intact:
            assert torch.equal(video.read([1, 14, 24, 25]), intact.read([1, 14, 24, 25]))
            assert video.damaged is False
            assert not torch.equal(video.read([35]), intact.read([35]))
            assert video.damaged is True
            video.read([1])
            assert video.damaged is True, "of what was read so far"
        return
    pytest.fail("no damage that is reported")


@pytest.mark.parametrize("pyramid", ["none", "normal"])
@pytest.mark.parametrize("ending", ["mp4", "mkv"])
def test_open_groups_are_not_damaged(pyramid: str, ending: str, tmp_path: Path) -> None:
    """After a seek, pictures are missing that those before the key frame lean on."""
    params = f"open-gop=1:keyint=12:min-keyint=12:scenecut=0:b-adapt=0:b-pyramid={pyramid}"
    path = write_video(tmp_path / f"x.{ending}", num_frames=60, b_frames=3, **{"x264-params": params})
    with open_video(path) as video:
        video.check()
        whole = video.read(range(60))
    for wanted in ([40], [13, 30, 58], list(range(31, 45))):
        with open_video(path) as video:
            assert torch.equal(video.read(wanted), whole[wanted])
            assert video.damaged is False


@pytest.mark.parametrize("codec", ["libx264", "libx265", "mpeg4", "mpeg2video"])
def test_intact_files_are_not_damaged(codec: str, tmp_path: Path) -> None:
    options = {"x265-params": "log-level=none"} if codec == "libx265" else {}
    path = write_video(tmp_path / "x.mkv", num_frames=40, codec=codec, b_frames=2, **options)
    with open_video(path) as video:
        video.read([0, 7, 13, 14, 39])
        assert video.damaged is False
    with stream_video(path) as stream:
        assert len(list(stream.frames)) == 40
        assert stream.damaged_from is None
    with open_video(write_images(tmp_path / "frames", "%d.png", num_frames=3)) as video:
        video.read([0, 2])
        assert video.damaged is False


@pytest.mark.parametrize("reported_after", [0, 7])
def test_a_stream_goes_on_after_damage_and_says_where(
    reported_after: int, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    frames_of, opened = VideoFile.frames, 0

    def reports_once(*words: Any) -> Any:
        nonlocal opened
        opened += 1
        yield from islice(frames_of(*words), reported_after if opened == 1 else None)
        if opened == 1:
            raise av.InvalidDataError(1, "damaged")

    monkeypatch.setattr(VideoFile, "frames", reports_once)
    with stream_video(source) as stream:
        seen = []
        for frame in stream.frames:
            seen.append(read_number(frame))
            assert stream.clock.seconds(len(seen)) == len(seen) / 30
        assert seen == list(range(48)), "none twice, none left out"
        assert stream.damaged_from == reported_after
        assert not stream.is_damaged(reported_after)
        assert stream.is_damaged(reported_after + 1)


def test_a_stream_says_what_the_container_marks_as_corrupt(tmp_path: Path) -> None:
    """A transport stream of which a block is zeros: `open_video` refuses it, a stream goes on and tells."""
    path = write_video(tmp_path / "x.ts", num_frames=48)
    content = bytearray(path.read_bytes())
    middle = len(content) // 2 // 188 * 188 + 60
    content[middle : middle + 500] = bytes(500)
    path.write_bytes(content)
    with pytest.raises(VideoError, match="corrupt"):
        open_video(path)
    with stream_video(path) as stream:
        count = sum(1 for _ in stream.frames)
    assert stream.damaged_from is not None
    assert 0 < stream.damaged_from <= count


def test_a_frame_that_is_damaged_itself_ends_a_stream(source: Path, tmp_path: Path) -> None:
    path = next(p for seed in range(20) if is_broken(p := damage_packet(source, tmp_path / "y.mp4", 26, seed)))
    with pytest.raises(VideoError, match="is damaged"), stream_video(path) as stream:
        list(stream.frames)


def test_facts() -> None:
    assert ReadFacts.of([[0, 0, 1, 1], [2, 3, 4, 4]]) == ReadFacts(4, 2, False)
    parts = [ReadFacts(4, 3), ReadFacts(4, 2, None)]
    assert ReadFacts.together(parts) == ReadFacts(4, 2, None)
    assert ReadFacts.together([*parts, ReadFacts(4, 4, True)]) == ReadFacts(4, 2, True)
