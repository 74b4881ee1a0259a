"""A file is there whole, or as it was."""

from pathlib import Path

import pytest

from motionformer.files import write_whole, written_whole


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
