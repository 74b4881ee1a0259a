"""A file is there whole, or as it was."""

import json
import os
from pathlib import Path

import pytest

from motionformer.files import valid_json, write_csv, write_whole, written_whole


def test_text_and_bytes(tmp_path: Path) -> None:
    write_whole(tmp_path / "a.txt", "grüße\n")
    write_whole(tmp_path / "b.bin", b"\x00\xff")
    assert (tmp_path / "a.txt").read_bytes() == "grüße\n".encode()
    assert (tmp_path / "b.bin").read_bytes() == b"\x00\xff"


def test_what_fails_half_way_leaves_the_older_file_and_nothing_else(tmp_path: Path) -> None:
    write_whole(tmp_path / "a.txt", "older")

    def write_half() -> None:
        with written_whole(tmp_path / "a.txt") as stream:
            stream.write(b"new")
            raise RuntimeError("half way")

    with pytest.raises(RuntimeError, match="half way"):
        write_half()
    assert [file.name for file in tmp_path.iterdir()] == ["a.txt"]
    assert (tmp_path / "a.txt").read_text() == "older"


def test_names_that_are_no_utf8(tmp_path: Path) -> None:
    odd = "caf\udce9 é.mp4"
    with written_whole(tmp_path / "a.csv") as stream:
        write_csv(stream, [["path", "frames"], [odd, 3]])
    assert (tmp_path / "a.csv").read_bytes() == b"path,frames\ncaf\xe9 \xc3\xa9.mp4,3\n"
    text = valid_json(json.dumps([odd], ensure_ascii=False))
    assert text.encode() == b'["caf\\udce9 \xc3\xa9.mp4"]'
    assert json.loads(text) == [odd]


def test_a_full_disk_says_which_file(tmp_path: Path) -> None:
    (tmp_path / f".a.txt.{os.getpid()}.part").symlink_to("/dev/full")
    with pytest.raises(OSError, match=r"No space left on device: '.*/a\.txt'"):
        write_whole(tmp_path / "a.txt", "x" * 100_000)
    assert not list(tmp_path.iterdir())
