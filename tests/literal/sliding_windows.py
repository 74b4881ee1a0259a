"""Windows of a video whose length is known: what the windows of a stream must be."""

from collections.abc import Iterator
from dataclasses import dataclass

from motionformer.video.sample import ClipPlan, strided_clip


@dataclass(frozen=True)
class Window:
    """One clip of a long video: it covers the frames `start … end − 1`, of which it shows `indices`."""

    start: int
    end: int
    indices: list[int]


def sliding_windows(plan: ClipPlan, num_frames: int, fps: float, hop: int) -> Iterator[Window]:
    """Clips that start every `hop` frames of the video and together show all of it, one at a time.

    What remains after the last whole clip gets one more, moved back to end with the video, so that no frame repeats.
    A video shorter than one clip gets one, with its last frame repeated.
    """
    last = max(0, num_frames - plan.span(fps))
    starts = range(0, last + 1, hop)
    yield from (window_at(plan, num_frames, fps, start) for start in starts)
    if starts[-1] < last:
        yield window_at(plan, num_frames, fps, last)


def window_at(plan: ClipPlan, num_frames: int, fps: float, start: int) -> Window:
    end = min(start + plan.span(fps), num_frames)
    return Window(start, end, strided_clip(plan, num_frames, fps, start))
