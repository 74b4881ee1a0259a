"""A video, whatever it is stored as: metadata, a clock, and frames by number. Knows nothing of decoders.

Seconds are counted from the first frame. Where the rate is constant, frame i appears at i / fps, which is cleaner than
the container's rounded time stamps; where it varies, only the time stamps tell.
"""

import math
from abc import ABC, abstractmethod
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field
from fractions import Fraction
from itertools import pairwise
from operator import index as as_int
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

from jaxtyping import UInt8
from torch import Tensor

from motionformer.errors import VideoError
from motionformer.logging import show_count


@dataclass(frozen=True)
class VideoMetadata:
    """Facts about one video, as `read` will deliver it."""

    num_frames: int
    """Frames in presentation order; `read` takes 0 … num_frames − 1."""
    fps: float
    """Frames per second; the mean where the rate varies."""
    duration: float
    """Seconds from the first frame's appearance to the last one's end."""
    height: int
    """After rotation and pixel aspect: the height of what `read` returns."""
    width: int
    """After rotation and pixel aspect: the width of what `read` returns."""
    codec: str
    """FFmpeg's name of the codec (`h264`), or the image format of a folder (`jpg`)."""
    rotation: int
    """Degrees clockwise that were applied to show the frames upright: 0, 90, 180 or 270."""
    variable_rate: bool
    """Frames do not lie on one regular grid of times, so index / fps is not the time of a frame (`Video.clock` is)."""
    exact_count: bool
    """`num_frames` comes from decoding every frame; otherwise from the container's packets, one frame each."""


@dataclass(frozen=True)
class _Timing:
    """Rate and length of a video, in seconds."""

    fps: float
    duration: float
    variable_rate: bool


def measure_timing(times: Sequence[int], tick: Fraction, announced_rate: Fraction | None) -> _Timing:
    """Rate and length from the frames' own times (ascending, in ticks), the announced rate where they agree.

    Containers round times to ticks (a millisecond in Matroska), so the announced rate is the cleaner number for a
    regular video, and the only one for a single frame.
    """
    announced = float(announced_rate) if announced_rate and announced_rate > 0 else 0.0
    span = times[-1] - times[0] if times else 0
    if len(times) < 2 or span <= 0:
        fps = announced or 1.0
        return _Timing(fps, len(times) / fps, variable_rate=False)
    steps = len(times) - 1
    measured = float(Fraction(steps, span) / tick)
    variable = _is_uneven([after - before for before, after in pairwise(times)], tick)
    fps = announced if not variable and abs(announced - measured) < 0.01 * measured else measured
    return _Timing(fps, len(times) / fps, variable)


def _is_uneven(gaps: Sequence[int], tick: Fraction) -> bool:
    """Whether the gaps between frames differ by more than rounding explains: a tick or a millisecond.

    (Times often pass through milliseconds on their way.) A gap half as long again as another is one whatever the tick.
    """
    rounding = max(Fraction(1), Fraction(1, 1000) / tick)
    return max(gaps) - min(gaps) > rounding or 2 * max(gaps) >= 3 * min(gaps)


_TOLERANCE = 1e-6
"""Of frames at a constant rate, of seconds otherwise: what computing with floats may do to a time."""

_MILLISECOND = 0.001
"""Time stamps often pass through milliseconds on their way, whatever their own unit is."""


@dataclass(frozen=True)
class Header:
    """What a container's header announces, and the time stamps of its frames: what the released sampling goes by."""

    stamps: Sequence[int]
    """Presentation time of every frame, ascending, in ticks."""
    num_frames: int
    """As announced; 0 where the header has none."""
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
            return math.ceil(seconds * self.fps - _TOLERANCE)
        return bisect_left(self.times, seconds - _TOLERANCE)

    def span(self, start: float | None = None, end: float | None = None) -> range:
        """The frames that appear from `start` (included) to `end` (excluded): at least one, unless `start` is too late.

        Where the rate varies, none may appear for a while: it is then the one that is still on the screen.
        """
        first = 0 if start is None else self.frame_at(start)
        stop = self.num_frames if end is None else self.frame_at(end)
        if self.times is not None and first >= stop and (start or 0.0) < self.duration:
            first = bisect_right(self.times, (start or 0.0) + _TOLERANCE) - 1
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
        is_steady = abs(stamped - steady) <= max(float(self.tick), _MILLISECOND)
        self.times.append(steady if is_steady else stamped)

    def seconds(self, frame: int) -> float:
        """When this frame appears; for the one after the last, when the last one ends."""
        if frame < len(self.times):
            return self.times[frame]
        known = len(self.times)
        if not known or self.times[-1] == (known - 1) / self.fps:
            return frame / self.fps
        return self.times[-1] + (frame - known + 1) / self.fps


_V = TypeVar("_V", bound="Video")
_T = TypeVar("_T")


class Video(ABC):
    """An open video. Close it, or use it in a `with`; it belongs to the process and thread that opened it.

    Example:
        ```python
        with open_video("clip.mp4") as video:
            frames = video.read(range(0, video.metadata.num_frames, 10))
        ```
    """

    path: Path
    metadata: VideoMetadata
    damaged: bool | None = False
    """Whether the decoder reported damage in what was read so far, or in what that leans on (`check` finds where); None
    where it does not report any."""

    def __len__(self) -> int:
        return self.metadata.num_frames

    def __repr__(self) -> str:
        of = self.metadata
        frames = show_count(of.num_frames, "frame")
        return f"Video({str(self.path)!r}: {frames} {of.height}×{of.width}, {of.fps:g} per second)"

    @abstractmethod
    def read(self, indices: Sequence[int]) -> UInt8[Tensor, "t H W 3"]:
        """RGB frames, in the order asked for; indices may repeat. Raises `VideoError`."""

    @abstractmethod
    def check(self) -> VideoMetadata:
        """Decode every frame strictly; metadata with the exact count, or a `VideoError` at the first damaged frame."""

    @property
    def clock(self) -> Clock:
        """When frames appear: by their own times where the rate varies and they have some, otherwise by the rate."""
        return Clock(self.metadata.num_frames, self.metadata.fps)

    @abstractmethod
    def close(self) -> None:
        """Let go of the file."""

    def _checked(self, indices: Sequence[int]) -> list[int]:
        """As integers, all of them inside the video. Negative ones are mistakes, not counts from the end."""
        plain, count = [as_int(i) for i in indices], self.metadata.num_frames
        for i in plain:
            if not 0 <= i < count:
                raise VideoError(
                    f"is out of range: the video has {show_count(count, 'frame')}, 0 to {count - 1}", self.path, frame=i
                )
        return plain

    def __enter__(self: _V) -> _V:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


@dataclass(frozen=True)
class ReadFacts:
    """What a result was made from: how many frames of a clip differ, and damage."""

    frames: int
    """Of a clip."""
    distinct_frames: int
    """Of these, how many differ, in the clip that has the fewest: a video that is slower than the rate at which its
    clips are sampled, or shorter than a clip, shows frames several times."""
    damaged: bool | None = False
    """Whether the decoder reported damage in what was read; None where it does not report any."""

    @classmethod
    def of(cls, clips: Sequence[Sequence[int]], damaged: bool | None = False) -> "ReadFacts":
        """Of clips by the numbers of their frames."""
        return cls(len(clips[0]), min(len(set(clip)) for clip in clips), damaged)

    @classmethod
    def together(cls, parts: Iterable["ReadFacts"]) -> "ReadFacts":
        """Of all parts of one video."""
        all_ = list(parts)
        reported = [part.damaged for part in all_]
        damaged = True if True in reported else None if None in reported else False
        return cls(all_[0].frames, min(part.distinct_frames for part in all_), damaged)

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def retry_if_frame_count_changed(video: Video, take: Callable[[], _T]) -> _T:
    """What `take` gives, which chooses frames of the video by its length and reads them.

    Where reading finds out that the container announced a wrong number of frames, they were chosen for another length:
    `take` is called once more.
    """
    announced = video.metadata.num_frames
    try:
        taken = take()
    except VideoError:
        if video.metadata.num_frames == announced:
            raise
    else:
        if video.metadata.num_frames == announced:
            return taken
    return take()
