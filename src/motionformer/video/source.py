"""A video, whatever it is stored as: metadata, and frames by number. Knows nothing of decoders."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from operator import index as as_int
from pathlib import Path
from types import TracebackType
from typing import TypeVar

from jaxtyping import UInt8
from torch import Tensor

from motionformer.errors import VideoError
from motionformer.video.clock import Clock
from motionformer.video.metadata import VideoMetadata

V = TypeVar("V", bound="Video")
T = TypeVar("T")


class Video(ABC):
    """An open video. Close it, or use it in a `with`; it belongs to the process and thread that opened it."""

    path: Path
    metadata: VideoMetadata
    damaged: bool = False
    """Whether the decoder reported damage in what was read so far, or in what that leans on. `check` says where."""

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

    def __enter__(self: V) -> V:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def take_settled(video: Video, take: Callable[[], T]) -> T:
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


def checked_indices(video: Video, indices: Sequence[int]) -> list[int]:
    """The indices as integers, all of them inside the video. Negative ones are mistakes, not counts from the end."""
    plain = [as_int(i) for i in indices]
    count = video.metadata.num_frames
    for i in plain:
        if not 0 <= i < count:
            raise VideoError(f"is out of range: the video has {count} frames, 0 to {count - 1}", video.path, frame=i)
    return plain
