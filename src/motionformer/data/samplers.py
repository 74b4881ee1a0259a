"""How a clip is cut from a video, as objects a data set is given: uniform (method.md §6) and released (fidelity.md).

A sampler is given the video's clock and, where a record is only a piece of the video, the piece's frames. It returns
numbers of frames in the video: t for a clip, v lists of t for views.
"""

import sys
from dataclasses import dataclass, field, replace
from typing import Protocol, runtime_checkable

import torch
from torch import Generator

from motionformer.video.sample import (
    ClipPlan,
    Start,
    kinetics_clip,
    piece_clip,
    random_in_segments,
    random_segment_indices,
    random_start,
    segment_indices,
    segment_middles,
    strided_clip,
    view_starts,
)
from motionformer.video.source import Clock
from motionformer.video.spec import InputSpec, SamplingProtocol


@runtime_checkable
class FrameSampler(Protocol):
    """Which frames make the clip (t numbers), or the views of a clip (v lists of t numbers), of a video."""

    @property
    def is_strided(self) -> bool:
        """Whether frames are a fixed time apart, so that the video's rate matters."""

    @property
    def protocol(self) -> SamplingProtocol:
        """Whose rules it follows: they also say which pixels are read, and where a piece of a video begins."""

    def __call__(
        self, clock: Clock, generator: Generator | None = None, piece: range | None = None
    ) -> list[int] | list[list[int]]:
        """Numbers of frames in the video. `piece` is the part of the video that is sampled, by default all of it."""


def train_sampler(spec: InputSpec) -> FrameSampler:
    """How a model's training clips are cut."""
    if spec.protocol == "released":
        return _ReleasedRandomSegments(spec.frames) if spec.sampling == "segments" else _ReleasedRandomClip(_plan(spec))
    return RandomSegments(spec.frames) if spec.sampling == "segments" else RandomClip(_plan(spec))


def eval_sampler(spec: InputSpec) -> FrameSampler:
    """How a model's test clips are cut; segments cover the whole video, so they make a single view."""
    if spec.protocol == "released":
        if spec.sampling == "segments":
            return _ReleasedSegments(spec.frames)
        return _ReleasedViews(_plan(spec), tuple(Start(i, spec.views) for i in range(spec.views)))
    return MiddleSegments(spec.frames) if spec.sampling == "segments" else ViewClips(_plan(spec), spec.views)


def middle_sampler(spec: InputSpec) -> FrameSampler:
    """One clip from the middle of the video, for validation while training and for features.

    The released program has no such clip: its only view of one begins with the video.
    """
    if spec.protocol == "released" and spec.sampling == "stride":
        return _ReleasedViews(_plan(spec), (Start(1, 2),))
    return eval_sampler(replace(spec, views=1))


def clip_offsets(spec: InputSpec, fps: float) -> list[int]:
    """Frames from the first frame of a clip at a stride to each of them, in a video of any length at `fps`."""
    plan = _plan(spec)
    if spec.protocol == "released":
        return kinetics_clip(plan, Clock(sys.maxsize, fps), Start(0))
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
        return _released_clip(self.plan, clock, piece, Start(u))


@dataclass(frozen=True)
class _ReleasedViews:
    """Testing on Kinetics and EPIC as the authors did: one clip for each start."""

    plan: ClipPlan
    starts: tuple[Start, ...]
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
        return [span[i] for i in random_in_segments(len(span), self.num_segments, _required(generator, self))]


@dataclass(frozen=True)
class _ReleasedSegments:
    """Testing on Something-Something as the authors did."""

    num_segments: int
    is_strided = False
    protocol: SamplingProtocol = field(default="released", init=False)

    def __call__(self, clock: Clock, generator: Generator | None = None, piece: range | None = None) -> list[int]:
        span = _span(clock, piece)
        return [span[i] for i in segment_middles(len(span), self.num_segments)]


def _released_clip(plan: ClipPlan, clock: Clock, piece: range | None, start: Start) -> list[int]:
    return kinetics_clip(plan, clock, start) if piece is None else piece_clip(plan, clock, piece, start)


def _span(clock: Clock, piece: range | None) -> range:
    return range(clock.num_frames) if piece is None else piece


def _plan(spec: InputSpec) -> ClipPlan:
    return ClipPlan(spec.frames, spec.stride, spec.fps)


def _required(generator: Generator | None, sampler: object) -> Generator:
    if generator is None:
        raise ValueError(f"{sampler!r} draws at random: pass a torch.Generator.")
    return generator
