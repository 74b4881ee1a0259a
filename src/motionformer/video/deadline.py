"""A time limit for one call, so that no file can hold a loader for ever."""

import time

from motionformer.errors import VideoError


class Deadline:
    """Counts down from the moment it is made; `None` never ends."""

    def __init__(self, seconds: float | None) -> None:
        self.seconds = seconds
        self.end = None if seconds is None else time.monotonic() + seconds

    def remaining(self) -> float | None:
        """Seconds left, at least a hundredth so that FFmpeg does not take it for "no limit"."""
        return None if self.end is None else max(self.end - time.monotonic(), 0.01)

    def check(self) -> None:
        """Raise once the time is over."""
        if self.end is not None and time.monotonic() > self.end:
            raise VideoError(f"took longer than the time limit of {self.seconds:g} s")
