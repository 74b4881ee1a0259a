"""Frames and seconds: when a frame appears, and which frames a piece of a video has. Knows no decoder.

Seconds are counted from the first frame. Where the rate is constant, frame i appears at i / fps, which is cleaner than
the container's rounded time stamps; where it varies, only the time stamps tell.
"""

import math
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction

TOLERANCE = 1e-6
"""Of frames at a constant rate, of seconds otherwise: what computing with floats may do to a time."""

MILLISECOND = 0.001
"""Time stamps often pass through milliseconds on their way, whatever their own unit is."""


@dataclass(frozen=True)
class Header:
    """What a container's header announces, and the time stamps of its frames: what the released sampling goes by."""

    stamps: Sequence[int]
    """Presentation time of every frame, ascending, in ticks."""
    num_frames: int
    """As announced; 0 where the header does not say."""
    duration: int | None
    """As announced, in ticks."""
    fps: float
    """The average rate as announced."""


@dataclass(frozen=True)
class Clock:
    """When each frame of a video appears."""

    num_frames: int
    fps: float
    times: Sequence[float] | None = None
    """Of every frame, ascending, where the rate varies and they are known."""
    header: Header | None = field(default=None, compare=False, repr=False)
    """Of a video file; a folder of frames and frames in memory have none."""

    @property
    def duration(self) -> float:
        return self.seconds(self.num_frames)

    def seconds(self, frame: int) -> float:
        """When this frame appears; for `num_frames`, when the last one ends."""
        if self.times is None:
            return frame / self.fps
        return self.times[frame] if frame < self.num_frames else self.times[-1] + 1 / self.fps

    def frame_at(self, seconds: float) -> int:
        """The first frame that does not appear before this time; after the last one, `num_frames` or more."""
        if self.times is None:
            return math.ceil(seconds * self.fps - TOLERANCE)
        return bisect_left(self.times, seconds - TOLERANCE)

    def span(self, start: float | None = None, end: float | None = None) -> range:
        """The frames that appear from `start` (included) to `end` (excluded): at least one, unless `start` is too late.

        Where the rate varies, none may appear for a while: it is then the one that is still on the screen.
        """
        first = 0 if start is None else self.frame_at(start)
        stop = self.num_frames if end is None else self.frame_at(end)
        if self.times is not None and first >= stop and (start or 0.0) < self.duration:
            first = bisect_right(self.times, (start or 0.0) + TOLERANCE) - 1
        return range(first, max(first + 1, min(stop, self.num_frames))) if first < self.num_frames else range(0)


class StreamClock:
    """When frames appear that are decoded one after the other: learnt as they come, eight bytes a frame.

    `tick` is the length of a time stamp's unit in seconds; without one, nothing is learnt and the rate is constant.
    """

    def __init__(self, fps: float, tick: Fraction | None = None) -> None:
        self.fps, self.tick = fps, tick
        self.times = array("d")
        self.first_stamp = 0

    def add(self, stamp: int | None) -> None:
        """The time stamp of the next frame. One that is missing or runs backwards is replaced by the rate."""
        if self.tick is None:
            return
        if not self.times:
            self.first_stamp = stamp or 0
        frame = len(self.times)
        usual = self.seconds(frame)
        stamped = usual if stamp is None else float((stamp - self.first_stamp) * self.tick)
        if frame and stamped <= self.times[-1]:
            stamped = usual
        steady = frame / self.fps
        is_steady = abs(stamped - steady) <= max(float(self.tick), MILLISECOND)
        self.times.append(steady if is_steady else stamped)

    def seconds(self, frame: int) -> float:
        """When this frame appears; for the one after the last, when the last one ends."""
        if frame < len(self.times):
            return self.times[frame]
        known = len(self.times)
        if not known or self.times[-1] == (known - 1) / self.fps:
            return frame / self.fps
        return self.times[-1] + (frame - known + 1) / self.fps
