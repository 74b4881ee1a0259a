"""Frames one after the other are the frames by number."""

import contextlib
import socket
import threading
import time
from collections.abc import Iterator
from fractions import Fraction
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import torch
from numbered import read_number, write_images, write_video

from motionformer.errors import VideoError
from motionformer.video import open_video
from motionformer.video.container import VideoFile
from motionformer.video.stream import stream_live, stream_video


def stream_all(path: Path) -> torch.Tensor:
    with stream_video(path) as stream:
        return torch.stack(list(stream.frames))


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("plain.mp4", {}),
        ("b.mkv", {"b_frames": 3}),
        ("b.avi", {"b_frames": 2, "codec": "mpeg4"}),
        ("turned.mp4", {"rotation": 90}),
        ("odd.mp4", {"width": 90}),
    ],
)
def test_equal_to_reading_by_number(name: str, options: dict, tmp_path: Path) -> None:
    path = write_video(tmp_path / name, **options)
    with open_video(path) as video:
        expected, fps = video.read(range(video.metadata.num_frames)), video.metadata.fps
    assert torch.equal(stream_all(path), expected)
    with stream_video(path) as stream:
        assert stream.fps == pytest.approx(fps)


def test_a_folder_of_frames(tmp_path: Path) -> None:
    folder = write_images(tmp_path / "frames", "img_%05d.png", num_frames=3)
    with open_video(folder) as video:
        assert torch.equal(stream_all(folder), video.read(range(3)))


def test_refuses_what_is_no_video(tmp_path: Path) -> None:
    (tmp_path / "bad.mp4").write_text("no video")
    with pytest.raises(VideoError, match=r"bad\.mp4: Invalid data"):
        stream_all(tmp_path / "bad.mp4")
    with pytest.raises(VideoError, match="no such file"):
        stream_all(tmp_path / "gone.mp4")
    with pytest.raises(VideoError, match="cannot be opened as a live source"), stream_live(str(tmp_path / "gone")):
        pass


def test_times_are_those_of_reading_by_number(tmp_path: Path) -> None:
    times = [*range(0, 1000, 100), *range(1000, 6000, 500)]
    for name, options in {
        "even.mkv": {"num_frames": 20, "b_frames": 2},
        "even.avi": {"num_frames": 20, "codec": "mpeg4", "b_frames": 2},
        "uneven.mkv": {"num_frames": 20, "times": times, "tick": Fraction(1, 1000), "b_frames": 2},
        "uneven.mp4": {"num_frames": 20, "times": times, "tick": Fraction(1, 1000)},
    }.items():
        path = write_video(tmp_path / name, **options)
        with open_video(path) as video, stream_video(path) as stream:
            clock = video.clock
            for i, _ in enumerate(stream.frames):
                assert stream.clock.seconds(i) == clock.seconds(i), name
                if i < 19:
                    assert stream.clock.seconds(i + 1) == clock.seconds(i + 1), "the end of a frame is known with it"
        assert stream.clock.seconds(20) > stream.clock.seconds(19)
        if name.startswith("even"):
            assert stream.clock.seconds(20) == 20 / 30


def test_frames_before_a_broken_one_come_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_video(tmp_path / "x.mp4", num_frames=8)
    frames_of = VideoFile.frames

    def breaks(*words: Any) -> Any:
        yield from islice(frames_of(*words), 5)
        raise VideoError("is damaged", frame=5)

    monkeypatch.setattr(VideoFile, "frames", breaks)
    with stream_video(path) as stream:
        assert [read_number(next(stream.frames)) for _ in range(5)] == [0, 1, 2, 3, 4]
        with pytest.raises(VideoError, match="frame 5: is damaged"):
            next(stream.frames)


@contextlib.contextmanager
def silent_camera(path: Path) -> Iterator[str]:
    """The address of something that sends a file and then nothing."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        done = threading.Event()

        def send() -> None:
            connection, _ = server.accept()
            with connection:
                connection.sendall(path.read_bytes())
                done.wait(60)

        thread = threading.Thread(target=send)
        thread.start()
        yield f"tcp://127.0.0.1:{server.getsockname()[1]}"
        done.set()
        thread.join()


def test_a_live_source_that_falls_silent_is_an_error(tmp_path: Path) -> None:
    path = write_video(tmp_path / "sent.ts", num_frames=200)
    with silent_camera(path) as address, stream_live(address, time_limit=2.0) as stream:
        assert read_number(next(stream.frames)) == 0
        with pytest.raises(VideoError, match="took longer than the time limit"):
            list(stream.frames)


def test_a_live_source_is_left_while_another_thread_waits_for_it(tmp_path: Path) -> None:
    path = write_video(tmp_path / "sent.ts", num_frames=200)

    def read(frames: Iterator[torch.Tensor]) -> None:
        with contextlib.suppress(VideoError):
            for _ in frames:
                came.set()

    came = threading.Event()
    with silent_camera(path) as address:
        with stream_live(address, time_limit=4.0) as stream:
            thread = threading.Thread(target=read, args=(stream.frames,))
            thread.start()
            assert came.wait(20)
            time.sleep(0.5)
            since = time.monotonic()
        assert time.monotonic() - since < 2.0
        assert thread.is_alive()
        thread.join(20)
    assert not thread.is_alive(), "the time limit ends it"


@pytest.mark.shared
@pytest.mark.parametrize("name", ["RATRACE_wave_f_nm_np1_fr_goo_37.avi", "v_SoccerJuggling_g23_c01.avi"])
def test_real_clips(name: str, shared: Path) -> None:
    path = shared / "data" / "clips" / name
    with open_video(path) as video:
        expected = video.read(range(video.metadata.num_frames))
    assert torch.equal(stream_all(path), expected)
