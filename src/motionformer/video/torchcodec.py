"""Video files through torchcodec, where it is installed: it decodes, PyAV says which frames there are.

Frames are numbered by the same index as everywhere, and their times are compared after decoding, so the two cannot
disagree. Files whose frames can only be counted, and mirrored ones, which torchcodec does not mirror, are left to PyAV.
"""

from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from jaxtyping import UInt8
from torch import Tensor

from motionformer.errors import VideoError
from motionformer.video.metadata import VideoMetadata
from motionformer.video.orientation import Orientation, orient, stretch
from motionformer.video.pyav import PyAVVideo
from motionformer.video.source import Video, checked_indices


def open_torchcodec(
    path: Path, *, time_limit: float | None = 30.0, num_threads: int = 1, square_pixels: bool = True
) -> Video:
    """The file read by torchcodec where it can be, by PyAV where not.

    torchcodec cannot be interrupted: the time limit bounds opening, and reading by PyAV.
    """
    decoders = import_torchcodec()
    scanned = PyAVVideo(path, time_limit=time_limit, num_threads=num_threads, square_pixels=square_pixels)
    if scanned.index is None or scanned.orientation.mirrored:
        return scanned
    try:
        decoder = decoders.VideoDecoder(
            path, stream_index=scanned.stream.index, dimension_order="NHWC", num_ffmpeg_threads=num_threads
        )
    except (RuntimeError, ValueError) as error:
        scanned.close()
        raise VideoError(first_line(error), path) from error
    if len(decoder) != len(scanned.index.times):
        return scanned
    return TorchCodecVideo(scanned, decoder)


class TorchCodecVideo(Video):
    """A video file of which torchcodec decodes the frames that PyAV's index names."""

    def __init__(self, scanned: PyAVVideo, decoder: Any) -> None:
        self.path = scanned.path
        self.scanned = scanned
        self.decoder = decoder

    @property
    def metadata(self) -> VideoMetadata:  # type: ignore[override]
        return self.scanned.metadata

    def read(self, indices: Sequence[int]) -> UInt8[Tensor, "t H W 3"]:
        wanted = checked_indices(self, indices)
        if not wanted or self.scanned.index is None:
            return self.scanned.read(wanted)
        try:
            batch = self.decoder.get_frames_at(wanted)
        except (RuntimeError, IndexError) as error:
            raise VideoError(first_line(error), self.path) from error
        tick = float(self.scanned.stream.time_base or 1)
        times = torch.tensor([self.scanned.index.times[i] for i in wanted], dtype=torch.float64) * tick
        if not torch.allclose(batch.pts_seconds, times, rtol=0, atol=tick / 2):
            return self.scanned.read(wanted)
        return self.stretched(batch.data)

    def stretched(self, frames: UInt8[Tensor, "t h w 3"]) -> UInt8[Tensor, "t H W 3"]:
        """Square pixels. torchcodec has turned the frames already, so the stored width may stand upright."""
        if not self.scanned.orientation.transpose:
            return stretch(frames, self.metadata.width)
        lying = Orientation(transpose=True)
        return orient(stretch(orient(frames, lying), self.metadata.height), lying)

    def check(self) -> VideoMetadata:
        return self.scanned.check()

    def close(self) -> None:
        self.scanned.close()
        del self.decoder


def import_torchcodec() -> Any:
    """The module `torchcodec.decoders`, or an error that says what to do."""
    try:
        return import_module("torchcodec.decoders")
    except (ImportError, RuntimeError, OSError) as error:  # RuntimeError where it finds no FFmpeg it can use
        raise VideoError(
            "the decoder torchcodec does not load: install torchcodec and the system's ffmpeg, or use the decoder "
            f"pyav ({first_line(error)})"
        ) from error


def first_line(error: Exception) -> str:
    return next(iter(str(error).strip().splitlines()), type(error).__name__)
