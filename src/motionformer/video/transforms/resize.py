"""Resizing that keeps the shape of the picture: the short side gets a length, fixed or drawn.

Bilinear with antialiasing. Enlarging, the two are the same; shrinking, pixels are averaged and not skipped, so a
1080p file gives the clip that a 256-pixel copy of it would (docs/transforms.md).
"""

import torch
import torch.nn.functional as F
from jaxtyping import Float, Num
from torch import Generator, Tensor

from motionformer.video.transforms.contract import Transform, uniform

Size = tuple[int, int]


class ShortSideResize(Transform):
    """The short side becomes `size`. For a pair (height, width): the smallest picture that covers it."""

    def __init__(self, size: int | Size) -> None:
        self.size = size

    def __call__(self, clip: Num[Tensor, "3 t H W"], generator: Generator | None = None) -> Num[Tensor, "3 t h w"]:
        return resize(clip, cover((clip.shape[2], clip.shape[3]), as_pair(self.size)))


class PlainResize(Transform):
    """The released resizing to the smallest picture that covers `size`: bytes become floats, no antialiasing."""

    def __init__(self, size: Size) -> None:
        self.size = size

    def __call__(self, clip: Num[Tensor, "3 t H W"], generator: Generator | None = None) -> Num[Tensor, "3 t h w"]:
        return resize_to_floats(clip, released_cover((clip.shape[2], clip.shape[3]), self.size))


class ShortSideJitter(Transform):
    """The short side becomes a length between `low` and `high`; every length alike, or (`inverse`) its inverse alike.

    With `inverse`, short lengths come more often, so that every magnification of a *crop* is as likely.

    Args:
        shape: of the crop that follows, where it is not a square.
        released: sizes and pixels as in the release (`released_size`, `resize_plain`); bytes become floats.
    """

    def __init__(
        self, low: int, high: int, *, inverse: bool = False, shape: Size = (1, 1), released: bool = False
    ) -> None:
        if not 0 < low <= high:
            raise ValueError(f"the short side is drawn from {low} to {high}: they must be positive and in order.")
        if released and shape[0] != shape[1]:
            raise ValueError(f"the released protocol takes square crops; not {shape[0]} × {shape[1]}.")
        self.low = low
        self.high = high
        self.inverse = inverse
        self.shape = shape
        self.released = released

    def __call__(self, clip: Num[Tensor, "3 t H W"], generator: Generator | None = None) -> Num[Tensor, "3 t h w"]:
        side = self.side(uniform(0.0, 1.0, generator, self))
        if self.released:
            return resize_to_floats(clip, released_size(clip.shape[2], clip.shape[3], side))
        short = min(self.shape)
        target = (side * self.shape[0] // short, side * self.shape[1] // short)
        return resize(clip, cover((clip.shape[2], clip.shape[3]), target))

    def side(self, draw: float) -> int:
        """The length of the short side for a number drawn from 0 to 1."""
        if self.inverse:
            return round(1.0 / (1.0 / self.high + (1.0 / self.low - 1.0 / self.high) * draw))
        return round(self.low + (self.high - self.low) * draw)


def resize(clip: Num[Tensor, "3 t H W"], size: Size) -> Num[Tensor, "3 t h w"]:
    """The clip at another height and width. Interleaved bytes are resized as bytes, much faster than floats."""
    if tuple(clip.shape[2:]) == size:
        return clip
    frames = clip.transpose(0, 1)
    return F.interpolate(frames, size=size, mode="bilinear", align_corners=False, antialias=True).transpose(0, 1)


def resize_plain(clip: Float[Tensor, "c t h w"], size: Size) -> Float[Tensor, "c t H W"]:
    """Bilinear without antialiasing, as the released models saw their clips; the clip itself if it has that size."""
    if tuple(clip.shape[2:]) == size:
        return clip
    frames = clip.transpose(0, 1)
    return F.interpolate(frames, size=size, mode="bilinear", align_corners=False, antialias=False).transpose(0, 1)


def resize_to_floats(clip: Num[Tensor, "3 t h w"], size: Size) -> Float[Tensor, "3 t H W"]:
    """`resize_plain` without rounding: bytes become floats from 0 to 1, a frame at a time to spare memory."""
    if clip.is_floating_point():
        return resize_plain(clip, size)
    return torch.cat([resize_plain(frame.float() / 255.0, size) for frame in clip.split(1, dim=1)], dim=1)


def released_size(height: int, width: int, short: int) -> Size:
    """Height and width after the released resize: the short side becomes `short`, the other is rounded down.

    The quotient is rounded to double before the product, which at some sizes loses a pixel against `cover`.
    """
    if short == min(height, width):
        return height, width
    if width < height:
        return int(height / width * short), short
    return short, int(width / height * short)


def released_cover(have: Size, want: Size) -> Size:
    """`cover` by the released rule, which knows squares only."""
    return released_size(*have, want[0]) if want[0] == want[1] else cover(have, want)


def cover(have: Size, want: Size) -> Size:
    """The smallest size of the shape `have` that covers `want`: one side fits, the other is rounded down."""
    height, width = have
    if height * want[1] <= width * want[0]:  # the height is what limits
        return want[0], max(width * want[0] // height, want[1])
    return max(height * want[1] // width, want[0]), want[1]


def as_pair(size: int | Size) -> Size:
    """Height and width; one number is a square."""
    return (size, size) if isinstance(size, int) else size
