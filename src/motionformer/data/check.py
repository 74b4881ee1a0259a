"""Every video of a data set looked at, in parallel: does it decode to the end, is there anything odd about it, and what
came of it as numbers and tables to write."""

import json
import statistics
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any, Literal

from motionformer.data.pool import Crash, run_in_processes
from motionformer.data.record import SEPARATOR, Annotations, Record
from motionformer.errors import VideoError
from motionformer.logging import show_count
from motionformer.runs import valid_json, write_csv
from motionformer.video import VideoMetadata, open_video
from motionformer.video.container import Deadline, VideoFile

_Status = Literal["ok", "odd", "short", "broken"]
_METADATA = ("num_frames", "fps", "duration", "height", "width", "codec")
"""Of each video, in tables and JSON."""


@dataclass(frozen=True)
class _Task:
    """A video to look at, with all pieces of it that are labelled."""

    path: Path
    records: tuple[Record, ...]
    min_frames: int
    time_limit: float
    decode: bool  # every frame, or only the packets and the first frame


@dataclass(frozen=True)
class _FileReport:
    """What was found. `status` is the worst of it; `reasons` tell why it is not `ok`."""

    path: Path
    status: _Status
    reasons: tuple[str, ...] = ()
    metadata: VideoMetadata | None = None  # of one that could be opened


def _inspect_video(task: _Task) -> _FileReport:
    """Open the video, decode it, and compare its header with what it holds."""
    rate = next((record.fps for record in task.records if record.fps), 30.0)
    try:
        with open_video(task.path, time_limit=task.time_limit, image_rate=rate) as video:
            opened = video.metadata
            found = video.check() if task.decode else opened
            clock = video.clock
        header = [] if task.path.is_dir() else _header_oddities(task, found)
    except VideoError as error:
        return _FileReport(task.path, "broken", (error.full_reason,))
    lengths = [len(record.clock(clock).span(record.start, record.end)) for record in task.records]
    beyond, late = _pieces(task.records, lengths, found)
    odd = (*header, *_oddities(opened), *late)
    shortest = min([found.num_frames, *(length for length in lengths if length)])
    short = [f"{show_count(shortest, 'frame')}, fewer than {task.min_frames}"] if shortest < task.min_frames else []
    status: _Status = "broken" if beyond else "short" if short else "odd" if odd else "ok"
    return _FileReport(task.path, status, (*beyond, *short, *odd), found)


def _header_oddities(task: _Task, found: VideoMetadata) -> list[str]:
    """Where the header differs from what came out."""
    file = VideoFile(task.path, Deadline(task.time_limit))
    container, stream = file.container, file.stream
    with container:
        odd = []
        if stream.frames and stream.frames != found.num_frames:
            counted = "decoded" if task.decode else "stored"
            odd.append(f"{show_count(stream.frames, 'frame')} announced, {found.num_frames} {counted}")
        if stream.duration is None and container.duration is None:
            odd.append("no duration in the header")
        return odd


def _oddities(opened: VideoMetadata) -> list[str]:
    odd = []
    if opened.variable_rate:
        odd.append("variable frame rate")
    if opened.rotation:
        odd.append(f"rotated by {opened.rotation}°")
    if opened.exact_count and opened.codec not in ("jpg", "jpeg", "png"):
        odd.append("time stamps missing or out of order: frames have to be counted")
    return odd


def _pieces(records: Sequence[Record], lengths: Sequence[int], found: VideoMetadata) -> tuple[list[str], list[str]]:
    """Labelled pieces that lie outside the video, and those that end after it (by more than a frame)."""
    inside = [record for record, length in zip(records, lengths, strict=True) if length]
    outside = [record for record, length in zip(records, lengths, strict=True) if not length]
    ends = [record.end for record in inside if record.end and record.end > found.duration + 1 / found.fps]
    lasts = f"the video lasts {found.duration:.2f} s"
    beyond = []
    if outside:
        line = f" (line {outside[0].line})" if outside[0].line else ""
        beyond = [f"a piece begins at {outside[0].start:g} s{line}; {lasts}"]
    return beyond, [f"{len(ends)} pieces end after the video, up to {max(ends):g} s; {lasts}"] if ends else []


_USUAL_RATE = 30.0  # frames a second at which models count their stride
_GRACE = 10.0  # seconds more than the decoder's own limit before its process is ended


def scan(
    annotations: Sequence[Annotations],
    *,
    num_workers: int,
    time_limit: float = 60.0,
    min_frames: int = 16,
    decode: bool = True,
) -> Iterator[_FileReport]:
    """A report of each different video, as they come. A file that crashes or hangs its process is `broken`."""
    records = sorted((record for one in annotations for record in one), key=lambda record: record.path)
    tasks = [
        _Task(path, tuple(of_path), min_frames, time_limit, decode)
        for path, of_path in groupby(records, key=lambda record: record.path)
    ]
    limit = 2 * time_limit + _GRACE  # opening and checking have a limit each
    for index, result in run_in_processes(_inspect_video, tasks, num_workers=num_workers, time_limit=limit):
        yield _FileReport(tasks[index].path, "broken", (result.reason,)) if isinstance(result, Crash) else result


@dataclass(frozen=True)
class ScanReport:
    """The whole scan: `is_well` is false as soon as one video is broken."""

    annotations: tuple[Annotations, ...]
    files: tuple[_FileReport, ...]

    @property
    def is_well(self) -> bool:
        return not any(file.status == "broken" for file in self.files)

    def statuses(self) -> dict[str, int]:
        found = Counter(file.status for file in self.files)
        return {status: found[status] for status in ("ok", "odd", "short", "broken")}

    def problems(self) -> list[_FileReport]:
        """Everything but `ok`, the worst first."""
        order = ("broken", "short", "odd")
        found = [file for file in self.files if file.status != "ok"]
        return sorted(found, key=lambda file: (order.index(file.status), file.path))

    @property
    def _readable(self) -> list[VideoMetadata]:
        return [file.metadata for file in self.files if file.metadata is not None]

    def durations(self) -> dict[str, float]:
        """Seconds: shortest, median, longest, and all together; empty if nothing could be read."""
        seconds = [found.duration for found in self._readable]
        if not seconds:
            return {}
        return {"min": min(seconds), "median": statistics.median(seconds), "max": max(seconds), "total": sum(seconds)}

    def kinds(self) -> dict[str, dict[str, int]]:
        """How many videos of each codec, rate and size, the most frequent first."""
        read = self._readable
        columns = {
            "codec": Counter(one.codec for one in read),
            "rate": Counter(f"{one.fps:.2f}".rstrip("0").rstrip(".") for one in read),
            "size": Counter(f"{one.width}×{one.height}" for one in read),
            "frames": Counter(str(one.num_frames) for one in read),
        }
        return {name: dict(found.most_common()) for name, found in columns.items()}

    def slow_note(self) -> str | None:
        """Of how many videos a clip may show frames several times; which model reads them is not known here."""
        rates = [found.fps for found in self._readable if found.fps < _USUAL_RATE]
        if not rates:
            return None
        return (
            f"{len(rates)} of {len(self.files)} videos are slower than {_USUAL_RATE:g} frames a second, down to"
            f" {min(rates):g}: a model whose stride is s at {_USUAL_RATE:g} sees frames of a video below"
            f" {_USUAL_RATE:g} / s several times (`predict` and `evaluate` count them; --sample-by frames repeats none)"
        )

    def to_json(self) -> str:
        content = {
            "is_well": self.is_well,
            "videos": len(self.files),
            "notes": [note for note in (self.slow_note(),) if note],
            "statuses": self.statuses(),
            "durations": self.durations(),
            "kinds": self.kinds(),
            "datasets": [_describe(one) for one in self.annotations],
            "files": [_row(file, {}) for file in sorted(self.files, key=lambda file: file.path)],
        }
        return valid_json(json.dumps(content, indent=1, ensure_ascii=False, default=str))

    def write_csv(self, file: Path) -> None:
        """One line per video."""
        labels = _labels(self.annotations)
        rows = [_row(report, labels) for report in sorted(self.files, key=lambda report: report.path)]
        write_csv(file, [list(rows[0]), *(row.values() for row in rows)])


def _describe(annotations: Annotations) -> dict[str, Any]:
    fields = ("name", "split", "how", "notes", "sampling")
    return {key: getattr(annotations, key) for key in fields} | {
        "records": len(annotations),
        "classes": annotations.counts(),
    }


def _labels(annotations: Sequence[Annotations]) -> dict[Path, str]:
    """Of each video; where its pieces have different ones, every one once."""
    found: dict[Path, dict[str, None]] = {}
    for one in annotations:
        for record in one:
            found.setdefault(record.path, {}).update(dict.fromkeys(_each_label(one, record)))
    return {path: SEPARATOR.join(names) for path, names in found.items()}


def _each_label(annotations: Annotations, record: Record) -> list[str]:
    if isinstance(record.label, tuple):
        return [annotations.label_name(label) for label in record.label]
    return [] if record.label is None else [annotations.label_name(record.label)]


def _row(file: _FileReport, labels: dict[Path, str]) -> dict[str, Any]:
    row: dict[str, Any] = {"path": str(file.path), "status": file.status, "reasons": "; ".join(file.reasons)}
    row |= {key: None if file.metadata is None else getattr(file.metadata, key) for key in _METADATA}
    return row | ({"label": labels.get(file.path, "")} if labels else {})
