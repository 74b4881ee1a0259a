"""The four ways a clip is cut from a video in the paper's protocol (SPEC §6), as objects a data set is given."""

from dataclasses import dataclass

from torch import Generator

from motionformer.video.sample import Stride, random_clip, segment_clip, segment_middles, view_clip


@dataclass(frozen=True)
class RandomClip:
    """Training on Kinetics and EPIC: frames at a stride, anywhere in the video."""

    stride: Stride
    is_strided = True

    def __call__(self, num_frames: int, fps: float, generator: Generator | None) -> list[int]:
        return random_clip(self.stride, num_frames, fps, _required(generator, self))


@dataclass(frozen=True)
class ViewClips:
    """Testing on Kinetics and EPIC: v clips at a stride, spread evenly from the start to the end."""

    stride: Stride
    num_views: int = 1
    is_strided = True

    def __call__(self, num_frames: int, fps: float, generator: Generator | None) -> list[list[int]]:
        return [view_clip(self.stride, num_frames, fps, view, self.num_views) for view in range(self.num_views)]


@dataclass(frozen=True)
class RandomSegments:
    """Training on Something-Something: one frame at random from each of t equal parts of the video."""

    num_segments: int
    is_strided = False

    def __call__(self, num_frames: int, fps: float, generator: Generator | None) -> list[int]:
        return segment_clip(self.num_segments, num_frames, _required(generator, self))


@dataclass(frozen=True)
class MiddleSegments:
    """Testing on Something-Something: the middle frame of each of t equal parts."""

    num_segments: int
    is_strided = False

    def __call__(self, num_frames: int, fps: float, generator: Generator | None) -> list[int]:
        return segment_middles(self.num_segments, num_frames)


def _required(generator: Generator | None, sampler: object) -> Generator:
    if generator is None:
        raise ValueError(f"{sampler!r} draws at random: pass a torch.Generator.")
    return generator
