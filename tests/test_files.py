"""A file is there whole, or as it was."""

import json
import os
import stat
import threading
from pathlib import Path

import pytest

from motionformer.files import (
    atomic_write,
    check_output,
    is_special,
    is_stamp_of,
    stamp_video,
    valid_json,
    write_atomically,
    write_csv,
)


def test_text_and_bytes(tmp_path: Path) -> None:
    write_atomically(tmp_path / "a.txt", "grüße\n")
    write_atomically(tmp_path / "b.bin", b"\x00\xff")
    assert (tmp_path / "a.txt").read_bytes() == "grüße\n".encode()
    assert (tmp_path / "b.bin").read_bytes() == b"\x00\xff"


def test_what_fails_half_way_leaves_the_older_file_and_nothing_else(tmp_path: Path) -> None:
    write_atomically(tmp_path / "a.txt", "older")

    def write_half() -> None:
        with atomic_write(tmp_path / "a.txt") as stream:
            stream.write(b"new")
            raise RuntimeError("half way")

    with pytest.raises(RuntimeError, match="half way"):
        write_half()
    assert [file.name for file in tmp_path.iterdir()] == ["a.txt"]
    assert (tmp_path / "a.txt").read_text() == "older"


def test_names_that_are_no_utf8(tmp_path: Path) -> None:
    odd = "caf\udce9 é.mp4"
    with atomic_write(tmp_path / "a.csv") as stream:
        write_csv(stream, [["path", "frames"], [odd, 3]])
    assert (tmp_path / "a.csv").read_bytes() == b"path,frames\ncaf\xe9 \xc3\xa9.mp4,3\n"
    text = valid_json(json.dumps([odd], ensure_ascii=False))
    assert text.encode() == b'["caf\\udce9 \xc3\xa9.mp4"]'
    assert json.loads(text) == [odd]


def test_a_full_disk_says_which_file(tmp_path: Path) -> None:
    (tmp_path / f".a.txt.{os.getpid()}.part").symlink_to("/dev/full")
    with pytest.raises(OSError, match=r"No space left on device: '.*/a\.txt'"):
        write_atomically(tmp_path / "a.txt", "x" * 100_000)
    assert not list(tmp_path.iterdir())


def make_device(file: Path, minor: int) -> Path:
    """Memory's devices: 3 forgets what is written, 7 is always full."""
    try:
        os.mknod(file, stat.S_IFCHR | 0o666, os.makedev(1, minor))
        file.open("wb").close()
    except OSError as error:
        pytest.skip(f"devices can not be made or used here ({error.strerror})")
    return file


def test_a_device_stays_a_device(tmp_path: Path) -> None:
    null, full = make_device(tmp_path / "null", 3), make_device(tmp_path / "full", 7)
    for file in (null, full):
        check_output(file)
    write_atomically(null, "x")
    with pytest.raises(OSError, match=r"No space left on device: '.*/full'"):
        write_atomically(full, "x")
    assert null.is_char_device()
    assert full.is_char_device()
    assert sorted(file.name for file in tmp_path.iterdir()) == ["full", "null"]


def test_a_pipe_stays_a_pipe(tmp_path: Path) -> None:
    pipe, came = tmp_path / "pipe", list[bytes]()
    os.mkfifo(pipe)
    assert is_special(pipe)
    check_output(pipe)
    reader = threading.Thread(target=lambda: came.append(pipe.read_bytes()), daemon=True)
    reader.start()
    write_atomically(pipe, "through")
    reader.join(10)
    assert came == [b"through"]
    assert pipe.is_fifo()


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    (tmp_path / "link").symlink_to("there/a.txt")
    for content in ("new", "newer"):  # to a file that is not there yet, and to one that is
        check_output(tmp_path / "link")
        write_atomically(tmp_path / "link", content)
        assert (tmp_path / "there" / "a.txt").read_text() == content
    assert (tmp_path / "link").is_symlink()
    assert [file.name for file in (tmp_path / "there").iterdir()] == ["a.txt"]


def test_errors_name_the_file_that_was_asked_for(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError) as caught:
        write_atomically(tmp_path / "nowhere" / "a.txt", "x")
    assert caught.value.filename == str(tmp_path / "nowhere" / "a.txt")


def test_a_folder_of_frames_is_known_by_its_stamp_of_version_0_1(tmp_path: Path) -> None:
    (tmp_path / "1.png").write_bytes(b"1")
    old = f"1 frames-{(tmp_path / '1.png').stat().st_mtime_ns}"
    assert is_stamp_of(old, tmp_path)
    assert is_stamp_of(stamp_video(tmp_path), tmp_path)
    (tmp_path / "2.png").write_bytes(b"2")
    assert not is_stamp_of(old, tmp_path)
