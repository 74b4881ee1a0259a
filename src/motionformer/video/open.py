"""START HERE: a path becomes an open video, whatever is stored there.

Files are read by PyAV, or by torchcodec where it is installed: it decodes, PyAV says which frames there are. Frames are
numbered by the same index as everywhere, and their times are compared after decoding, so the two cannot disagree. What
torchcodec cannot do alike (`gives_the_same`) or fails to read is left to PyAV.
"""

from collections.abc import Callable, Sequence
from importlib import import_module
from os import PathLike
from pathlib import Path
from typing import Any

import torch
from jaxtyping import UInt8
from torch import Tensor

from motionformer.errors import VideoError
from motionformer.video.images import ImageFolder
from motionformer.video.pixels import Orientation, orient, stretch
from motionformer.video.pyav import PyAVVideo
from motionformer.video.source import Clock, Video, VideoMetadata, checked_indices


def open_video(
    path: str | PathLike[str],
    *,
    decoder: str = "pyav",
    time_limit: float | None = 30.0,
    num_threads: int = 1,
    square_pixels: bool = True,
    image_rate: float = 30.0,
) -> Video:
    """Open a video file, or a folder of frames. Raises `VideoError` for whatever cannot be read.

    `time_limit` bounds this call and each later `read`, in seconds. `num_threads` is for the decoder; one is best
    where a loader has workers. `square_pixels=False` leaves stored pixels as they are in files whose pixels are not
    square, which is what most published code does. `image_rate` is the frames per second of a folder of images, which
    cannot say it itself.
    """
    if decoder not in DECODERS:
        raise ValueError(f"there is no decoder {decoder!r}; there are {', '.join(DECODERS)}")
    path = Path(path)
    try:
        if path.is_dir():
            return ImageFolder(path, time_limit=time_limit, fps=image_rate)
        return DECODERS[decoder](path, time_limit=time_limit, num_threads=num_threads, square_pixels=square_pixels)
    except PermissionError as error:  # of a folder on the way, or of a folder of frames; a file's own is the decoder's
        raise VideoError(f"cannot be opened: {error.strerror}", path) from error


def read_frames(
    path: str | PathLike[str],
    indices: Sequence[int],
    *,
    decoder: str = "pyav",
    time_limit: float | None = 30.0,
    num_threads: int = 1,
    square_pixels: bool = True,
    image_rate: float = 30.0,
) -> UInt8[Tensor, "t H W 3"]:
    """Frames of a video file or folder, in the order asked for: `open_video` and one `read`."""
    with open_video(
        path,
        decoder=decoder,
        time_limit=time_limit,
        num_threads=num_threads,
        square_pixels=square_pixels,
        image_rate=image_rate,
    ) as video:
        return video.read(indices)


COPIED_COLOUR = {"yuv420p", "yuvj420p", "yuv422p", "yuvj422p", "yuv444p", "yuvj444p", "gray", "bgr0", "rgb24"}


def open_torchcodec(
    path: Path, *, time_limit: float | None = 30.0, num_threads: int = 1, square_pixels: bool = True
) -> Video:
    """The file read by torchcodec where it can be, by PyAV where not.

    torchcodec cannot be interrupted: the time limit bounds opening, and reading by PyAV.
    """
    decoders = import_torchcodec()
    scanned = PyAVVideo(path, time_limit=time_limit, num_threads=num_threads, square_pixels=square_pixels)
    if scanned.index is None or not gives_the_same(scanned):
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


def gives_the_same(video: PyAVVideo) -> bool:
    """Whether torchcodec, with whichever FFmpeg it finds, returns the pixels that PyAV does.

    It does not mirror. And swscale places colour differently from version to version, except where it only copies it:
    8 bits and, for colour at half height, an even number of rows.
    """
    rows_pair_up = video.to_rgb.height % 2 == 0 or "420" not in video.pixel_format
    return not video.orientation.mirrored and video.pixel_format in COPIED_COLOUR and rows_pair_up


class TorchCodecVideo(Video):
    """A video file of which torchcodec decodes the frames that PyAV's index names."""

    def __init__(self, scanned: PyAVVideo, decoder: Any) -> None:
        self.path = scanned.path
        self.scanned = scanned
        self.decoder = decoder

    @property
    def damaged(self) -> bool | None:  # type: ignore[override]
        """torchcodec patches up damage and does not report it; what PyAV read is known."""
        return True if self.scanned.damaged else None

    @property
    def metadata(self) -> VideoMetadata:  # type: ignore[override]
        return self.scanned.metadata

    @property
    def clock(self) -> Clock:
        return self.scanned.clock

    def read(self, indices: Sequence[int]) -> UInt8[Tensor, "t H W 3"]:
        wanted = checked_indices(self, indices)
        if not wanted or self.scanned.index is None:
            return self.scanned.read(wanted)
        try:
            batch = self.decoder.get_frames_at(wanted)
        except RuntimeError:  # transport streams, damaged files: PyAV reads them, or gives the reason
            return self.scanned.read(wanted)
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


DECODERS: dict[str, Callable[..., Video]] = {"pyav": PyAVVideo, "torchcodec": open_torchcodec}
"""Readers of video files by name. All give the same frames for the same indices."""
