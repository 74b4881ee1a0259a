"""Files that are there whole or not at all, whenever the process is killed and whatever fails; and how they hold file
names that are no UTF-8."""

import csv
import hashlib
import os
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from motionformer.errors import OutputError


@contextmanager
def atomic_write(file: Path) -> Iterator[IO[bytes]]:
    """A stream to write to: the file takes its name when everything is on the disk, and stays as it was otherwise.

    A link stays one: what it leads to is written. A device or a pipe is written to as it is.
    """
    if is_special(file):
        with naming(file), file.open("wb") as stream:
            yield stream
        return
    target = _target(file)
    aside = target.with_name(f".{target.name}.{os.getpid()}.part")
    try:
        with naming(file, aside):
            with aside.open("wb") as stream:
                yield stream
                stream.flush()
                os.fsync(stream.fileno())
            aside.replace(target)
    finally:
        aside.unlink(missing_ok=True)


def write_atomically(file: Path, content: bytes | str) -> None:
    """All of `content` or nothing; text as UTF-8."""
    with atomic_write(file) as stream:
        stream.write(content.encode() if isinstance(content, str) else content)


def is_special(file: Path) -> bool:
    """A device, a pipe or a socket: what is neither replaced by a file nor has room for other files beside it."""
    return file.exists() and not file.is_file() and not file.is_dir()


@contextmanager
def naming(file: Path, aside: Path | None = None) -> Iterator[None]:
    """Errors of the system inside name this file: a full disk does not say which it was, and nobody knows `aside`."""
    try:
        yield
    except OSError as error:
        if error.errno is not None and (error.filename is None or error.filename == str(aside)):
            error.filename = str(file)
        raise


def check_output(file: Path) -> None:
    """Before long work: make the folder that its results go to, and refuse a file that could not be written."""
    if file.is_dir():
        raise OutputError(f"{file} is a folder, and a file is to be written there; choose another name.")
    needed = [file]
    if not is_special(file):
        target = _target(file)
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise OutputError(f"{file}: its folder cannot be made ({error.strerror}); choose another place.") from error
        needed = [target.parent, target] if target.exists() else [target.parent]
    if not all(os.access(place, os.W_OK) for place in needed):
        raise OutputError(f"{file}: may not be written (see the permissions); choose another place.")


def write_csv(stream: IO[bytes], rows: Iterable[Iterable[object]]) -> None:
    """File names that are no UTF-8 are written as they are on the disk."""

    class Encoded:
        def write(self, text: str) -> int:
            return stream.write(text.encode("utf-8", "surrogateescape"))

    csv.writer(Encoded(), lineterminator="\n").writerows(rows)


def valid_json(text: str) -> str:
    """JSON that UTF-8 can hold: of a file name that is no UTF-8, each such byte becomes the escape that JSON has."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


GONE = "missing"
"""The stamp of a video that is not there."""


def stamp_video(path: Path) -> str:
    """Changes when a video does: size and time of change; of a folder of frames, those of every one, and its name."""
    try:
        facts = path.stat()
        if not stat.S_ISDIR(facts.st_mode):
            return f"{facts.st_size}-{facts.st_mtime_ns}"
        with os.scandir(path) as entries:
            frames = sorted(
                (entry.name, entry.stat().st_size, entry.stat().st_mtime_ns)
                for entry in entries
                if not entry.name.startswith(".")
            )
    except OSError:
        return GONE
    return f"{len(frames)} frames-{hashlib.sha256(repr(frames).encode()).hexdigest()[:16]}"


def is_stamp_of(stamp: str, path: Path) -> bool:
    """Whether a video is as it was when `stamp` was made; of a folder of frames also by the stamp of version 0.1."""
    if stamp == stamp_video(path):
        return True
    try:
        times = [entry.stat().st_mtime_ns for entry in path.iterdir() if not entry.name.startswith(".")]
    except OSError:
        return False
    return stamp == f"{len(times)} frames-{max(times, default=0)}"


def _target(file: Path) -> Path:
    """Where links lead; a circle of them leads to itself."""
    return Path(os.path.realpath(file))
