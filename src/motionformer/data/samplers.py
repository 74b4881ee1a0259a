"""The four ways a clip is cut from a video in the paper's protocol (method.md §6), as objects a data set is given."""

from dataclasses import dataclass

from torch import Generator

from motionformer.models.config import InputSpec
from motionformer.video.sample import (
    ClipPlan,
    random_segment_indices,
    random_start,
    segment_indices,
    strided_clip,
    view_starts,
)


def train_sampler(spec: InputSpec) -> "RandomClip | RandomSegments":
    """How a model's training clips are cut."""
    return RandomSegments(spec.frames) if spec.sampling == "segments" else RandomClip(_plan(spec))


def eval_sampler(spec: InputSpec) -> "ViewClips | MiddleSegments":
    """How a model's test clips are cut; segments cover the whole video, so they make a single view."""
    return MiddleSegments(spec.frames) if spec.sampling == "segments" else ViewClips(_plan(spec), spec.views)


@dataclass(frozen=True)
class RandomClip:
    """Training on Kinetics and EPIC: frames at a stride, anywhere in the video."""

    plan: ClipPlan
    is_strided = True

    def __call__(self, num_frames: int, fps: float, generator: Generator | None) -> list[int]:
        start = random_start(self.plan, num_frames, fps, _required(generator, self))
        return strided_clip(self.plan, num_frames, fps, start)


@dataclass(frozen=True)
class ViewClips:
    """Testing on Kinetics and EPIC: v clips at a stride, spread evenly from the start to the end."""

    plan: ClipPlan
    num_views: int = 1
    is_strided = True

    def __call__(self, num_frames: int, fps: float, generator: Generator | None) -> list[list[int]]:
        starts = view_starts(self.plan, num_frames, fps, self.num_views)
        return [strided_clip(self.plan, num_frames, fps, start) for start in starts]


@dataclass(frozen=True)
class RandomSegments:
    """Training on Something-Something: one frame at random from each of t equal parts of the video."""

    num_segments: int
    is_strided = False

    def __call__(self, num_frames: int, fps: float, generator: Generator | None) -> list[int]:
        return random_segment_indices(num_frames, self.num_segments, _required(generator, self))


@dataclass(frozen=True)
class MiddleSegments:
    """Testing on Something-Something: the middle frame of each of t equal parts."""

    num_segments: int
    is_strided = False

    def __call__(self, num_frames: int, fps: float, generator: Generator | None) -> list[int]:
        return segment_indices(num_frames, self.num_segments)


def _plan(spec: InputSpec) -> ClipPlan:
    return ClipPlan(spec.frames, spec.stride, spec.fps)


def _required(generator: Generator | None, sampler: object) -> Generator:
    if generator is None:
        raise ValueError(f"{sampler!r} draws at random: pass a torch.Generator.")
    return generator
