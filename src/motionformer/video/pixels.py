"""A decoded frame → RGB bytes, through swscale, and the orientation that travels with it."""

from typing import Any

import torch
from av.video.frame import VideoFrame
from av.video.reformatter import Interpolation, VideoReformatter
from jaxtyping import UInt8
from torch import Tensor

from motionformer.video.orientation import UPRIGHT, Orientation, read_display_matrix

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
