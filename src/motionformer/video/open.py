"""START HERE: a path becomes an open video, whatever is stored there."""

from collections.abc import Callable, Sequence
from os import PathLike
from pathlib import Path

from jaxtyping import UInt8
from torch import Tensor

from motionformer.errors import VideoError
from motionformer.video.images import ImageFolder
from motionformer.video.pyav import PyAVVideo
from motionformer.video.source import Video
from motionformer.video.torchcodec import open_torchcodec

DECODERS: dict[str, Callable[..., Video]] = {"pyav": PyAVVideo, "torchcodec": open_torchcodec}
"""Readers of video files by name. All give the same frames for the same indices."""


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
