"""Changes of a clip that move or mix neighbouring pixels: one affine map about the centre, and sharpness."""

import math

import torch
import torch.nn.functional as F
from jaxtyping import Float, Num, UInt8
from torch import Tensor

from motionformer.video.transforms.base import by_frame

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


AffineMap = tuple[float, float, float, float, float, float]
"""`x' = a x + b y + c`, `y' = d x + e y + f`, in pixels from the top left corner."""


def sample_affine(clip: UInt8[Tensor, "3 t H W"], places: AffineMap, *, cubic: bool) -> UInt8[Tensor, "3 t H W"]:
    """Each pixel taken from where `places` maps its centre, rounded down; mid-grey where that is outside the frame.

    Bilinear or cubic (coefficient −1), the frame's edge repeated: as the release warps its frames.
    """
    _, frames, height, width = clip.shape
    a, b, c, d, e, f = places
    x = torch.arange(width, dtype=torch.float64)[None] + 0.5
    y = torch.arange(height, dtype=torch.float64)[:, None] + 0.5
    x, y = (a * x + b * y + c).flatten(), (d * x + e * y + f).flatten()
    inside = ((x >= 0) & (x < width) & (y >= 0) & (y < height)).nonzero().flatten()
    x, y = x - 0.5, y - 0.5
    pixels = clip.permute(2, 3, 0, 1).reshape(height * width, 3 * frames)  # one look-up for all channels and frames
    moved = torch.full_like(pixels, 128)
    for some in inside.split(PLACES_AT_ONCE):
        moved[some] = _interpolate(pixels, x[some], y[some], (height, width), cubic).clamp_(0.0, 255.0).to(torch.uint8)
    return moved.view(height, width, 3, frames).permute(2, 3, 0, 1)


PLACES_AT_ONCE = 1 << 15


def _interpolate(
    pixels: UInt8[Tensor, "hw c"], x: Float[Tensor, " n"], y: Float[Tensor, " n"], size: tuple[int, int], cubic: bool
) -> Float[Tensor, "n c"]:
    """By differences from the pixel up left, so that an even area stays even."""
    height, width = size
    left, top = x.floor(), y.floor()
    columns = [((left + k).clamp(0, width - 1), _weight(x - left - k, cubic)) for k in _near(cubic)]
    rows = [((top + k).clamp(0, height - 1), _weight(y - top - k, cubic)) for k in _near(cubic)]

    def take(row: Tensor, column: Tensor) -> Tensor:
        return pixels.index_select(0, (row * width + column).long()).double()

    base = take(top.clamp(0, height - 1), left.clamp(0, width - 1))
    total = base.clone()
    for row, down in rows:
        for column, across in columns:
            weight = down * across
            if weight.any():
                total.addcmul_(weight[:, None], take(row, column).sub_(base))
    return total


def _near(cubic: bool) -> range:
    return range(-1, 3) if cubic else range(2)


def _weight(distance: Float[Tensor, " n"], cubic: bool) -> Float[Tensor, " n"]:
    away = distance.abs()
    if not cubic:
        return 1.0 - away
    return torch.where(away <= 1, 1 - 2 * away**2 + away**3, 4 - 8 * away + 5 * away**2 - away**3)
