"""A folder of numbered jpg or png files as a video (`frame_0000000001.jpg`, `img_00001.jpg`, `00001.png`), and what
files share with it: a decoded frame becomes upright RGB bytes.

Images are decoded by PyAV too, so that a folder needs no further library. PyAV returns frames as they are stored; a
phone held upright stores them lying on their side.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from av import CodecContext, Packet
from av.video.codeccontext import VideoCodecContext
from av.video.frame import VideoFrame
from av.video.reformatter import Interpolation, VideoReformatter
from jaxtyping import UInt8
from torch import Tensor

from motionformer.errors import VideoError
from motionformer.video.container import MAX_PIXELS, Deadline, wrap_decoder_errors
from motionformer.video.source import Video, VideoMetadata, measure_timing

CODECS = {".jpg": "mjpeg", ".jpeg": "mjpeg", ".png": "png"}


class ImageFolder(Video):
    """A folder of frames in the order of their numbers; frame i is the i-th file, whatever its number is."""

    def __init__(self, path: Path, *, time_limit: float | None = 30.0, fps: float = 30.0) -> None:
        self.path = path
        self.time_limit = time_limit
        self.files = list_frames(path)
        numbers = [number_of(file) for file in self.files]
        with wrap_decoder_errors(self.files[0]):
            first = decode_image(self.files[0])
        self.convert = ToRGB(first, colour=_SMOOTH_COLOUR)
        height, width = self.convert.size
        times = [0 if number is None else number for number in numbers]
        timing = measure_timing(times, Fraction(1), None)
        self.metadata = VideoMetadata(
            num_frames=len(self.files),
            fps=fps,
            duration=len(self.files) / fps,
            height=height,
            width=width,
            codec=self.files[0].suffix[1:].lower(),
            rotation=self.convert.orientation.rotation,
            variable_rate=timing.variable_rate,
            exact_count=True,
        )

    def read(self, indices: Sequence[int]) -> UInt8[Tensor, "t H W 3"]:
        deadline = Deadline(self.time_limit)
        wanted = self._checked(indices)
        height, width = self.metadata.height, self.metadata.width
        pixels = torch.empty(len(wanted), height, width, 3, dtype=torch.uint8)
        seen: dict[int, int] = {}
        for position, i in enumerate(wanted):
            with wrap_decoder_errors(self.files[i]):
                deadline.check()
                pixels[position] = pixels[seen[i]] if i in seen else self._to_rgb(i)
            seen[i] = position
        return pixels

    def check(self) -> VideoMetadata:
        for i in range(len(self.files)):
            self.read([i])
        return self.metadata

    def close(self) -> None:
        """Nothing stays open."""

    def _to_rgb(self, i: int) -> UInt8[Tensor, "H W 3"]:
        image = decode_image(self.files[i])
        height, width = self.convert.height, self.convert.width
        if (image.height, image.width) != (height, width):
            raise VideoError(f"is {image.width} × {image.height}, but the first frame is {width} × {height}", frame=i)
        return self.convert.upright(self.convert(image)[None])[0]


def list_frames(folder: Path) -> list[Path]:
    """The images of a folder in the order of their numbers, or by name where none has one.

    Refuses a folder that holds more than one series (`img_00001.jpg` beside `flow_x_00001.jpg`): which one is the
    video is not ours to guess.
    """
    with wrap_decoder_errors(folder):
        files = [f for f in folder.iterdir() if f.suffix.lower() in CODECS and not f.name.startswith(".")]
    if not files:
        raise VideoError("the folder holds no jpg or png files", folder)
    series = sorted({_series_of(file) for file in files})
    if all(number_of(file) is None for file in files):
        return sorted(files)
    if len(series) > 1:
        raise VideoError(f"the folder holds several series of images: {', '.join(series[:4])}", folder)
    files.sort(key=lambda file: number_of(file) or 0)
    for before, after in pairwise(files):
        if number_of(before) == number_of(after):
            raise VideoError(f"{before.name} and {after.name} have the same number", folder)
    return files


def number_of(file: Path) -> int | None:
    """The last number in a file's name, which counts the frames."""
    digits = re.search(r"([0-9]+)[^0-9]*$", file.stem)
    return int(digits[1]) if digits else None


def _series_of(file: Path) -> str:
    """A file's name with its number replaced: the same for all frames of a video."""
    return re.sub(r"[0-9]+([^0-9]*)$", r"*\1", file.stem) + file.suffix


def decode_image(file: Path) -> VideoFrame:
    """One image, in whatever pixel format it is stored."""
    data = file.read_bytes()
    codec = CODECS[file.suffix.lower()]
    # FFmpeg fills up the rest of a jpg that was cut off. Its end mark cannot occur inside the picture's data.
    if codec == "mjpeg" and data.rfind(b"\xff\xd9") < data.rfind(b"\xff\xda"):
        raise VideoError("is cut short: the end of the image is missing")
    context = CodecContext.create(codec, "r")
    assert isinstance(context, VideoCodecContext)
    context.thread_count = 1
    context.options = {"max_pixels": str(MAX_PIXELS), "err_detect": "explode"}
    frames = [*context.decode(Packet(data)), *context.decode(None)] if data else []
    if not frames or frames[0].is_corrupt:
        raise VideoError("is not an image that can be decoded" if data else "the file is empty (0 bytes)")
    return frames[0]


_PLAUSIBLE_ASPECT = 8
"""A pixel wider or taller than this many times is a broken header, and is ignored."""

_FLAT_COLOUR = int(Interpolation.BILINEAR)
"""Every pixel takes the colour sample stored for its position: fast, and what video decoders agree on to the bit."""

_SMOOTH_COLOUR = int(Interpolation.BILINEAR | Interpolation.ACCURATE_RND | Interpolation.FULL_CHR_H_INT)
"""Colour stored at half size is enlarged smoothly: within 3 levels of libjpeg on photographs (flat: 11)."""


class ToRGB:
    """Decoded frames → RGB bytes as stored, and those upright with square pixels, all of the size of the first frame.

    Kept for a whole video: swscale's tables cost more than a small frame.
    """

    def __init__(self, first: VideoFrame, aspect: Fraction | None = None, colour: int = _FLAT_COLOUR) -> None:
        # `aspect` is the width of a pixel over its height
        self.height, self.width, self.colour = first.height, first.width, colour
        self.reformatter = VideoReformatter()
        self.orientation = _orientation_of(first)
        if not aspect or not Fraction(1, _PLAUSIBLE_ASPECT) <= aspect <= _PLAUSIBLE_ASPECT:
            aspect = Fraction(1)  # none in the header, or nonsense
        self.shown_width = max(1, round(first.width * aspect))

    @property
    def size(self) -> tuple[int, int]:
        """Height and width of upright frames; the stored width is stretched to make pixels square, the height kept."""
        size = self.height, self.shown_width
        return size[::-1] if self.orientation.transpose else size

    def __call__(self, frame: VideoFrame) -> UInt8[Tensor, "h w 3"]:
        rgb = self.reformatter.reformat(
            frame, width=self.width, height=self.height, format="rgb24", interpolation=self.colour, threads=1
        )
        plane = rgb.planes[0]
        rows = torch.frombuffer(plane, dtype=torch.uint8).view(self.height, plane.line_size)
        return rows[:, : 3 * self.width].view(self.height, self.width, 3)

    def upright(self, frames: UInt8[Tensor, "t h w 3"]) -> UInt8[Tensor, "t H W 3"]:
        turn = self.orientation
        if self.shown_width != self.width:
            frames = _stretch(frames, self.shown_width)
        if turn.transpose:
            frames = frames.transpose(1, 2)
        axes = [axis for axis, flip in ((1, turn.flip_rows), (2, turn.flip_columns)) if flip]
        return frames.flip(axes) if axes else frames.contiguous()


@dataclass(frozen=True)
class _Orientation:
    """One of the eight ways to lay a rectangle on its grid: transpose first, then flip."""

    transpose: bool = False
    flip_rows: bool = False
    flip_columns: bool = False

    @property
    def rotation(self) -> int:
        """Degrees clockwise; for a mirrored picture, those of the rotation that precedes the left-right flip."""
        if self.transpose:
            return 90 if not self.flip_rows else 270
        return 180 if self.flip_rows else 0


def _orientation_of(frame: VideoFrame) -> _Orientation:
    """How the frame must be turned to stand upright, from FFmpeg's 3 × 3 display matrix.

    Stored (x, y) appears at (ax + cy, bx + dy). Angles between quarter turns go to the nearest one.
    """
    attached: Any = frame.side_data  # typed as a dict of motion vectors, is a sequence of everything attached
    matrix = next((bytes(data) for data in attached if data.type.name == "DISPLAYMATRIX"), None)
    if matrix is None:
        return _Orientation()
    a, b, _, c, d = np.frombuffer(matrix, dtype=np.int32)[:5].tolist()
    if abs(a) + abs(d) >= abs(b) + abs(c):
        return _Orientation(transpose=False, flip_rows=d < 0, flip_columns=a < 0)
    return _Orientation(transpose=True, flip_rows=b < 0, flip_columns=c < 0)


def _stretch(frames: UInt8[Tensor, "t h w 3"], width: int) -> UInt8[Tensor, "t h W 3"]:
    """Bilinear with antialiasing."""
    height = frames.shape[1]
    if not len(frames):
        return frames.new_empty(0, height, width, 3)
    wide = F.interpolate(frames.permute(0, 3, 1, 2), size=(height, width), mode="bilinear", antialias=True)
    return wide.permute(0, 2, 3, 1).contiguous()
