"""A folder of numbered jpg or png files as a video: `frame_0000000001.jpg`, `img_00001.jpg`, `00001.png`.

Images are decoded by PyAV too, so that a folder needs no further library.
"""

import re
from collections.abc import Sequence
from fractions import Fraction
from itertools import pairwise
from pathlib import Path

import torch
from av import CodecContext, Packet
from av.video.codeccontext import VideoCodecContext
from av.video.frame import VideoFrame
from jaxtyping import UInt8
from torch import Tensor

from motionformer.errors import VideoError
from motionformer.video.container import MAX_PIXELS, Deadline, wrap_decoder_errors
from motionformer.video.pixels import SMOOTH_COLOUR, ToRGB, display_size, orient, orientation_of
from motionformer.video.source import Video, VideoMetadata, checked_indices, measure_timing

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
        self.orientation = orientation_of(first)
        self.convert = ToRGB(first.height, first.width, SMOOTH_COLOUR)
        height, width = display_size(first.height, first.width, Fraction(1), self.orientation)
        times = [0 if number is None else number for number in numbers]
        timing = measure_timing(times, Fraction(1), None)
        self.metadata = VideoMetadata(
            num_frames=len(self.files),
            fps=fps,
            duration=len(self.files) / fps,
            height=height,
            width=width,
            codec=self.files[0].suffix[1:].lower(),
            rotation=self.orientation.rotation,
            variable_rate=timing.variable_rate,
            exact_count=True,
        )

    def read(self, indices: Sequence[int]) -> UInt8[Tensor, "t H W 3"]:
        deadline = Deadline(self.time_limit)
        wanted = checked_indices(self, indices)
        height, width = self.metadata.height, self.metadata.width
        pixels = torch.empty(len(wanted), height, width, 3, dtype=torch.uint8)
        seen: dict[int, int] = {}
        for place, i in enumerate(wanted):
            with wrap_decoder_errors(self.files[i]):
                deadline.check()
                pixels[place] = pixels[seen[i]] if i in seen else self.to_rgb(i)
            seen[i] = place
        return pixels

    def check(self) -> VideoMetadata:
        for i in range(len(self.files)):
            self.read([i])
        return self.metadata

    def close(self) -> None:
        """Nothing stays open."""

    def to_rgb(self, i: int) -> UInt8[Tensor, "H W 3"]:
        image = decode_image(self.files[i])
        height, width = self.convert.height, self.convert.width
        if (image.height, image.width) != (height, width):
            raise VideoError(f"is {image.width} × {image.height}, but the first frame is {width} × {height}", frame=i)
        return orient(self.convert(image)[None], self.orientation)[0]


def list_frames(folder: Path) -> list[Path]:
    """The images of a folder in the order of their numbers, or by name where none has one.

    Refuses a folder that holds more than one series (`img_00001.jpg` beside `flow_x_00001.jpg`): which one is the
    video is not ours to guess.
    """
    with wrap_decoder_errors(folder):
        files = [f for f in folder.iterdir() if f.suffix.lower() in CODECS and not f.name.startswith(".")]
    if not files:
        raise VideoError("the folder holds no jpg or png files", folder)
    series = sorted({series_of(file) for file in files})
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


def series_of(file: Path) -> str:
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
