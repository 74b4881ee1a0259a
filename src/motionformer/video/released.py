"""Which frames the authors' programs take: the sampling of `InputSpec.protocol = "released"` (docs/fidelity.md).

Every function gives numbers of frames in the video, from 0. Arithmetic is in the precision and the order of the
release, because its results are truncated.
"""

from bisect import bisect_left, bisect_right
from dataclasses import dataclass

import torch

from motionformer.video.clock import Clock
from motionformer.video.sample import ClipPlan, check, clamp


@dataclass(frozen=True)
class Start:
    """Where a clip begins: at `share / of` of the slack, the frames by which the video is longer than the clip.

    View i of v is `Start(i, v)`: the first begins with the video, the last begins before it could end with it. A
    training clip is `Start(u)`, u uniform in [0, 1).
    """

    share: int | float
    of: int = 1

    def __call__(self, slack: float) -> float:
        return slack * self.share / self.of


def clip_length(plan: ClipPlan, fps: float) -> float:
    """Frames of a video at `fps` that a clip covers, not rounded: stride · frames, and not (frames − 1) strides."""
    return plan.stride * plan.frames / (plan.fps or fps) * fps


def kinetics_clip(plan: ClipPlan, clock: Clock, start: Start) -> list[int]:
    """Of a whole video (Kinetics).

    A file whose header has a duration is cut by presentation times: the clip is spread over the frames from the first
    one at or after its beginning to one beyond its end. Any other video is cut by counting its frames.
    """
    check(clock.num_frames, plan.frames)
    header = clock.header
    fps = clock.fps if header is None else header.fps
    length = clip_length(plan, fps)
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


def piece_clip(plan: ClipPlan, clock: Clock, piece: range, start: Start) -> list[int]:
    """Of a piece of a long video, given by its frames (EPIC-Kitchens).

    The release numbers its image files from 1, and keeps the last but one frame as the last that a clip can show.
    """
    check(len(piece), plan.frames)
    length = plan.frames * plan.stride * clock.fps / (plan.fps or clock.fps)
    begin = start(max(len(piece) - length, 0.0))
    picks = _spread(begin + 1, begin + length, plan.frames, len(piece))
    return clamp([piece.start + i - 1 for i in picks], clock.num_frames)


def piece_frames(clock: Clock, start: float | None, end: float | None) -> range:
    """The frames of a piece given in seconds: both ends rounded to the nearest frame, half to even."""
    first = 0 if start is None else round(start * clock.fps)
    stop = clock.num_frames if end is None else round(end * clock.fps)
    return range(first, max(first + 1, stop))


def segment_bounds(num_frames: int, num_segments: int) -> list[tuple[int, int]]:
    """First and last frame of each segment, both included; neighbours share a frame (Something-Something)."""
    check(num_frames, num_segments)
    length = (num_frames - 1) / num_segments
    return [(round(length * k), round(length * (k + 1))) for k in range(num_segments)]


def segment_middles(num_frames: int, num_segments: int) -> list[int]:
    """Testing on Something-Something."""
    return [(low + high) // 2 for low, high in segment_bounds(num_frames, num_segments)]


def random_in_segments(num_frames: int, num_segments: int, generator: torch.Generator) -> list[int]:
    """Training on Something-Something."""
    bounds = segment_bounds(num_frames, num_segments)
    return [int(torch.randint(low, high + 1, (), generator=generator)) for low, high in bounds]


def _spread(first: float, last: float, count: int, num_frames: int) -> list[int]:
    """`count` numbers at even distances, in single precision, cut to whole frames of `num_frames`."""
    picks = torch.linspace(first, last, count, dtype=torch.float32).clamp(0, num_frames - 1)
    return [int(i) for i in picks.trunc().tolist()]
