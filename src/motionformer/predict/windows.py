"""Clips out of frames that arrive one at a time: a ring buffer as long as one clip, nothing else is kept.

The end of the video is found when it comes.
"""

import math
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Generic, TypeVar

from motionformer.errors import EvaluationError
from motionformer.models import InputSpec
from motionformer.video import ReadFacts
from motionformer.video.sample import clamp, clip_offsets, rate, segment_indices, segment_middles

T = TypeVar("T")
SEGMENTS_SECONDS = 4.0
"""How much of a long video is one clip for weights that were trained on whole short ones: the mean of
Something-Something."""


@dataclass(frozen=True)
class Windows:
    """Windows of `span` frames every `hop` frames; `pick` says which of a window's frames make the clip."""

    span: int
    hop: Fraction
    pick: Callable[[int], list[int]]


@dataclass(frozen=True)
class Picked(Generic[T]):
    """One window: it covers the frames `start … end − 1`; `frames` are those that make its clip."""

    start: int
    end: int
    frames: list[T]
    facts: ReadFacts


def model_windows(spec: InputSpec, fps: float, hop: float | None = None, seconds: float | None = None) -> Windows:
    """Windows as long as the clips a model was trained on, every `hop` seconds (half of one by default).

    Weights trained on segments of whole videos have no length of their own: it is `seconds`, or four.
    """
    if spec.sampling == "segments":
        length = SEGMENTS_SECONDS if seconds is None else seconds
        return even_windows(spec, fps, length, length / 2 if hop is None else hop)
    if seconds is not None:
        raise EvaluationError(
            f"the model's clips are {spec.frames} frames at a stride of {spec.stride}; they have their own length."
        )
    offsets = clip_offsets(spec, fps)
    span = offsets[-1] + 1
    step = Fraction(max(1, span // 2)) if hop is None else _frames(hop, fps, "hop")
    return Windows(span, step, lambda count: clamp(offsets, count))


def even_windows(spec: InputSpec, fps: float, seconds: float, hop: float | None = None) -> Windows:
    """Windows of `seconds`, of which the model's frames at even distances make the clip; end to end by default.

    The hop is a fraction of frames, so that windows do not drift away from the clock.
    """
    length = _frames(seconds, fps, "the length of a window")
    step = length if hop is None else _frames(hop, fps, "hop")
    pick = segment_middles if spec.protocol == "released" else segment_indices
    return Windows(min(round(length), sys.maxsize), step, lambda count: pick(count, spec.frames))


def slide(frames: Iterable[T], windows: Windows) -> Iterator[Picked[T]]:
    """Every window as soon as its last frame is there.

    What remains after the last whole window gets one more, moved back to end with the video. A video shorter than a
    window is one.
    """
    ring: deque[T] = deque(maxlen=windows.span)
    count, emitted = 0, 0
    for frame in frames:
        ring.append(frame)
        count += 1
        if int(emitted * windows.hop) + windows.span == count:
            yield pick(ring, count, windows)
            emitted += 1
    if not count:
        return
    last = max(0, count - windows.span)
    if not emitted or int((emitted - 1) * windows.hop) < last:
        yield pick(ring, count, windows)


def pick(held: Sequence[T], count: int, windows: Windows) -> Picked[T]:
    """The window that ends with frame `count − 1`, of which `held` are the frames."""
    chosen = windows.pick(len(held))
    return Picked(count - len(held), count, [held[i] for i in chosen], ReadFacts.of([chosen]))


def _frames(seconds: float, fps: float, what: str) -> Fraction:
    """At least one."""
    rounded = Fraction(seconds).limit_denominator(100_000) if math.isfinite(seconds) else Fraction(0)
    if rounded <= 0:
        raise EvaluationError(f"{what} is a number of seconds above 0, not {seconds:g}.")
    return max(rounded * rate(fps), Fraction(1))
