"""Which frames make a clip (method.md §6). Integers in, integers out; knows no files.

Every index lies in `0 … num_frames − 1`: where a video is too short for its clip, its last frame repeats. Fractions
round downwards, in exact arithmetic, so an index never depends on the machine. To sample a part of a video, pass its
length and add its first frame to what comes out.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction

import torch


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
class Window:
    """One clip of a long video: it covers the frames `start … end − 1`, of which it shows `indices`."""

    start: int
    end: int
    indices: list[int]


def strided_clip(plan: ClipPlan, num_frames: int, fps: float, start: int) -> list[int]:
    """The clip that starts at frame `start` of a video of `num_frames` frames at `fps`."""
    step = plan.step(fps)
    return clamp([start + int(k * step) for k in range(plan.frames)], num_frames)


def random_start(plan: ClipPlan, num_frames: int, fps: float, generator: torch.Generator) -> int:
    """Any start from which the clip fits, all equally likely; 0 in a video that is too short (training)."""
    return int(torch.randint(last_start(plan, num_frames, fps) + 1, (), generator=generator))


def view_starts(plan: ClipPlan, num_frames: int, fps: float, num_views: int) -> list[int]:
    """Starts of v clips spread evenly: the first begins with the video, the last ends with it (testing).

    A single view is the middle one. Views of a short video coincide.
    """
    last = last_start(plan, num_frames, fps)
    if num_views < 1:
        raise ValueError(f"needs at least one view, got {num_views}")
    return [last // 2] if num_views == 1 else [i * last // (num_views - 1) for i in range(num_views)]


def segment_indices(num_frames: int, num_segments: int) -> list[int]:
    """The middle frame of each of t equal parts of the whole video (SSv2, testing)."""
    check(num_frames, num_segments)
    return [(2 * k + 1) * num_frames // (2 * num_segments) for k in range(num_segments)]


def random_segment_indices(num_frames: int, num_segments: int, generator: torch.Generator) -> list[int]:
    """A random frame of each of t equal parts of the whole video (SSv2, training).

    A part shorter than a frame gives the frame that it lies in.
    """
    check(num_frames, num_segments)
    bounds = [k * num_frames // num_segments for k in range(num_segments + 1)]
    sizes = [max(1, bounds[k + 1] - bounds[k]) for k in range(num_segments)]
    return [bounds[k] + int(torch.randint(sizes[k], (), generator=generator)) for k in range(num_segments)]


def uniform_indices(num_frames: int, count: int) -> list[int]:
    """`count` frames over the whole video at even distances, from its first to its last; one alone is the middle."""
    check(num_frames, count)
    if count == 1:
        return [(num_frames - 1) // 2]
    return [k * (num_frames - 1) // (count - 1) for k in range(count)]


def sliding_windows(plan: ClipPlan, num_frames: int, fps: float, hop: int) -> Iterator[Window]:
    """Clips that start every `hop` frames of the video and together show all of it, one at a time.

    What remains after the last whole clip gets one more, moved back to end with the video, so that no frame repeats.
    A video shorter than one clip gets one, with its last frame repeated.
    """
    check(num_frames, hop)
    last = last_start(plan, num_frames, fps)
    starts = range(0, last + 1, hop)
    yield from (window_at(plan, num_frames, fps, start) for start in starts)
    if starts[-1] < last:
        yield window_at(plan, num_frames, fps, last)


def window_at(plan: ClipPlan, num_frames: int, fps: float, start: int) -> Window:
    end = min(start + plan.span(fps), num_frames)
    return Window(start, end, strided_clip(plan, num_frames, fps, start))


def last_start(plan: ClipPlan, num_frames: int, fps: float) -> int:
    """The latest frame at which the clip can start and still fit; 0 in a video that is too short."""
    check(num_frames, 1)
    return max(0, num_frames - plan.span(fps))


def clamp(indices: Sequence[int], num_frames: int) -> list[int]:
    return [min(max(i, 0), num_frames - 1) for i in indices]


def check(num_frames: int, count: int) -> None:
    if num_frames < 1 or count < 1:
        raise ValueError(f"a video and a sample need at least one frame each, got {num_frames} and {count}")


def rate(fps: float) -> Fraction:
    """Frames per second as the fraction it stands for: 29.97002997… is 30000/1001."""
    if not 0 < fps < float("inf"):
        raise ValueError(f"a video's rate must be a positive number of frames per second, got {fps}")
    return Fraction(fps).limit_denominator(100_000)
