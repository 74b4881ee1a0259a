"""A video, whatever it is stored as: metadata, and frames by number. Knows nothing of decoders."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from operator import index as as_int
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

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
    damaged: bool | None = False
    """Whether the decoder reported damage in what was read so far, or in what that leans on (`check` says where).
    None where it does not report any."""

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


@dataclass(frozen=True)
class ReadFacts:
    """What a result was made from: without it, a score does not say what it is of."""

    frames: int
    """Of a clip."""
    distinct_frames: int
    """Of these, how many differ, in the clip that has the fewest: a video that is slower than the rate at which its
    clips are sampled, or shorter than a clip, shows frames several times."""
    damaged: bool | None = False
    """Whether the decoder reported damage in what was read; None where it does not report any."""

    @classmethod
    def of(cls, clips: Sequence[Sequence[int]], damaged: bool | None = False) -> "ReadFacts":
        """Of clips by the numbers of their frames."""
        return cls(len(clips[0]), min(len(set(clip)) for clip in clips), damaged)

    @classmethod
    def together(cls, parts: Iterable["ReadFacts"]) -> "ReadFacts":
        """Of all parts of one video."""
        all_ = list(parts)
        reported = [part.damaged for part in all_]
        damaged = True if True in reported else None if None in reported else False
        return cls(all_[0].frames, min(part.distinct_frames for part in all_), damaged)

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


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
