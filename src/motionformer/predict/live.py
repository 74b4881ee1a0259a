"""The newest window of a live source: a thread reads, a ring buffer forgets, the model looks when free."""

import threading
from collections import deque
from collections.abc import Generator, Iterable
from typing import Generic, TypeVar

from motionformer.predict.windows import Picked, Windows, pick

T = TypeVar("T")
PATIENCE = 2.0
"""Seconds for the frame that is being read when the taker leaves."""


def latest_windows(frames: Iterable[T], windows: Windows) -> Generator[Picked[T], None, None]:
    """A window of consecutive frames each time at least `hop` new ones have come since the last; ends with the source.

    Memory is one window, however slow the taker is. An error of the source is raised here.
    """
    ring = _Ring(frames, windows.span)
    seen = windows.span  # the first window is due when the ring is full
    try:
        while True:
            held, count, ended = ring.wait(seen)
            if count >= seen or (ended and count and seen == windows.span):
                yield pick(held, count, windows)
                seen = count + max(1, int(windows.hop))
            if ended and count < seen:
                return
    finally:
        ring.stop()


class _Ring(Generic[T]):
    def __init__(self, frames: Iterable[T], size: int) -> None:
        self.frames = iter(frames)
        self.ring: deque[T] = deque(maxlen=size)
        self.count = 0
        self.ended, self.stopped = False, False
        self.error: BaseException | None = None
        self.news = threading.Condition()
        self.thread = threading.Thread(target=self._fill, name="motionformer-watch", daemon=True)
        self.thread.start()

    def wait(self, count: int) -> tuple[list[T], int, bool]:
        """The frames held once `count` have come, or the source has ended."""
        with self.news:
            self.news.wait_for(lambda: self.count >= count or self.ended)
            if self.error is not None:
                raise self.error
            return list(self.ring), self.count, self.ended

    def stop(self) -> None:
        """Read no more. A source that hangs is not waited for: its thread ends when it gives a frame, or up."""
        self.stopped = True
        self.thread.join(PATIENCE)

    def _fill(self) -> None:
        try:
            for frame in self.frames:
                with self.news:
                    self.ring.append(frame)
                    self.count += 1
                    self.news.notify_all()
                if self.stopped:
                    break
        except BaseException as error:
            self.error = error
        finally:
            with self.news:
                self.ended = True
                self.news.notify_all()
