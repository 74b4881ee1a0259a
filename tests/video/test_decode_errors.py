"""Whatever is wrong with a file, one error says which file and why."""

import os
import pickle
import tempfile
from collections.abc import Callable
from pathlib import Path

import av
import numpy as np
import pytest
from numbered import write_audio, write_images, write_video
from torch.utils.data import DataLoader

from motionformer.errors import MotionformerError, VideoError
from motionformer.video import open_video, read_frames
from motionformer.video.container import LENIENT, MAX_PIXELS, STRICT, _check_regular_file


def refused(path: Path, indices: list[int] | None = None, **options: object) -> VideoError:
    with pytest.raises(VideoError) as caught:
        read_frames(path, [0] if indices is None else indices, **options)
    assert caught.value.path == path
    assert str(path) in str(caught.value)
    assert caught.value.reason
    return caught.value


def test_missing_file(tmp_path: Path) -> None:
    assert "no such file" in refused(tmp_path / "missing.mp4").reason


def test_empty_file(tmp_path: Path) -> None:
    (tmp_path / "empty.mp4").touch()
    assert "empty" in refused(tmp_path / "empty.mp4").reason


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("text.mp4", b"This is no video.\n" * 50),
        ("random.mp4", np.random.default_rng(0).bytes(20_000)),
        ("zeros.avi", bytes(20_000)),
    ],
)
def test_what_is_no_video(tmp_path: Path, name: str, content: bytes) -> None:
    (tmp_path / name).write_bytes(content)
    assert "Invalid data" in refused(tmp_path / name).reason


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("text.txt", b"FFmpeg would draw these letters on a screen.\n" * 50),
        ("list.m3u8", b"#EXTM3U\n#EXT-X-TARGETDURATION:9\n#EXTINF:9,\nother.mp4\n#EXT-X-ENDLIST\n"),
        ("list.mp4", b"ffconcat version 1.0\nfile other.mp4\n"),
    ],
)
def test_what_would_open_other_files_or_none(tmp_path: Path, name: str, content: bytes) -> None:
    write_video(tmp_path / "other.mp4", num_frames=2)
    (tmp_path / name).write_bytes(content)
    assert "not read as a video" in refused(tmp_path / name).reason


def test_sound_only(tmp_path: Path) -> None:
    assert refused(write_audio(tmp_path / "sound.mp4")).reason == "holds no video stream, only audio"


def test_cut_before_the_list_of_frames_gives_ffmpegs_reason(tmp_path: Path) -> None:
    path = write_video(tmp_path / "cut.mp4")
    path.write_bytes(path.read_bytes()[:-1500])
    assert "moov atom not found" in refused(path).reason


@pytest.mark.parametrize("keep", [0.3, 0.6, 0.95])
def test_cut_among_the_frames(tmp_path: Path, keep: float) -> None:
    """With the list of frames in front, FFmpeg would hand out the frames that are left and say nothing."""
    path = write_video(tmp_path / "cut.mp4", container={"movflags": "faststart"})
    data = path.read_bytes()
    path.write_bytes(data[: int(len(data) * keep)])
    assert "cut short" in refused(path).reason


def test_cut_avi(tmp_path: Path) -> None:
    path = write_video(tmp_path / "cut.avi", codec="mpeg4")
    data = path.read_bytes()
    path.write_bytes(data[: len(data) * 4 // 5])  # the header alone is more than half
    assert "cut short" in refused(path).reason


def test_header_only(tmp_path: Path) -> None:
    path = write_video(tmp_path / "header.mp4", container={"movflags": "faststart"})
    data = path.read_bytes()
    path.write_bytes(data[: data.index(b"mdat") + 4])
    refused(path)


@pytest.mark.parametrize("locked", ["clip.mp4", "folder", "frames"])
def test_no_permission(locked: str, run_python: Callable[[str], str]) -> None:
    """In a process of its own, which gives up the superuser's right to read everything."""
    with tempfile.TemporaryDirectory(dir="/tmp") as root:
        folder = Path(root) / "folder"
        folder.mkdir()
        paths = {"clip.mp4": Path(root) / "clip.mp4", "folder": folder / "clip.mp4", "frames": Path(root) / "frames"}
        write_video(paths["clip.mp4"], num_frames=2)
        write_video(paths["folder"], num_frames=2)
        write_images(paths["frames"], "img_%05d.png", num_frames=2)
        Path(root).chmod(0o755)
        (Path(root) / locked).chmod(0)
        said = run_python(f"""
import os
from motionformer.video import read_frames
from motionformer.errors import VideoError
if os.geteuid() == 0:
    os.setuid(65534)
try:
    read_frames({str(paths[locked])!r}, [0])
except VideoError as error:
    print(error)
""")
        (Path(root) / locked).chmod(0o755)
    assert str(paths[locked]) in said
    assert "Permission denied" in said


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.mp4")
    assert "regular file" in refused(tmp_path / "pipe.mp4").reason


def test_a_name_that_is_no_text(tmp_path: Path) -> None:
    path = Path(os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9.mp4"))
    path.write_bytes(write_video(tmp_path / "good.mp4", num_frames=3).read_bytes())
    assert len(read_frames(path, [2])) == 1


@pytest.mark.parametrize("index", [-1, 40, 10**9])
def test_index_out_of_range(tmp_path: Path, index: int) -> None:
    error = refused(write_video(tmp_path / "short.mp4"), [0, index])
    assert error.frame == index
    assert "40 frames, 0 to 39" in error.reason


def test_time_limit(tmp_path: Path) -> None:
    path = write_video(tmp_path / "slow.mp4")
    assert "time limit" in refused(path, time_limit=0.0).reason
    with open_video(path) as video:
        video.time_limit = 0.0  # type: ignore[attr-defined]
        with pytest.raises(VideoError, match="time limit"):
            video.read([39])
        video.time_limit = 30.0  # type: ignore[attr-defined]
        assert len(video.read([39])) == 1


def test_time_limit_of_a_folder(tmp_path: Path) -> None:
    with (
        open_video(write_images(tmp_path / "frames", "%05d.png"), time_limit=0.0) as video,
        pytest.raises(VideoError, match="time limit"),
    ):
        video.read([0])


def test_a_frame_too_large_to_be_true(tmp_path: Path) -> None:
    """A header of a few bytes must not make anyone allocate gigabytes."""
    path = write_video(tmp_path / "huge.mkv", codec="ffv1", num_frames=1)
    side = int(MAX_PIXELS**0.5) + 64
    folder = write_images(tmp_path / "huge", "%d.png", num_frames=1)
    image = folder / "1.png"
    data = bytearray(image.read_bytes())
    data[16:24] = side.to_bytes(4, "big") * 2
    image.write_bytes(data)
    with pytest.raises(VideoError):
        open_video(folder)
    assert len(read_frames(path, [0])) == 1


def test_damage_in_the_middle_is_not_quiet(tmp_path: Path) -> None:
    path = write_video(tmp_path / "damaged.mp4", crf="1")
    with av.open(str(path)) as container:
        place = [(packet.pos, packet.size) for packet in container.demux(video=0)][20]
    data = bytearray(path.read_bytes())
    data[place[0] + 40 : place[0] + place[1]] = b"\xff" * (place[1] - 40)
    path.write_bytes(data)
    with open_video(path) as video:
        assert len(video.read([0, 11, 30])) == 3  # other groups of pictures are not touched
        with pytest.raises(VideoError) as caught:
            video.read([20])
        assert caught.value.path == path
        with pytest.raises(VideoError) as caught:
            video.check()
        assert caught.value.frame == 20


def test_the_error_survives_pickling() -> None:
    error = VideoError("too dark", "a b.mp4", frame=3, line=7)
    again = pickle.loads(pickle.dumps(error))
    assert (again.reason, again.path, again.frame, again.line) == ("too dark", Path("a b.mp4"), 3, 7)
    assert str(again) == str(error) == "a b.mp4, line 7, frame 3: too dark"
    assert (again.full_reason, VideoError("too dark").full_reason) == ("frame 3 too dark", "too dark")
    assert isinstance(again, MotionformerError)


class Broken:
    def __len__(self) -> int:
        return 1

    def __getitem__(self, i: int) -> None:
        _check_regular_file(Path("nowhere.mp4"))


def test_the_error_keeps_its_type_on_the_way_from_a_worker() -> None:
    with pytest.raises(VideoError, match=r"nowhere\.mp4: there is no such file"):
        next(iter(DataLoader(Broken(), num_workers=1, multiprocessing_context="fork")))


def test_frames_that_are_too_large_are_called_that(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In words, not "Invalid argument": by the header of the file, and by what the decoder finds in it."""
    video = write_video(tmp_path / "a.mp4", num_frames=2)
    for limit in (100, None):
        with monkeypatch.context() as patched:
            if limit is not None:
                patched.setattr("motionformer.video.container.MAX_PIXELS", limit)
            else:
                patched.setitem(STRICT, "max_pixels", "100")
                patched.setitem(LENIENT, "max_pixels", "100")
            with pytest.raises(VideoError, match="larger than 67 megapixels"), open_video(video) as opened:
                opened.read([0])
