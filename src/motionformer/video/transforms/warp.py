"""Changes of a clip that move or mix neighbouring pixels: one affine map about the centre, and sharpness."""

import math

import torch
import torch.nn.functional as F
from jaxtyping import Num
from torch import Tensor

from motionformer.video.transforms.pixels import by_frame

FILL = 0.5

Matrix = tuple[tuple[float, float], tuple[float, float]]
"""Rows for x and for y."""
UNCHANGED: Matrix = ((1.0, 0.0), (0.0, 1.0))


def warp(
    clip: Num[Tensor, "3 t H W"], matrix: Matrix = UNCHANGED, shift: tuple[float, float] = (0.0, 0.0)
) -> Num[Tensor, "3 t H W"]:
    """Each pixel is taken from `matrix · (x, y) + shift`, from the centre; grey where that is outside.

    `matrix` is in pixels, `shift` in shares of width and height.
    """
    height, width = clip.shape[2:]
    (a, b), (c, d) = matrix
    theta = torch.tensor([[[a, b * height / width, 2 * shift[0]], [c * width / height, d, 2 * shift[1]]]])
    places = F.affine_grid(theta.to(clip.device), [1, 1, height, width], align_corners=False)

    def change(frame: Tensor) -> Tensor:
        moved = F.grid_sample((frame - FILL)[None], places.to(frame.dtype), align_corners=False)[0]
        return moved.add_(FILL)

    return by_frame(clip, change)


def rotation(degrees: float) -> Matrix:
    """A turn, counter-clockwise as seen."""
    cos, sin = math.cos(math.radians(degrees)), math.sin(math.radians(degrees))
    return (cos, -sin), (sin, cos)


def sharpen(clip: Num[Tensor, "3 t H W"], factor: float) -> Num[Tensor, "3 t H W"]:
    """Away from (above 1) or towards (below 1) a smoothed copy: a 3 × 3 mean that counts the middle five times."""

    def change(frame: Tensor) -> Tensor:
        padded = F.pad(frame[None], (1, 1, 1, 1), mode="replicate")[0]
        rows = padded[:, :-2] + padded[:, 1:-1] + padded[:, 2:]
        smooth = (rows[..., :-2] + rows[..., 1:-1] + rows[..., 2:]).add_(frame, alpha=4.0).div_(13.0)
        return smooth.lerp_(frame, factor).clamp_(0.0, 1.0)

    return by_frame(clip, change)
