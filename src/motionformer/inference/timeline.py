"""What happens when in a long video, file or live: windows along time, their scores, segments above a threshold.

Frames arrive one at a time and a ring buffer as long as one clip is all that is kept; the end of the video is found
when it comes.
"""

import json
import math
import sys
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Generic, TypeVar

import numpy as np
from jaxtyping import Float32

from motionformer.errors import EvaluationError
from motionformer.inference.results import Prediction
from motionformer.logging import show_count
from motionformer.models import InputSpec
from motionformer.runs import format_csv
from motionformer.video import ReadFacts
from motionformer.video.sample import clamp, clip_offsets, rate, segment_indices, segment_middles

T = TypeVar("T")
_SEGMENTS_SECONDS = 4.0
"""Of a long video that make one clip for weights trained on whole short ones: the mean of Something-Something."""
_PATIENCE = 2.0
"""Seconds for the frame that is being read when a live source is left."""


@dataclass(frozen=True)
class Segment:
    """One class for a while: from the start of its first window to the end of its last, in seconds; `score` is the
    largest of its windows'."""

    start: float
    end: float
    label: str
    score: float
    index: int
    task: str

    def to_dict(self) -> dict[str, Any]:
        times = {"start": round(self.start, 3), "end": round(self.end, 3)}
        return {**times, "label": self.label, "score": round(self.score, 6), "index": self.index, "task": self.task}


@dataclass(frozen=True, repr=False)
class Timeline:
    """The predictions of a long video's windows, in order of time: an hour takes some megabytes.

    Example:
        ```python
        timeline = predictor.timeline("match.mp4", hop=1.0)
        for segment in timeline.segments(threshold=0.4):
            print(segment.start, segment.end, segment.label)
        ```
    """

    video: str
    duration: float
    windows: tuple[Prediction, ...]

    @property
    def facts(self) -> ReadFacts | None:
        """Of all windows together."""
        known = [window.facts for window in self.windows if window.facts is not None]
        return ReadFacts.together(known) if known else None

    @property
    def tasks(self) -> tuple[str, ...]:
        return tuple(self.windows[0].views)

    def scores(self, task: str) -> Float32[np.ndarray, "w k"]:
        """Of every window and class."""
        return np.stack([window.scores[task] for window in self.windows])

    def segments(self, threshold: float = 0.5) -> list[Segment]:
        """For every class, runs of windows whose score reaches the threshold; windows that touch are one run."""
        if not 0 < threshold <= 1:
            raise EvaluationError(f"`threshold` ({threshold:g}) must be above 0 and at most 1.")
        found = [segment for task in self.tasks for segment in self._of_task(task, threshold)]
        return sorted(found, key=lambda segment: (segment.start, segment.task, -segment.score, segment.index))

    def to_dict(self, threshold: float = 0.5, top: int = 5) -> dict[str, Any]:
        windows = [window.to_dict(top) for window in self.windows]
        shown = [{key: one[key] for key in one if key not in ("video", "views", "crops")} for one in windows]
        return {
            "video": self.video,
            "duration": round(self.duration, 3),
            "threshold": threshold,
            **({} if self.facts is None else self.facts.to_dict()),
            "segments": [segment.to_dict() for segment in self.segments(threshold)],
            "windows": shown,
        }

    def to_json(self, threshold: float = 0.5, top: int = 5) -> str:
        return json.dumps(self.to_dict(threshold, top), ensure_ascii=False)

    def to_csv(self, threshold: float = 0.5) -> str:
        """One line per segment."""
        columns = ("start", "end", "task", "index", "label", "score")
        segments = (segment.to_dict() for segment in self.segments(threshold))
        return format_csv([columns, *([one[key] for key in columns] for one in segments)])

    def __repr__(self) -> str:
        return f"Timeline({self.video!r}: {self.duration:.1f} s, {show_count(len(self.windows), 'window')})"

    def _of_task(self, task: str, threshold: float) -> Iterator[Segment]:
        scores, names = self.scores(task), self.windows[0].labels[task]
        for index in np.flatnonzero((scores >= threshold).any(axis=0)).tolist():
            for first, last in self._runs(scores[:, index] >= threshold):
                start, end = self.windows[first].start or 0.0, self.windows[last].end or 0.0
                yield Segment(start, end, names[index], float(scores[first : last + 1, index].max()), index, task)

    def _runs(self, is_above: Any) -> Iterator[tuple[int, int]]:
        """First and last window of every run; a hop longer than a window leaves gaps that end runs."""
        run: list[int] = []
        for i in np.flatnonzero(is_above).tolist():
            if run and not (i == run[-1] + 1 and self._touch(run[-1], i)):
                yield run[0], run[-1]
                run = []
            run.append(i)
        if run:
            yield run[0], run[-1]

    def _touch(self, before: int, after: int) -> bool:
        return (self.windows[after].start or 0.0) <= (self.windows[before].end or 0.0)


@dataclass(frozen=True)
class Window(Generic[T]):
    """One window: it covers the frames `start … end − 1`; `frames` are those that make its clip."""

    start: int
    end: int
    frames: list[T]
    facts: ReadFacts


@dataclass(frozen=True)
class Windows:
    """Windows of `span` frames every `hop` frames; `pick` gives those of a window's frames that make the clip."""

    span: int
    hop: Fraction
    pick: Callable[[int], list[int]]

    @classmethod
    def of_model(cls, spec: InputSpec, fps: float, hop: float | None = None, seconds: float | None = None) -> "Windows":
        """As long as the clips a model was trained on, every `hop` seconds (half of one by default).

        Weights trained on segments of whole videos have no length of their own: it is `seconds`, or four.
        """
        if spec.sampling == "segments":
            length = _SEGMENTS_SECONDS if seconds is None else seconds
            return cls.even(spec, fps, length, length / 2 if hop is None else hop)
        if seconds is not None:
            raise EvaluationError(
                f"the model's clips are {spec.frames} frames at a stride of {spec.stride}; they have their own length."
            )
        offsets = clip_offsets(spec, fps)
        span = offsets[-1] + 1
        step = Fraction(max(1, span // 2)) if hop is None else _frames(hop, fps, "hop")
        return cls(span, step, lambda count: clamp(offsets, count))

    @classmethod
    def even(cls, spec: InputSpec, fps: float, seconds: float, hop: float | None = None) -> "Windows":
        """Of `seconds`, of which the model's frames at even distances make the clip; end to end by default.

        The hop is a fraction of frames, so that windows do not drift away from the clock.
        """
        length = _frames(seconds, fps, "the length of a window")
        step = length if hop is None else _frames(hop, fps, "hop")
        pick = segment_middles if spec.protocol == "released" else segment_indices
        return cls(min(round(length), sys.maxsize), step, lambda count: pick(count, spec.frames))

    def slide(self, frames: Iterable[T]) -> Iterator[Window[T]]:
        """Every window as soon as its last frame is there.

        What remains after the last whole window gets one more, moved back to end with the video. A video shorter than
        a window is one.
        """
        ring: deque[T] = deque(maxlen=self.span)
        count, emitted = 0, 0
        for frame in frames:
            ring.append(frame)
            count += 1
            if int(emitted * self.hop) + self.span == count:
                yield self._window(ring, count)
                emitted += 1
        if count and (not emitted or int((emitted - 1) * self.hop) < count - self.span):
            yield self._window(ring, count)

    def latest(self, frames: Iterable[T]) -> Generator[Window[T], None, None]:
        """A window of consecutive frames each time at least `hop` new ones have come since the last; ends with the
        source.

        Memory is one window, however slow the model is. An error of the source is raised here.
        """
        ring = _Ring(frames, self.span)
        seen = self.span  # the first window is due when the ring is full
        try:
            while True:
                held, count, ended = ring.wait(seen)
                if count >= seen or (ended and count and seen == self.span):
                    yield self._window(held, count)
                    seen = count + max(1, int(self.hop))
                if ended and count < seen:
                    return
        finally:
            ring.stop()

    def _window(self, held: Sequence[T], count: int) -> Window[T]:
        """That ends with frame `count − 1`, of which `held` are the frames."""
        chosen = self.pick(len(held))
        return Window(count - len(held), count, [held[i] for i in chosen], ReadFacts.of([chosen]))


def _frames(seconds: float, fps: float, what: str) -> Fraction:
    """At least one."""
    rounded = Fraction(seconds).limit_denominator(100_000) if math.isfinite(seconds) else Fraction(0)
    if rounded <= 0:
        raise EvaluationError(f"{what} ({seconds:g}) must be a number of seconds above 0.")
    return max(rounded * rate(fps), Fraction(1))


class _Ring(Generic[T]):
    def __init__(self, frames: Iterable[T], size: int) -> None:
        self.frames = iter(frames)
        self.ring: deque[T] = deque(maxlen=size)
        self.count = 0
        self.ended, self.stopped = False, False
        self.error: BaseException | None = None
        self.news = threading.Condition()
        self.thread = threading.Thread(target=self._fill, name="motionformer-watch", daemon=True)
        self.thread.start()

    def wait(self, count: int) -> tuple[list[T], int, bool]:
        """The frames held once `count` have come, or the source has ended."""
        with self.news:
            self.news.wait_for(lambda: self.count >= count or self.ended)
            if self.error is not None:
                raise self.error
            return list(self.ring), self.count, self.ended

    def stop(self) -> None:
        """Read no more. A source that hangs is not waited for: its thread ends when it gives a frame, or up."""
        self.stopped = True
        self.thread.join(_PATIENCE)

    def _fill(self) -> None:
        try:
            for frame in self.frames:
                with self.news:
                    self.ring.append(frame)
                    self.count += 1
                    self.news.notify_all()
                if self.stopped:
                    break
        except BaseException as error:
            self.error = error
        finally:
            with self.news:
                self.ended = True
                self.news.notify_all()
