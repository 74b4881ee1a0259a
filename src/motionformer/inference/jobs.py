"""Many videos, one job: shared among processes, every result kept in a journal as it comes, all in order at the end.

A video's result does not depend on the videos before it, so an interrupted job, and one of several processes, gives
what one process would have given, byte for byte.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from motionformer.data import Failure
from motionformer.distributed import current_rank
from motionformer.errors import VideoError
from motionformer.inference.predictor import Predictor
from motionformer.inference.results import READ
from motionformer.inference.timeline import Timeline
from motionformer.runs import (
    Entry,
    Journal,
    atomic_write,
    read_journal,
    remove_journal,
    stamp_video,
    valid_json,
    write_csv,
)

Work = Callable[[Sequence[Path]], Iterable[Entry]]
"""Paths to results, in order: plain values for JSON, with "failed" for a video that could not be read."""


def run_job(
    paths: Sequence[Path],
    work: Work,
    *,
    description: str = "",
    header: Mapping[str, Any] | None = None,
    journal: Path | None = None,
    resume: bool = False,
) -> list[Entry]:
    """The results of all paths, in their order, on every rank.

    With `journal`, every result is on the disk before the next video begins; `resume` continues with those of an
    earlier job with the same `header` whose files have not changed.
    """
    rank = current_rank()
    stamps = {} if journal is None else {path: stamp_video(path) for path in paths}
    done: dict[Path, Entry] = rank.on_zero(lambda: _read_done(journal, header or {}, resume, stamps))
    own = rank.share([path for path in paths if path not in done])
    mine: dict[Path, Entry] = {}
    with ExitStack() as stack:
        advance = stack.enter_context(progress_bar(description, len(paths), len(done)))
        kept = None if journal is None else stack.enter_context(Journal(journal, header or {}, rank.rank))
        for path, entry in zip(own, work(own), strict=True):
            if kept is not None:
                kept.add(str(path), stamps[path], entry)
            mine[path] = entry
            advance(1)
    for share in rank.gather(mine):
        done |= share
    return [done[path] for path in paths]


def predict_videos(predictor: Predictor, paths: Sequence[Path], top: int) -> Iterator[Entry]:
    """The work of `motionformer predict`."""
    for path, found in zip(paths, predictor.predict_many(paths), strict=True):
        yield _failed(path, found.reason) if isinstance(found, Failure) else found.to_dict(top)


def predict_timelines(
    predictor: Predictor,
    paths: Sequence[Path],
    top: int,
    threshold: float,
    *,
    hop: float | None = None,
    window: float | None = None,
    draw: Callable[[Timeline], None] = lambda timeline: None,
) -> Iterator[Entry]:
    """The work of `motionformer predict --timeline`."""
    for path in paths:
        try:
            timeline = predictor.timeline(path, hop=hop, window=window)
        except VideoError as error:
            yield _failed(path, error.full_reason)
            continue
        draw(timeline)
        yield timeline.to_dict(threshold, top)


def predictions_json(entries: Sequence[Entry], header: Mapping[str, Any]) -> str:
    """`{..., "predictions": [...]}`, one line per video."""
    lines = ",\n".join(json.dumps(entry, ensure_ascii=False) for entry in entries)
    return valid_json(json.dumps(dict(header), ensure_ascii=False)[:-1] + f', "predictions": [\n{lines}\n]}}\n')


def write_predictions_csv(entries: Sequence[Entry], file: Path) -> None:
    """One line per class or segment, best first; a failed video has one line with its reason."""
    rows = [["video", "start", "end", "task", "rank", "index", "label", "score", "failed", *READ]]
    for entry in entries:
        rows += _csv_rows(entry)
    with atomic_write(file) as stream:
        write_csv(stream, rows)


def _failed(path: Path, reason: str) -> Entry:
    """The result of a video that could not be read."""
    return {"video": str(path), "failed": reason}


@contextmanager
def progress_bar(
    description: str, total: int, completed: int = 0, *, show: bool = True
) -> Iterator[Callable[[int], None]]:
    """On stderr of rank zero, if it is a terminal; the other processes are taken to be equally fast."""
    rank, console = current_rank(), Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    hidden = not (show and console.is_terminal and rank.is_zero)
    with Progress(*columns, console=console, transient=True, disable=hidden) as progress:
        bar = progress.add_task(description, total=total, completed=completed)
        yield lambda count: progress.advance(bar, count * rank.world_size)


def _read_done(
    journal: Path | None, header: Mapping[str, Any], resume: bool, stamps: Mapping[Path, str]
) -> dict[Path, Entry]:
    if journal is None:
        return {}
    if not resume:
        remove_journal(journal)
    entries = read_journal(journal, header)
    return {path: entries[str(path), stamp] for path, stamp in stamps.items() if (str(path), stamp) in entries}


def _csv_rows(entry: Entry) -> list[list[Any]]:
    video, read = entry["video"], ["" if (value := entry.get(key)) is None else str(value).lower() for key in READ]
    if "failed" in entry:
        return [[video, "", "", "", "", "", "", "", entry["failed"], *read]]
    if "segments" in entry:
        return [
            [video, s["start"], s["end"], s["task"], "", s["index"], s["label"], s["score"], "", *read]
            for s in entry["segments"]
        ]
    tasks = [task for task in ("verb", "noun") if task in entry]
    named = [("action" if tasks else "class", entry["top"]), *((task, entry[task]) for task in tasks)]
    return [
        [video, "", "", task, rank, _index(one["index"]), one["label"], one["score"], "", *read]
        for task, best in named
        for rank, one in enumerate(best, start=1)
    ]


def _index(index: Any) -> str:
    return ",".join(map(str, index)) if isinstance(index, list) else str(index)
