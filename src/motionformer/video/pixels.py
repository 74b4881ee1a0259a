"""A decoded frame → upright RGB bytes: swscale's colours, the display matrix and the pixel aspect of a container.

PyAV hands out frames as they are stored; a phone held upright stores them lying on their side.
"""

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from av.video.frame import VideoFrame
from av.video.reformatter import Interpolation, VideoReformatter
from jaxtyping import UInt8
from torch import Tensor

PLAUSIBLE_ASPECT = 8
"""A pixel wider or taller than this many times is a broken header, and is ignored."""


@dataclass(frozen=True)
class Orientation:
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

    @property
    def mirrored(self) -> bool:
        """Whether it is more than a rotation."""
        return self.transpose ^ self.flip_rows ^ self.flip_columns


UPRIGHT = Orientation()


def read_display_matrix(matrix: bytes) -> Orientation:
    """The orientation in FFmpeg's 3 × 3 display matrix: stored (x, y) appears at (ax + cy, bx + dy).

    Angles between quarter turns go to the nearest one.
    """
    a, b, _, c, d = np.frombuffer(matrix, dtype=np.int32)[:5].tolist()
    if abs(a) + abs(d) >= abs(b) + abs(c):
        return Orientation(transpose=False, flip_rows=d < 0, flip_columns=a < 0)
    return Orientation(transpose=True, flip_rows=b < 0, flip_columns=c < 0)


def display_size(height: int, width: int, aspect: Fraction, orientation: Orientation) -> tuple[int, int]:
    """Height and width as shown; the width is stretched to make pixels square, the height is kept."""
    width = max(1, round(width * aspect))
    return (width, height) if orientation.transpose else (height, width)


def plausible_aspect(aspect: Fraction | None) -> Fraction:
    """Width of a pixel over its height, 1 where the container does not say or says nonsense."""
    if not aspect or not Fraction(1, PLAUSIBLE_ASPECT) <= aspect <= PLAUSIBLE_ASPECT:
        return Fraction(1)
    return aspect


def orient(frames: UInt8[Tensor, "t h w 3"], orientation: Orientation) -> UInt8[Tensor, "t H W 3"]:
    """Frames turned upright."""
    if orientation.transpose:
        frames = frames.transpose(1, 2)
    axes = [axis for axis, flip in ((1, orientation.flip_rows), (2, orientation.flip_columns)) if flip]
    return frames.flip(axes) if axes else frames.contiguous()


def stretch(frames: UInt8[Tensor, "t h w 3"], width: int) -> UInt8[Tensor, "t h W 3"]:
    """Frames resized to `width`, bilinear with antialiasing, the same for every decoder."""
    height = frames.shape[1]
    if frames.shape[2] == width or not len(frames):
        return frames.new_empty(len(frames), height, width, 3) if frames.shape[2] != width else frames
    wide = F.interpolate(frames.permute(0, 3, 1, 2), size=(height, width), mode="bilinear", antialias=True)
    return wide.permute(0, 2, 3, 1).contiguous()


FLAT_COLOUR = int(Interpolation.BILINEAR)
"""Every pixel takes the colour sample stored for its place: fast, and what video decoders agree on to the bit."""

SMOOTH_COLOUR = int(Interpolation.BILINEAR | Interpolation.ACCURATE_RND | Interpolation.FULL_CHR_H_INT)
"""Colour stored at half size is enlarged smoothly: within 3 levels of libjpeg on photographs (flat: 11)."""


class ToRGB:
    """Converts frames to RGB of one size. Kept for a whole video: swscale's tables cost more than a small frame."""

    def __init__(self, height: int, width: int, colour: int = FLAT_COLOUR) -> None:
        self.height = height
        self.width = width
        self.colour = colour
        self.reformatter = VideoReformatter()

    def __call__(self, frame: VideoFrame) -> UInt8[Tensor, "H W 3"]:
        rgb = self.reformatter.reformat(
            frame, width=self.width, height=self.height, format="rgb24", interpolation=self.colour, threads=1
        )
        plane = rgb.planes[0]
        rows = torch.frombuffer(plane, dtype=torch.uint8).view(self.height, plane.line_size)
        return rows[:, : 3 * self.width].view(self.height, self.width, 3)


def orientation_of(frame: VideoFrame) -> Orientation:
    """How the container or camera says the frame must be turned to stand upright."""
    attached: Any = frame.side_data  # typed as a dict of motion vectors, is a sequence of everything attached
    matrix = next((bytes(data) for data in attached if data.type.name == "DISPLAYMATRIX"), None)
    return UPRIGHT if matrix is None else read_display_matrix(matrix)
