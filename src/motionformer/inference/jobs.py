"""Many videos to one file: shared among processes, kept as they come, put together in the order given at the end.

What a video's entry is does not depend on the videos before it, so an interrupted run, and one by several processes,
gives the file that one run would have given, byte for byte.
"""


from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from motionformer.data import Failure
from motionformer.errors import VideoError
from motionformer.inference.several import find_processes
from motionformer.runs import stamp_video
from motionformer.inference.predictor import Predictor

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

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from motionformer.inference.results import READ, write_atomically
from motionformer.runs import valid_json, write_csv

Work = Callable[[Sequence[Path]], Iterator[Entry]]
"""Paths to entries, in order. An entry is plain values for JSON; that of a failed video has "failed"."""


def run(
    paths: Sequence[Path],
    work: Work,
    *,
    header: Mapping[str, Any],
    journal: Path | None = None,
    resume: bool = False,
    on_entry: Callable[[Entry], None] = lambda entry: None,
) -> list[Entry]:
    """The entries of all paths, in their order, in every process.

    With `journal`, every entry is on the disk before the next video begins. `resume` goes on with what is there.
    """
    processes = find_processes()
    marks = {path: stamp_video(path) for path in paths}

    def begin() -> dict[tuple[str, str], Entry]:
        if journal is None:
            return {}
        if not resume:
            remove_journal(journal)
        return read_journal(journal, header)

    done = processes.first_does(begin)
    left = [path for path in paths if (str(path), marks[path]) not in done]
    for path in paths if processes.is_first else ():
        if (entry := done.get((str(path), marks[path]))) is not None:
            on_entry(entry)
    mine: dict[str, Entry] = {}
    own = processes.share(left)
    with ExitStack() as stack:
        writing = None if journal is None else stack.enter_context(Journal(journal, header, processes.rank))
        for path, entry in zip(own, work(own), strict=True):
            if writing is not None:
                writing.add(str(path), marks[path], entry)
            mine[str(path)] = entry
            on_entry(entry)
    for share in processes.gather(mine):
        done.update({(key, marks[Path(key)]): entry for key, entry in share.items()})
    return [done[str(path), marks[path]] for path in paths]


class PredictVideos:
    """The work of `motionformer predict`."""

    def __init__(self, predictor: Predictor, top: int, num_workers: int = 0) -> None:
        self.predictor, self.top, self.num_workers = predictor, top, num_workers

    def __call__(self, paths: Sequence[Path]) -> Iterator[Entry]:
        for path, found in zip(paths, self.predictor.predict_many(paths, self.num_workers), strict=True):
            yield failed(path, found.reason) if isinstance(found, Failure) else found.to_dict(self.top)


class PredictTimelines:
    """The work of `motionformer predict --timeline`."""

    def __init__(
        self,
        predictor: Predictor,
        top: int,
        threshold: float,
        hop: float | None = None,
        window: float | None = None,
        draw: "Callable[[Any], None] | None" = None,
    ) -> None:
        self.predictor, self.top, self.threshold, self.hop, self.window = predictor, top, threshold, hop, window
        self.draw = draw

    def __call__(self, paths: Sequence[Path]) -> Iterator[Entry]:
        for path in paths:
            try:
                timeline = self.predictor.timeline(path, hop=self.hop, window=self.window)
            except VideoError as error:
                yield failed(path, error.full_reason)
                continue
            if self.draw is not None:
                self.draw(timeline)
            yield timeline.to_dict(self.threshold, self.top)


def failed(path: Path, reason: str) -> Entry:
    return {"video": str(path), "failed": reason}


# ---- predict/journal: """Results of a long run, a line a video, appended as they come: killed at any moment, the run goes on from here.

A folder with one file of JSON lines for each process, so that no two write to the same. The first line of a file says
what run it is of. A line counts once it is whole; a torn last line is what the interrupted video cost.
"""

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


# ---- predict/tables: """Entries as files for scripts: one JSON document, or a csv with a line a guess (or a segment)."""


def write_json(entries: Sequence[Entry], header: Mapping[str, Any], file: Path) -> None:
    """`{..., "predictions": [...]}`, a line a video."""
    write_atomically(file, lambda stream: stream.write(json_text(entries, header).encode()))


def json_text(entries: Sequence[Entry], header: Mapping[str, Any]) -> str:
    lines = ",\n".join(json.dumps(entry, ensure_ascii=False) for entry in entries)
    return valid_json(json.dumps(dict(header), ensure_ascii=False)[:-1] + f', "predictions": [\n{lines}\n]}}\n')


def write_table(entries: Sequence[Entry], file: Path) -> None:
    """Best guess first; a failed video has one line with its reason."""
    rows = [["video", "start", "end", "task", "rank", "index", "label", "score", "failed", *READ]]
    for entry in entries:
        rows += _rows(entry)

    def write(stream: IO[bytes]) -> None:
        write_csv(stream, rows)

    write_atomically(file, write)


def _rows(entry: Entry) -> list[list[str]]:
    video, read = entry["video"], [_cell(entry.get(key)) for key in READ]
    if "failed" in entry:
        return [[video, "", "", "", "", "", "", "", entry["failed"], *read]]
    if "segments" in entry:
        return [
            [
                video,
                str(s["start"]),
                str(s["end"]),
                s["task"],
                "",
                str(s["index"]),
                s["label"],
                str(s["score"]),
                "",
                *read,
            ]
            for s in entry["segments"]
        ]
    tasks = [task for task in ("verb", "noun") if task in entry]
    named = [("action" if tasks else "class", entry["top"]), *((task, entry[task]) for task in tasks)]
    return [
        [video, "", "", task, str(rank), _index(guess["index"]), guess["label"], str(guess["score"]), "", *read]
        for task, guesses in named
        for rank, guess in enumerate(guesses, start=1)
    ]


def _cell(value: Any) -> str:
    return "" if value is None else str(value).lower()


def _index(index: Any) -> str:
    return ",".join(map(str, index)) if isinstance(index, list) else str(index)
