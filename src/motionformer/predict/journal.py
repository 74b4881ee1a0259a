"""Results of a long run, a line a video, appended as they come: killed at any moment, the run goes on from here.

A folder with one file of JSON lines for each process, so that no two write to the same. The first line of a file says
what run it is of. A line counts once it is whole; a torn last line is what the interrupted video cost.
"""

import json
import logging
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

from motionformer.errors import EvaluationError
from motionformer.runs import naming

log = logging.getLogger("motionformer")
Entry = dict[str, Any]


class Journal:
    """Where this process writes. Use in a `with`."""

    def __init__(self, folder: Path, header: Mapping[str, Any], rank: int = 0) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.file = folder / f"{rank:04d}.jsonl"
        fresh = not self.file.exists() or not _cut_torn_end(self.file)
        self.stream = self.file.open("ab")
        if fresh:
            self._write(dict(header))

    def add(self, key: str, mark: str, entry: Entry) -> None:
        """On the disk when this returns."""
        self._write({"key": key, "stamp": mark, "entry": entry})

    def _write(self, value: Mapping[str, Any]) -> None:
        with naming(self.file):
            self.stream.write(json.dumps(value).encode() + b"\n")
            self.stream.flush()
            os.fsync(self.stream.fileno())

    def __enter__(self) -> "Journal":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with naming(self.file):
            self.stream.close()


def read_journal(folder: Path, header: Mapping[str, Any]) -> dict[tuple[str, str], Entry]:
    """Entries by key and stamp. Refuses a journal of another run: its results would be mixed with this one's."""
    found: dict[tuple[str, str], Entry] = {}
    for file in sorted(folder.glob("*.jsonl")):
        lines = file.read_bytes().split(b"\n")[:-1]
        if not lines:
            continue
        _refuse_others(file, json.loads(lines[0]), header)
        for number, line in enumerate(lines[1:], start=2):
            found.update(_read_line(line, f"{file}:{number}"))
    return found


def remove_journal(folder: Path) -> None:
    if folder.exists():
        shutil.rmtree(folder)


def _read_line(line: bytes, where: str) -> dict[tuple[str, str], Entry]:
    try:
        one = json.loads(line)
        return {(one["key"], one["stamp"]): one["entry"]}
    except (ValueError, KeyError, TypeError) as error:
        log.warning("%s is damaged (%s); this video is done again", where, error)
        return {}


def _refuse_others(file: Path, found: Mapping[str, Any], header: Mapping[str, Any]) -> None:
    wanted = json.loads(json.dumps(dict(header)))
    if differences := sorted(key for key in {*found, *wanted} if found.get(key) != wanted.get(key)):
        raise EvaluationError(
            f"{file} is of another run: {', '.join(differences)} differ. Leave --resume out to start afresh, or write"
            " to another file."
        )


def _cut_torn_end(file: Path) -> int:
    """Bytes that remain."""
    data = file.read_bytes()
    whole = data.rfind(b"\n") + 1
    if whole < len(data):
        os.truncate(file, whole)
    return whole
