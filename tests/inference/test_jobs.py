"""Interrupted and resumed = uninterrupted, byte for byte; another run's results are never taken for this one's."""

import signal
from collections.abc import Iterator, Sequence
from io import BufferedWriter, FileIO
from pathlib import Path
from typing import Any

import pytest

from motionformer.errors import OutputError, VideoError
from motionformer.inference import find_inputs
from motionformer.inference.inputs import run_job
from motionformer.runs import Journal
from tests.children import run_code

HEADER = {"model": "x"}


class Recorded:
    """Work that says what it did, and gives up after a while."""

    def __init__(self, stop_after: int = 1000) -> None:
        self.done: list[str] = []
        self.stop_after = stop_after

    def __call__(self, paths: Sequence[Path]) -> Iterator[dict[str, Any]]:
        for path in paths:
            if len(self.done) == self.stop_after:
                raise KeyboardInterrupt
            self.done.append(path.name)
            outcome = {"failed": "broken"} if "bad" in path.name else {"size": path.stat().st_size}
            yield {"video": str(path), **outcome}


@pytest.fixture
def files(tmp_path: Path) -> list[Path]:
    paths = [tmp_path / name for name in ("a", "bad", "c", "d ü", "e")]
    for number, path in enumerate(paths):
        path.write_bytes(b"x" * number)
    return paths


def test_resumed_is_uninterrupted(files: list[Path], tmp_path: Path) -> None:
    whole = run_job(files, Recorded(), header=HEADER)
    journal = tmp_path / "journal"
    with pytest.raises(KeyboardInterrupt):
        run_job(files, Recorded(stop_after=3), header=HEADER, journal=journal)
    lines = (journal / "0000.jsonl").read_bytes()
    assert lines.count(b"\n") == 4
    (journal / "0000.jsonl").write_bytes(lines[:-7])  # torn in the middle of the third video
    again = Recorded()
    assert run_job(files, again, header=HEADER, journal=journal, resume=True) == whole
    assert again.done == ["c", "d ü", "e"]
    nothing = Recorded()
    assert run_job(files, nothing, header=HEADER, journal=journal, resume=True) == whole
    assert nothing.done == []


def test_killed_and_resumed(files: list[Path], tmp_path: Path) -> None:
    code = f"""
import os, signal
from pathlib import Path
from motionformer.inference.inputs import run_job
def work(paths):
    for number, path in enumerate(paths):
        if number == 2:
            os.kill(os.getpid(), signal.SIGKILL)
        yield {{"video": str(path), "size": path.stat().st_size}}
paths = [Path(name) for name in {[str(path) for path in files]!r}]
run_job(paths, work, header={HEADER!r}, journal=Path({str(tmp_path / "j")!r}))
"""
    done = run_code(code)
    assert done.returncode == -signal.SIGKILL, done.stderr
    again = Recorded()
    run_job(files, again, header=HEADER, journal=tmp_path / "j", resume=True)
    assert again.done == ["c", "d ü", "e"]


def test_changed_and_new_files_are_done(files: list[Path], tmp_path: Path) -> None:
    run_job(files[:4], Recorded(), header=HEADER, journal=tmp_path / "j")
    files[2].write_bytes(b"longer than before")
    again = Recorded()
    found = run_job(files, again, header=HEADER, journal=tmp_path / "j", resume=True)
    assert again.done == ["c", "e"]
    assert found[2]["size"] == 18
    fresh = Recorded()
    run_job(files, fresh, header=HEADER, journal=tmp_path / "j")
    assert len(fresh.done) == 5, "without resume everything is done again"


def test_another_run_is_refused(files: list[Path], tmp_path: Path) -> None:
    run_job(files, Recorded(), header={"model": "x", "views": 3}, journal=tmp_path / "j")
    with pytest.raises(OutputError, match=r"of another run: views \(3 there, 2 now\)"):
        run_job(files, Recorded(), header={"model": "x", "views": 2}, journal=tmp_path / "j", resume=True)


def test_a_damaged_line_is_done_again(files: list[Path], tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    run_job(files, Recorded(), header=HEADER, journal=tmp_path / "j")
    file = tmp_path / "j" / "0000.jsonl"
    lines = file.read_bytes().split(b"\n")
    lines[2] = b"{garbage"
    file.write_bytes(b"\n".join(lines))
    again = Recorded()
    run_job(files, again, header=HEADER, journal=tmp_path / "j", resume=True)
    assert again.done == ["bad"]
    assert "0000.jsonl:3 is damaged" in caplog.text


def test_a_full_disk_names_the_journal(tmp_path: Path) -> None:
    def fill() -> None:
        with Journal(tmp_path, HEADER) as journal:
            journal.stream.close()
            journal.stream = BufferedWriter(FileIO("/dev/full", "a"))
            journal.add("a", "1-1", {"video": "a"})

    with pytest.raises(OSError, match=r"No space left on device: '.*/0000\.jsonl'"):
        fill()


def test_inputs(folder: Path) -> None:
    names = [one.name for one in find_inputs([folder])]
    assert names == ["a.mp4", "b.mp4", "broken.mp4", "sub/a.mp4", "sub/d e.mp4"]
    assert [one.name for one in find_inputs([folder / "**" / "a*.mp4", folder / "gone.mp4", folder / "a.mp4"])] == [
        "a.mp4",
        "sub/a.mp4",
        "gone.mp4",
    ]
    assert [one.name for one in find_inputs([f"{folder}/s?b/*"])] == ["sub/a.mp4", "sub/d e.mp4"]
    gone = [folder / "gone.mp4", folder / "lost.mp4"]
    for nothing, message in (
        ([folder / "*.avi"], "matches no video"),
        ([], "no path"),
        (gone[:1], r"gone\.mp4: there is no such file$"),
        (gone, r"gone\.mp4: there is no such file, nor is the other$"),
    ):
        with pytest.raises(VideoError, match=message):
            find_inputs(nothing)


def test_a_picture_beside_videos_is_no_frame(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "dog").mkdir()
    for name in ("0.mp4", "0.jpg", "1.mp4"):
        (tmp_path / "dog" / name).touch()
    assert [one.name for one in find_inputs([tmp_path / "dog"])] == ["0.mp4", "1.mp4"]
    assert "1 pictures have videos beside or below them" in caplog.text
    assert [one.name for one in find_inputs([tmp_path / "d*"])] == ["dog/0.mp4", "dog/1.mp4"]
    for video in (tmp_path / "dog").glob("*.mp4"):
        video.unlink()
    assert [one.name for one in find_inputs([tmp_path / "dog"])] == ["dog"]
