"""Frames at a constant rate, read in the two ways that audio-visual projects read theirs. They are not the same frames.

`clock`: the reader behind MMAudio's demo. Instants are summed up in steps of 1 / rate, and each shows the first frame
that appears at or after it. The sum drifts: of a video that has 25 frames per second already, item 18 is frame 19.

`filter`: FFmpeg's own `fps` filter, which rounds the times of frames to the nearest instant. Data sets and metrics that
read through FFmpeg (torchaudio, the command line) get these.
"""

from collections import deque
from collections.abc import Iterable, Iterator
from fractions import Fraction
from itertools import chain, islice
from typing import Literal, TypeVar

from av.filter import Graph
from av.video.frame import VideoFrame

Resample = Literal["clock", "filter"]
_SLOW_RATE = 8
"""The demo reads a video at two rates, and keeps as much as both have."""
_HELD = 2
"""Frames whose fate the end decides."""
T = TypeVar("T")


def by_clock(frames: Iterable[tuple[float, T]], rate: int, seconds: float | None = None) -> Iterator[T]:
    """Frames with the time at which each appears, as a sequence of `rate` per second.

    Args:
        frames: times in seconds, in the order in which a decoder gives them; those before 0 are not shown.
        rate: frames per second.
        seconds: of the video that are read [default: all].
    """
    end = float("inf") if seconds is None else seconds
    due, slow_due = 0.0, 0.0
    count, slow_count = 0, 0
    held: deque[T] = deque()
    for time, frame in frames:
        if time > end:
            break
        if time < 0:
            continue
        while time >= slow_due:
            slow_due += 1 / _SLOW_RATE
            slow_count += 1
        while time >= due:
            due += 1 / rate
            count += 1
            held.append(frame)
            if len(held) > _HELD:
                yield held.popleft()
    given = count - len(held)
    keep = int(rate * min(end, slow_count / _SLOW_RATE, count / rate))
    for frame in held:
        if given < keep:
            yield frame
        given += 1


def by_filter(frames: Iterable[VideoFrame], rate: int, seconds: float | None = None) -> Iterator[VideoFrame]:
    """The same through FFmpeg's `fps` filter: it goes by the frames' `pts`; the first `frame.time` is the beginning."""
    return islice(_filter(frames, rate), None if seconds is None else round(rate * seconds))


def with_regular_times(frames: Iterable[VideoFrame], rate: Fraction) -> Iterator[VideoFrame]:
    """Frames of a file that stores no times, or none to be trusted: one after the other, at its rate."""
    for i, frame in enumerate(frames):
        frame.pts, frame.time_base = i, 1 / rate
        yield frame


def _filter(frames: Iterable[VideoFrame], rate: int) -> Iterator[VideoFrame]:
    graph: Graph | None = None
    for frame in chain(frames, [None]):  # None: no more will come
        if graph is None and frame is not None:
            graph = Graph()
            source = graph.add_buffer(
                width=frame.width, height=frame.height, format=frame.format, time_base=frame.time_base
            )
            resampled, sink = graph.add("fps", f"fps={rate}"), graph.add("buffersink")
            source.link_to(resampled)
            resampled.link_to(sink)
            graph.configure()
        if graph is not None:
            graph.vpush(frame)
            yield from _pull(graph)


def _pull(graph: Graph) -> Iterator[VideoFrame]:
    while True:
        try:
            yield graph.vpull()
        except (BlockingIOError, EOFError):
            return
