"""A folder that a long job can continue in: atomic files, stamps of input files, header, journal of parts, lock.

Every job that resumes uses these: `train`, `evaluate`, `predict`, `features`, the experiments and `data shard`.
"""

import base64
import csv
import hashlib
import io
import json
import logging
import os
import shutil
import stat
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import IO, Any

import numpy as np

from motionformer.distributed import is_rank_zero
from motionformer.errors import OutputError

log = logging.getLogger("motionformer")
Entry = dict[str, Any]
"""Plain values for JSON, and numpy arrays, nested at will."""


def make_folder(folder: Path) -> None:
    """Create an output folder.

    Raises:
        OutputError: it cannot be created.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        file = next((one for one in (folder, *folder.parents) if one.exists() and not one.is_dir()), None)
        reason = error.strerror or error if file is None else f"{file} is a file, and a folder is needed there"
        raise OutputError(f"{folder}: this folder cannot be created ({reason}); choose another output.") from error


@contextmanager
def lock_folder(folder: Path, job: str = "running") -> Iterator[None]:
    """Create the folder and hold it for the processes of one job; rank zero holds it for all of them.

    The lock belongs to the process: it is gone when the process is killed, and loader workers do not inherit it. Do
    not nest: the end of the inner one would release the outer one.

    Raises:
        OutputError: another process holds the folder, it cannot be created, or the system has no file locks.
    """
    if not is_rank_zero():
        yield
        return
    try:
        import fcntl
    except ModuleNotFoundError as error:
        raise OutputError(
            f"{folder}: this system has no POSIX file locks (fcntl), which jobs that resume need."
            " Use Linux, macOS or WSL."
        ) from error
    make_folder(folder)
    try:
        lock = (folder / ".lock").open("w")
    except OSError as error:
        raise OutputError(f"{folder}: cannot be written ({error.strerror or error}).") from error
    with lock as stream:
        try:
            fcntl.lockf(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise OutputError(
                f"{folder}: another process is {job} here; wait for it, or choose another output."
            ) from error
        yield


def header_differences(
    found: Mapping[str, Any], wanted: Mapping[str, Any], may_differ: Collection[str] = ()
) -> list[str]:
    """Keys (dotted where nested) of two headers whose values differ, with both values; compared as JSON stores them."""
    before, after = (_flatten(json.loads(json.dumps(dict(header), default=str))) for header in (found, wanted))
    return [
        f"{key} ({before.get(key)!r} there, {after.get(key)!r} now)"
        for key in sorted({*before, *after} - set(may_differ))
        if before.get(key) != after.get(key)
    ]


class Journal:
    """Results of a long job, appended as they come, so that a killed job resumes from what is on the disk.

    A folder with one file of JSON lines per rank: no two processes write to the same one. The first line is the header
    of the job. A line counts once it is complete; a torn last line is what the interrupted item cost.

    Example:
        ```python
        done = read_journal(folder, header)
        with Journal(folder, header, rank) as journal:
            for path in paths:
                if (str(path), stamp_video(path)) not in done:
                    journal.add(str(path), stamp_video(path), {"label": "wave", "scores": np.zeros(3)})
        ```
    """

    def __init__(self, folder: Path, header: Mapping[str, Any], rank: int = 0) -> None:
        make_folder(folder)  # another machine of the job may have another disk
        self.file = folder / f"{rank:04d}.jsonl"
        is_new = not self.file.exists() or not _cut_torn_end(self.file)
        self.stream = self.file.open("ab")
        if is_new:
            self._write([dict(header)])

    def add(self, key: str, stamp: str, entry: Entry) -> None:
        """Append one result; it is on the disk when this returns."""
        self.add_all([(key, stamp, entry)])

    def add_all(self, entries: Iterable[tuple[str, str, Entry]]) -> None:
        """Append several results with one wait for the disk."""
        self._write([{"key": key, "stamp": stamp, "entry": entry} for key, stamp, entry in entries])

    def _write(self, values: list[dict[str, Any]]) -> None:
        with naming(self.file):
            self.stream.writelines(json.dumps(value, default=_encode_array).encode() + b"\n" for value in values)
            self.stream.flush()
            os.fsync(self.stream.fileno())

    def __enter__(self) -> "Journal":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with naming(self.file):
            self.stream.close()


def read_journal(
    folder: Path, header: Mapping[str, Any], may_differ: Collection[str] = ()
) -> dict[tuple[str, str], Entry]:
    """Entries of an interrupted job by key and stamp; empty where there is none.

    Raises:
        OutputError: the journal is of another job; its results would be mixed with this one's.
    """
    found: dict[tuple[str, str], Entry] = {}
    for file in sorted(folder.glob("*.jsonl")):
        lines = file.read_bytes().split(b"\n")[:-1]
        if not lines:
            continue
        if differences := header_differences(_read_json(lines[0], f"{file}:1"), header, may_differ):
            raise OutputError(
                f"{file} is of another run: {', '.join(differences)}. Choose another output, or remove {folder}."
            )
        for number, line in enumerate(lines[1:], start=2):
            one = _read_json(line, f"{file}:{number}")
            if one.keys() >= {"key", "stamp", "entry"}:
                found[one["key"], one["stamp"]] = one["entry"]
    return found


def remove_journal(folder: Path) -> None:
    """Remove the journal of a finished job."""
    if folder.exists():
        shutil.rmtree(folder)


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
    """Errors of the system inside name this file: that of a full disk names none, and nobody knows `aside`."""
    try:
        yield
    except OSError as error:
        if error.errno is not None and (error.filename is None or error.filename == str(aside)):
            error.filename = str(file)
        raise


def check_output(file: Path) -> None:
    """Before long work: make the folder that its results go to, and check that the file can be written."""
    if file.is_dir():
        raise OutputError(f"{file} is a folder, and a file is to be written there; choose another name.")
    needed = [file]
    if not is_special(file):
        target = _target(file)
        make_folder(target.parent)
        needed = [target.parent, target] if target.exists() else [target.parent]
    if not all(os.access(path, os.W_OK) for path in needed):
        raise OutputError(f"{file}: may not be written (see the permissions); choose another output.")


def write_csv(file: Path, rows: Iterable[Iterable[object]]) -> None:
    """All rows or nothing. File names that are no UTF-8 are written as they are on the disk."""
    write_atomically(file, format_csv(rows).encode("utf-8", "surrogateescape"))


def format_csv(rows: Iterable[Iterable[object]]) -> str:
    """Rows as the text of a csv file; `None` is an empty cell."""
    text = io.StringIO(newline="")
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue()


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


def _flatten(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in values.items():
        flat |= _flatten(value, f"{prefix}{key}.") if isinstance(value, dict) and value else {f"{prefix}{key}": value}
    return flat


def _read_json(line: bytes, where: str) -> dict[str, Any]:
    try:
        found = json.loads(line, object_hook=_decode_array)
    except ValueError as error:
        log.warning("%s is damaged (%s); its result is computed again", where, error)
        return {}
    return found if isinstance(found, dict) else {}


def _encode_array(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        data = base64.b64encode(np.ascontiguousarray(value).tobytes()).decode()
        return {"array": data, "dtype": value.dtype.str, "shape": value.shape}
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"{type(value).__name__} is no value for JSON")


def _decode_array(value: dict[str, Any]) -> Any:
    if value.keys() != {"array", "dtype", "shape"}:
        return value
    return np.frombuffer(base64.b64decode(value["array"]), np.dtype(value["dtype"])).reshape(value["shape"])


def _cut_torn_end(file: Path) -> int:
    """Bytes that remain."""
    data = file.read_bytes()
    whole = data.rfind(b"\n") + 1
    if whole < len(data):
        os.truncate(file, whole)
    return whole
