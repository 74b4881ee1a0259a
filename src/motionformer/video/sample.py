"""Which frames make a clip: samplers, and the arithmetic below them.

Uniform (method.md §6) and as the authors' programs take them (`released`, docs/fidelity.md). A sampler is given the
video's clock and, where a record is only a piece of the video, the piece's frames. All numbers are of frames in the
video, `0 … num_frames − 1`: where a video is too short for its clip, its last frame repeats. Uniform fractions round
downwards, in exact arithmetic, so an index never depends on the machine; to sample a part of a video, pass its length
and add its first frame to what comes out. Released arithmetic is in the precision and the order of the release, because
its results are truncated.
"""

import sys
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Protocol, runtime_checkable

import torch
from torch import Generator

from motionformer.video.source import Clock
from motionformer.video.spec import InputSpec, SamplingProtocol


@dataclass(frozen=True)
class ClipPlan:
    """`frames` frames, `stride` apart, counted at `fps`: the paper's 16×4 is `ClipPlan(16, 4)`."""

    frames: int
    stride: int
    fps: float | None = 30.0
    """Rate at which `stride` counts, whatever the video's own rate is. `None` counts the video's own frames."""

    def __post_init__(self) -> None:
        if self.frames < 1 or self.stride < 1 or (self.fps is not None and self.fps <= 0):
            raise ValueError(f"a clip needs at least 1 frame, a stride of at least 1 and a positive rate; got {self}")

    def step(self, fps: float) -> Fraction:
        """Frames of a video at `fps` from one frame of the clip to the next."""
        return Fraction(self.stride) if self.fps is None else self.stride * rate(fps) / rate(self.fps)

    def span(self, fps: float) -> int:
        """Frames of a video at `fps` from the first one of the clip to the last, both counted."""
        return int((self.frames - 1) * self.step(fps)) + 1


@dataclass(frozen=True)
class _Start:
    """Where a clip begins: at `share / of` of the slack, the frames by which the video is longer than the clip.

    View i of v is `_Start(i, v)`: the first begins with the video, the last begins before it could end with it. A
    training clip is `_Start(u)`, u uniform in [0, 1).
    """

    share: int | float
    of: int = 1

    def __call__(self, slack: float) -> float:
        return slack * self.share / self.of


@runtime_checkable
class FrameSampler(Protocol):
    """Which frames make the clip (t numbers), or the views of a clip (v lists of t numbers), of a video."""

    @property
    def is_strided(self) -> bool:
        """Whether frames are a fixed time apart, so that the video's rate matters."""

    @property
    def protocol(self) -> SamplingProtocol:
        """Whose rules it follows: they also decide which pixels are read, and where a piece of a video begins."""

    def __call__(
        self, clock: Clock, generator: Generator | None = None, piece: range | None = None
    ) -> list[int] | list[list[int]]:
        """Numbers of frames in the video. `piece` is the part of the video that is sampled, by default all of it."""


def train_sampler(spec: InputSpec) -> FrameSampler:
    """The sampler of a model's training clips: random in time, or a random frame of each segment.

    Example:
        >>> train_sampler(InputSpec(frames=16, stride=4))
        RandomClip(plan=ClipPlan(frames=16, stride=4, fps=30.0), protocol='uniform')
    """
    if spec.protocol == "released":
        return _ReleasedRandomSegments(spec.frames) if spec.sampling == "segments" else _ReleasedRandomClip(_plan(spec))
    return RandomSegments(spec.frames) if spec.sampling == "segments" else RandomClip(_plan(spec))


def eval_sampler(spec: InputSpec) -> FrameSampler:
    """The sampler of a model's test clips; segments cover the whole video, so they make a single view.

    Example:
        >>> eval_sampler(InputSpec(frames=2, stride=4, views=2))(Clock(30, 30.0))
        [[0, 4], [25, 29]]
    """
    if spec.protocol == "released":
        if spec.sampling == "segments":
            return _ReleasedSegments(spec.frames)
        return _ReleasedViews(_plan(spec), tuple(_Start(i, spec.views) for i in range(spec.views)))
    return MiddleSegments(spec.frames) if spec.sampling == "segments" else ViewClips(_plan(spec), spec.views)


def middle_sampler(spec: InputSpec) -> FrameSampler:
    """One clip from the middle of the video, for validation while training and for features.

    The released program has no such clip: its only view of one begins with the video.
    """
    if spec.protocol == "released" and spec.sampling == "stride":
        return _ReleasedViews(_plan(spec), (_Start(1, 2),))
    return eval_sampler(replace(spec, views=1))


def clip_offsets(spec: InputSpec, fps: float) -> list[int]:
    """Frames from the first frame of a clip at a stride to each of them, in a video of any length at `fps`."""
    plan = _plan(spec)
    if spec.protocol == "released":
        return _kinetics_clip(plan, Clock(sys.maxsize, fps), _Start(0))
    return strided_clip(plan, sys.maxsize, fps, 0)


@dataclass(frozen=True)
class RandomClip:
    """Training on Kinetics and EPIC: frames at a stride, anywhere in the video."""

    plan: ClipPlan
    is_strided = True
    protocol: SamplingProtocol = field(default="uniform", init=False)

    def __call__(self, clock: Clock, generator: Generator | None = None, piece: range | None = None) -> list[int]:
        span = _span(clock, piece)
        start = random_start(self.plan, len(span), clock.fps, _required(generator, self))
        return [span[i] for i in strided_clip(self.plan, len(span), clock.fps, start)]


@dataclass(frozen=True)
class ViewClips:
    """Testing on Kinetics and EPIC: v clips at a stride, spread evenly from the start to the end."""

    plan: ClipPlan
    num_views: int = 1
    is_strided = True
    protocol: SamplingProtocol = field(default="uniform", init=False)

    def __call__(self, clock: Clock, generator: Generator | None = None, piece: range | None = None) -> list[list[int]]:
        span = _span(clock, piece)
        starts = view_starts(self.plan, len(span), clock.fps, self.num_views)
        return [[span[i] for i in strided_clip(self.plan, len(span), clock.fps, start)] for start in starts]


@dataclass(frozen=True)
class RandomSegments:
    """Training on Something-Something: one frame at random from each of t equal parts of the video."""

    num_segments: int
    is_strided = False
    protocol: SamplingProtocol = field(default="uniform", init=False)

    def __call__(self, clock: Clock, generator: Generator | None = None, piece: range | None = None) -> list[int]:
        span = _span(clock, piece)
        return [span[i] for i in random_segment_indices(len(span), self.num_segments, _required(generator, self))]


@dataclass(frozen=True)
class MiddleSegments:
    """Testing on Something-Something: the middle frame of each of t equal parts."""

    num_segments: int
    is_strided = False
    protocol: SamplingProtocol = field(default="uniform", init=False)

    def __call__(self, clock: Clock, generator: Generator | None = None, piece: range | None = None) -> list[int]:
        span = _span(clock, piece)
        return [span[i] for i in segment_indices(len(span), self.num_segments)]


@dataclass(frozen=True)
class _ReleasedRandomClip:
    """Training on Kinetics and EPIC as the authors did."""

    plan: ClipPlan
    is_strided = True
    protocol: SamplingProtocol = field(default="released", init=False)

    def __call__(self, clock: Clock, generator: Generator | None = None, piece: range | None = None) -> list[int]:
        u = float(torch.rand((), generator=_required(generator, self), dtype=torch.float64))
        return _released_clip(self.plan, clock, piece, _Start(u))


@dataclass(frozen=True)
class _ReleasedViews:
    """Testing on Kinetics and EPIC as the authors did: one clip for each start."""

    plan: ClipPlan
    starts: tuple[_Start, ...]
    is_strided = True
    protocol: SamplingProtocol = field(default="released", init=False)

    def __call__(self, clock: Clock, generator: Generator | None = None, piece: range | None = None) -> list[list[int]]:
        return [_released_clip(self.plan, clock, piece, start) for start in self.starts]


@dataclass(frozen=True)
class _ReleasedRandomSegments:
    """Training on Something-Something as the authors did."""

    num_segments: int
    is_strided = False
    protocol: SamplingProtocol = field(default="released", init=False)

    def __call__(self, clock: Clock, generator: Generator | None = None, piece: range | None = None) -> list[int]:
        span = _span(clock, piece)
        return [span[i] for i in _random_in_segments(len(span), self.num_segments, _required(generator, self))]


@dataclass(frozen=True)
class _ReleasedSegments:
    """Testing on Something-Something as the authors did."""

    num_segments: int
    is_strided = False
    protocol: SamplingProtocol = field(default="released", init=False)

    def __call__(self, clock: Clock, generator: Generator | None = None, piece: range | None = None) -> list[int]:
        span = _span(clock, piece)
        return [span[i] for i in segment_middles(len(span), self.num_segments)]


def _released_clip(plan: ClipPlan, clock: Clock, piece: range | None, start: _Start) -> list[int]:
    return _kinetics_clip(plan, clock, start) if piece is None else _piece_clip(plan, clock, piece, start)


def _span(clock: Clock, piece: range | None) -> range:
    return range(clock.num_frames) if piece is None else piece


def _plan(spec: InputSpec) -> ClipPlan:
    return ClipPlan(spec.frames, spec.stride, spec.fps)


def _required(generator: Generator | None, sampler: object) -> Generator:
    if generator is None:
        raise ValueError(f"{sampler!r} draws at random: pass a torch.Generator.")
    return generator


def strided_clip(plan: ClipPlan, num_frames: int, fps: float, start: int) -> list[int]:
    """The clip that starts at frame `start` of a video of `num_frames` frames at `fps`."""
    step = plan.step(fps)
    return clamp([start + int(k * step) for k in range(plan.frames)], num_frames)


def random_start(plan: ClipPlan, num_frames: int, fps: float, generator: torch.Generator) -> int:
    """Any start from which the clip fits, all equally likely; 0 in a video that is too short (training)."""
    return int(torch.randint(_last_start(plan, num_frames, fps) + 1, (), generator=generator))


def view_starts(plan: ClipPlan, num_frames: int, fps: float, num_views: int) -> list[int]:
    """Starts of v clips spread evenly: the first begins with the video, the last ends with it (testing).

    A single view is the middle one. Views of a short video coincide.
    """
    last = _last_start(plan, num_frames, fps)
    if num_views < 1:
        raise ValueError(f"needs at least one view, got {num_views}")
    return [last // 2] if num_views == 1 else [i * last // (num_views - 1) for i in range(num_views)]


def segment_indices(num_frames: int, num_segments: int) -> list[int]:
    """The middle frame of each of t equal parts of the whole video (SSv2, testing)."""
    _check(num_frames, num_segments)
    return [(2 * k + 1) * num_frames // (2 * num_segments) for k in range(num_segments)]


def random_segment_indices(num_frames: int, num_segments: int, generator: torch.Generator) -> list[int]:
    """A random frame of each of t equal parts of the whole video (SSv2, training).

    A part shorter than a frame gives the frame that it lies in.
    """
    _check(num_frames, num_segments)
    bounds = [k * num_frames // num_segments for k in range(num_segments + 1)]
    sizes = [max(1, bounds[k + 1] - bounds[k]) for k in range(num_segments)]
    return [bounds[k] + int(torch.randint(sizes[k], (), generator=generator)) for k in range(num_segments)]


def _last_start(plan: ClipPlan, num_frames: int, fps: float) -> int:
    """The latest frame at which the clip can start and still fit; 0 in a video that is too short."""
    _check(num_frames, 1)
    return max(0, num_frames - plan.span(fps))


def clamp(indices: Sequence[int], num_frames: int) -> list[int]:
    return [min(max(i, 0), num_frames - 1) for i in indices]


def _check(num_frames: int, count: int) -> None:
    if num_frames < 1 or count < 1:
        raise ValueError(f"a video and a sample need at least one frame each, got {num_frames} and {count}")


def rate(fps: float) -> Fraction:
    """Frames per second as the fraction it stands for: 29.97002997… is 30000/1001."""
    if not 0 < fps < float("inf"):
        raise ValueError(f"a video's rate must be a positive number of frames per second, got {fps}")
    return Fraction(fps).limit_denominator(100_000)


def _clip_length(plan: ClipPlan, fps: float) -> float:
    """Frames of a video at `fps` that a clip covers, not rounded: stride · frames, and not (frames − 1) strides."""
    return plan.stride * plan.frames / (plan.fps or fps) * fps


def _kinetics_clip(plan: ClipPlan, clock: Clock, start: _Start) -> list[int]:
    """Of a whole video (Kinetics).

    A file whose header has a duration is cut by presentation times: the clip is spread over the frames from the first
    one at or after its beginning to one beyond its end. Any other video is cut by counting its frames.
    """
    _check(clock.num_frames, plan.frames)
    header = clock.header
    fps = clock.fps if header is None else header.fps
    length = _clip_length(plan, fps)
    if header is not None and header.duration and header.num_frames:
        begin = start(max(header.num_frames - length, 0.0))
        tick = header.duration / header.num_frames
        first = bisect_left(header.stamps, int(begin * tick))
        beyond = bisect_right(header.stamps, int((begin + length - 1) * tick))
        kept = min(beyond + 1, clock.num_frames) - first
        if kept > 0:  # else the header announces frames that are not there
            return [first + i for i in _spread(0.0, length - 1, plan.frames, kept)]
    begin = start(max(clock.num_frames - length, 0.0))
    return _spread(begin, begin + length - 1, plan.frames, clock.num_frames)


def _piece_clip(plan: ClipPlan, clock: Clock, piece: range, start: _Start) -> list[int]:
    """Of a piece of a long video, given by its frames (EPIC-Kitchens).

    The release numbers its image files from 1, and keeps the last but one frame as the last that a clip can show.
    """
    _check(len(piece), plan.frames)
    length = plan.frames * plan.stride * clock.fps / (plan.fps or clock.fps)
    begin = start(max(len(piece) - length, 0.0))
    picks = _spread(begin + 1, begin + length, plan.frames, len(piece))
    return clamp([piece.start + i - 1 for i in picks], clock.num_frames)


def piece_frames(clock: Clock, start: float | None, end: float | None) -> range:
    """The frames of a piece given in seconds: both ends rounded to the nearest frame, half to even."""
    first = 0 if start is None else round(start * clock.fps)
    stop = clock.num_frames if end is None else round(end * clock.fps)
    return range(first, max(first + 1, stop))


def _segment_bounds(num_frames: int, num_segments: int) -> list[tuple[int, int]]:
    """First and last frame of each segment, both included; neighbours share a frame (Something-Something)."""
    _check(num_frames, num_segments)
    length = (num_frames - 1) / num_segments
    return [(round(length * k), round(length * (k + 1))) for k in range(num_segments)]


def segment_middles(num_frames: int, num_segments: int) -> list[int]:
    """Testing on Something-Something."""
    return [(low + high) // 2 for low, high in _segment_bounds(num_frames, num_segments)]


def _random_in_segments(num_frames: int, num_segments: int, generator: torch.Generator) -> list[int]:
    """Training on Something-Something."""
    bounds = _segment_bounds(num_frames, num_segments)
    return [int(torch.randint(low, high + 1, (), generator=generator)) for low, high in bounds]


def _spread(first: float, last: float, count: int, num_frames: int) -> list[int]:
    """`count` numbers at even distances, in single precision, cut to whole frames of `num_frames`."""
    picks = torch.linspace(first, last, count, dtype=torch.float32).clamp(0, num_frames - 1)
    return [int(i) for i in picks.trunc().tolist()]
