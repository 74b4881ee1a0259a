"""A file is there whole, or as it was."""

import json
import os
import stat
import threading
from pathlib import Path

import numpy as np
import pytest

from motionformer.errors import OutputError
from motionformer.runs import (
    Journal,
    atomic_write,
    check_output,
    is_special,
    is_stamp_of,
    lock_folder,
    read_journal,
    stamp_video,
    valid_json,
    write_atomically,
    write_csv,
)
from tests.children import run_code


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
    write_csv(tmp_path / "a.csv", [["path", "frames"], [odd, 3]])
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


HEADER = {"model": "tiny", "options": {"top": 5}}


def test_a_journal_keeps_entries_with_arrays(tmp_path: Path) -> None:
    scores = np.random.default_rng(0).normal(size=(2, 3)).astype(np.float32)
    with Journal(tmp_path / "parts", HEADER, rank=3) as journal:
        journal.add("a.mp4", "1", {"label": "x", "scores": {"verb": scores}})
        journal.add_all([("b.mp4", "2", {"failed": "no frames"})])
    found = read_journal(tmp_path / "parts", HEADER)
    assert found["b.mp4", "2"] == {"failed": "no frames"}
    kept = found["a.mp4", "1"]["scores"]["verb"]
    assert kept.dtype == np.float32
    np.testing.assert_array_equal(kept, scores)


def test_a_journal_loses_only_the_line_that_was_torn(tmp_path: Path) -> None:
    with Journal(tmp_path, HEADER) as journal:
        journal.add("a", "1", {"n": 1})
        journal.add("b", "1", {"n": 2})
    file = tmp_path / "0000.jsonl"
    file.write_bytes(file.read_bytes()[:-4])
    assert list(read_journal(tmp_path, HEADER)) == [("a", "1")]
    with Journal(tmp_path, HEADER) as journal:
        journal.add("b", "1", {"n": 3})
    assert read_journal(tmp_path, HEADER)["b", "1"] == {"n": 3}


def test_a_damaged_line_costs_its_entry_and_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with Journal(tmp_path, HEADER) as journal:
        journal.add("a", "1", {"n": 1})
        journal.add("b", "1", {"n": 2})
    file = tmp_path / "0000.jsonl"
    lines = file.read_bytes().split(b"\n")
    lines[1] = lines[1][:5]
    file.write_bytes(b"\n".join(lines))
    assert list(read_journal(tmp_path, HEADER)) == [("b", "1")]
    assert "0000.jsonl:2 is damaged" in caplog.text


def test_a_journal_of_another_job_is_an_error(tmp_path: Path) -> None:
    with Journal(tmp_path, HEADER):
        pass
    with pytest.raises(OutputError, match=r"options\.top \(5 there, 3 now\)"):
        read_journal(tmp_path, {"model": "tiny", "options": {"top": 3}})
    assert read_journal(tmp_path, {"model": "tiny", "options": {"top": 3}}, may_differ=["options.top"]) == {}
    for other in ({"model": "tiny"}, {**HEADER, "seed": 1}):  # a key that is only there, or only now
        with pytest.raises(OutputError, match="is of another run"):
            read_journal(tmp_path, other)


def test_a_folder_is_locked_for_one_process(tmp_path: Path) -> None:
    other = "import pathlib, motionformer.runs as r\nwith r.lock_folder(pathlib.Path({!r}), 'training'): pass"
    with lock_folder(tmp_path / "run", "training"):
        result = run_code(other.format(str(tmp_path / "run")))
        assert "another process is training here" in result.stderr
    with lock_folder(tmp_path / "run"):
        pass
