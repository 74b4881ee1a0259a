"""Videos that need no file: decoded frames, and the open decoders of other libraries (torchcodec's, by its methods)."""

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from jaxtyping import UInt8
from torch import Tensor

from motionformer.errors import VideoError
from motionformer.video.source import Video, VideoMetadata


class MemoryVideo(Video):
    """A video whose frames somebody else has decoded, or decodes."""

    path = Path()

    @abstractmethod
    def read(self, indices: Sequence[int]) -> UInt8[Tensor, "t H W 3"]: ...

    def frames(self) -> Iterator[UInt8[Tensor, "H W 3"]]:
        """All of them, one after the other."""
        return (self.read([i])[0] for i in range(len(self)))

    def check(self) -> VideoMetadata:
        return self.metadata

    def close(self) -> None:
        """Nothing was opened."""


class DecodedFrames(MemoryVideo):
    """Frames in memory at a constant rate.

    Args:
        frames: bytes, RGB.
        fps: frames per second.
    """

    def __init__(self, frames: UInt8[Tensor, "t H W 3"], fps: float) -> None:
        self._frames = frames
        self.metadata = _describe(len(frames), fps, frames.shape[1], frames.shape[2], "frames")

    def read(self, indices: Sequence[int]) -> UInt8[Tensor, "t H W 3"]:
        return self._frames[self._checked(indices)]


class OtherDecoder(MemoryVideo):
    """An open `torchcodec.decoders.VideoDecoder`, or what has its `metadata` and `get_frames_at(indices)`.

    Its mean rate counts: where a video's rate varies, a file is read at its own times, and this is not.

    Args:
        decoder: frames come as bytes, RGB, `[n 3 H W]` or `[n H W 3]`.

    Raises:
        VideoError: it does not tell how many frames it has, or at what rate.
    """

    damaged = None

    def __init__(self, decoder: Any) -> None:
        self.decoder = decoder
        about = decoder.metadata
        count, fps = getattr(about, "num_frames", None), getattr(about, "average_fps", None)
        if not count or not fps:
            raise VideoError(
                f"the decoder's metadata has num_frames {count!r} and average_fps {fps!r}: both are needed"
            )
        first = self._get([0])
        self.metadata = _describe(
            int(count), float(fps), first.shape[1], first.shape[2], str(getattr(about, "codec", ""))
        )

    @staticmethod
    def is_one(value: Any) -> bool:
        """Whether it has the methods that are needed."""
        return hasattr(value, "get_frames_at") and hasattr(value, "metadata")

    def read(self, indices: Sequence[int]) -> UInt8[Tensor, "t H W 3"]:
        return self._get(self._checked(indices))

    def _get(self, indices: list[int]) -> UInt8[Tensor, "t H W 3"]:
        try:
            found = self.decoder.get_frames_at(indices).data
        except (RuntimeError, IndexError, ValueError) as error:
            reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
            raise VideoError(f"the decoder cannot read it ({reason})") from error
        frames: Tensor = found if found.shape[-1] == 3 else found.movedim(1, -1)
        if frames.dtype != torch.uint8 or frames.ndim != 4 or frames.shape[-1] != 3:
            kind = f"{str(found.dtype).removeprefix('torch.')} {list(found.shape)}"
            raise VideoError(f"the decoder gives frames as {kind}; bytes (uint8) [n 3 H W] or [n H W 3] are needed")
        return frames.cpu()


def _describe(num_frames: int, fps: float, height: int, width: int, codec: str) -> VideoMetadata:
    return VideoMetadata(
        num_frames=num_frames,
        fps=fps,
        duration=num_frames / fps,
        height=height,
        width=width,
        codec=codec,
        rotation=0,
        variable_rate=False,
        exact_count=True,
    )
