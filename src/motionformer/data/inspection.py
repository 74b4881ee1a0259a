"""One video looked at closely: does it decode to the end, and is there anything odd about it?"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from motionformer.data.clips import record_clock
from motionformer.data.record import Record
from motionformer.errors import VideoError
from motionformer.video import VideoMetadata, open_video
from motionformer.video.container import Deadline, open_container

Status = Literal["ok", "odd", "short", "broken"]


@dataclass(frozen=True)
class Task:
    """A video to look at, with all pieces of it that are labelled."""

    path: Path
    records: tuple[Record, ...]
    min_frames: int
    time_limit: float
    decode: bool  # every frame, or only the packets and the first frame


@dataclass(frozen=True)
class FileReport:
    """What was found. `status` is the worst of it; `reasons` says why it is not `ok`."""

    path: Path
    status: Status
    reasons: tuple[str, ...] = ()
    num_frames: int | None = None
    fps: float | None = None
    duration: float | None = None
    height: int | None = None
    width: int | None = None
    codec: str | None = None


def inspect_video(task: Task) -> FileReport:
    """Open the video, decode it, and compare what it says with what it holds."""
    rate = next((record.fps for record in task.records if record.fps), 30.0)
    try:
        with open_video(task.path, time_limit=task.time_limit, image_rate=rate) as video:
            opened = video.metadata
            found = video.check() if task.decode else opened
            clock = video.clock
        header = [] if task.path.is_dir() else _header_oddities(task, found)
    except VideoError as error:
        return FileReport(task.path, "broken", (_reason(error),))
    lengths = [len(record_clock(record, clock).span(record.start, record.end)) for record in task.records]
    beyond, late = _pieces(task.records, lengths, found)
    odd = (*header, *_oddities(opened), *late)
    short = _shortness(task, lengths, found)
    status: Status = "broken" if beyond else "short" if short else "odd" if odd else "ok"
    return FileReport(
        path=task.path,
        status=status,
        reasons=(*beyond, *short, *odd),
        num_frames=found.num_frames,
        fps=found.fps,
        duration=found.duration,
        height=found.height,
        width=found.width,
        codec=found.codec,
    )


def _header_oddities(task: Task, found: VideoMetadata) -> list[str]:
    """What the container says of itself, beside what came out of it."""
    container, stream = open_container(task.path, Deadline(task.time_limit), num_threads=1)
    with container:
        odd = []
        if stream.frames and stream.frames != found.num_frames:
            odd.append(f"{stream.frames} frames announced, {found.num_frames} {'decoded' if task.decode else 'stored'}")
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


def _shortness(task: Task, lengths: Sequence[int], found: VideoMetadata) -> list[str]:
    shortest = min([found.num_frames, *(length for length in lengths if length)])
    return [f"{shortest} frames, fewer than {task.min_frames}"] if shortest < task.min_frames else []


def _pieces(records: Sequence[Record], lengths: Sequence[int], found: VideoMetadata) -> tuple[list[str], list[str]]:
    """Labelled pieces that lie outside the video, and those that go on after its end (by more than a frame)."""
    inside = [record for record, length in zip(records, lengths, strict=True) if length]
    outside = [record for record, length in zip(records, lengths, strict=True) if not length]
    ends = [record.end for record in inside if record.end and record.end > found.duration + 1 / found.fps]
    lasts = f"the video lasts {found.duration:.2f} s"
    beyond = [f"a piece begins at {record.start:g} s{_line(record)}; {lasts}" for record in outside[:1]]
    return beyond, [f"{len(ends)} pieces end after the video, up to {max(ends):g} s; {lasts}"] if ends else []


def _line(record: Record) -> str:
    return f" (line {record.line})" if record.line else ""


def _reason(error: VideoError) -> str:
    return error.reason if error.frame is None else f"frame {error.frame} {error.reason}"
