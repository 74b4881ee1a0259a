"""Cutting a rectangle out of all frames of a clip: at random, in the middle, or one of three along the long side."""

import math
import struct
from collections.abc import Iterator

from jaxtyping import Num
from torch import Generator, Tensor

from motionformer.video.transforms.contract import Transform, uniform, whole
from motionformer.video.transforms.resize import Size, as_pair, resize, resize_to_floats


class RandomCrop(Transform):
    """`size` (a side, or height and width) from anywhere.

    Args:
        released: never from the last row or column of places, which the release does not draw.
    """

    def __init__(self, size: int | Size, *, released: bool = False) -> None:
        self.size = as_pair(size)
        self.released = released

    def __call__(self, clip: Num[Tensor, "3 t H W"], generator: Generator | None = None) -> Num[Tensor, "3 t h w"]:
        down, across = room(clip, self.size)
        if self.released:
            top, left = (released_offset(space, uniform(0.0, 1.0, generator, self)) for space in (down, across))
            return cut(clip, top, left, self.size)
        return cut(clip, whole(0, down, generator, self), whole(0, across, generator, self), self.size)


class CentreCrop(Transform):
    """`size` from the middle."""

    def __init__(self, size: int | Size) -> None:
        self.size = as_pair(size)

    def __call__(self, clip: Num[Tensor, "3 t H W"], generator: Generator | None = None) -> Num[Tensor, "3 t h w"]:
        down, across = room(clip, self.size)
        return cut(clip, middle(down), middle(across), self.size)


class SideCrop(Transform):
    """One of the three crops of the testing protocol: 0 left (or top), 1 centre, 2 right (or bottom).

    Along the side with more room; in the middle of the other.
    """

    def __init__(self, size: int | Size, index: int) -> None:
        if index not in (0, 1, 2):
            raise ValueError(f"there are three crops, 0 to 2; not {index!r}.")
        self.size = as_pair(size)
        self.index = index

    def __call__(self, clip: Num[Tensor, "3 t H W"], generator: Generator | None = None) -> Num[Tensor, "3 t h w"]:
        down, across = room(clip, self.size)
        if down > across:
            return cut(clip, (0, middle(down), down)[self.index], middle(across), self.size)
        return cut(clip, middle(down), (0, middle(across), across)[self.index], self.size)


class RandomResizedCrop(Transform):
    """A rectangle of random area and shape, resized to `size`.

    Args:
        area: share of the picture, smallest and largest.
        ratio: width to height, narrowest and widest.
        released: pixels as in the release (`resize_plain`; bytes become floats), and its centre where no rectangle
            fits.
    """

    TRIES = 10

    def __init__(
        self,
        size: int | Size,
        area: tuple[float, float] = (0.08, 1.0),
        ratio: tuple[float, float] = (3 / 4, 4 / 3),
        *,
        released: bool = False,
    ) -> None:
        if not (0 < area[0] <= area[1] <= 1 and 0 < ratio[0] <= ratio[1]):
            raise ValueError(f"area {area} and ratio {ratio}: smallest first, an area is a share of the picture.")
        self.size = as_pair(size)
        self.area = area
        self.ratio = ratio
        self.released = released

    def __call__(self, clip: Num[Tensor, "3 t H W"], generator: Generator | None = None) -> Num[Tensor, "3 t h w"]:
        if self.released:
            draws = iter(lambda: uniform(0.0, 1.0, generator, self), None)
            top, left, size = released_box((clip.shape[2], clip.shape[3]), self.area, self.ratio, draws, self.TRIES)
            return resize_to_floats(cut(clip, top, left, size), self.size)
        size = self.draw((clip.shape[2], clip.shape[3]), generator)
        return resize(RandomCrop(size)(clip, generator), self.size)

    def draw(self, have: Size, generator: Generator | None) -> Size:
        """Height and width of a rectangle that fits; if none is found, the largest of an allowed shape."""
        height, width = have
        for _ in range(self.TRIES):
            pixels = height * width * uniform(*self.area, generator, self)
            ratio = math.exp(uniform(math.log(self.ratio[0]), math.log(self.ratio[1]), generator, self))
            size = round(math.sqrt(pixels / ratio)), round(math.sqrt(pixels * ratio))
            if 0 < size[0] <= height and 0 < size[1] <= width:
                return size
        ratio = min(max(width / height, self.ratio[0]), self.ratio[1])
        return max(min(height, round(width / ratio)), 1), max(min(width, round(height * ratio)), 1)


def released_offset(space: int, draw: float) -> int:
    """Where a released crop begins that can move by `space`, for a number drawn from 0 to 1; never at the end."""
    return max(min(int(draw * space), space - 1), 0)


def released_box(
    have: Size, area: tuple[float, float], ratio: tuple[float, float], draws: Iterator[float], tries: int = 10
) -> tuple[int, int, Size]:
    """Top, left and size of the released random resized crop, from numbers drawn from 0 to 1.

    A try takes two draws (area, ratio), the accepted one two more (top, left). After the last failure the largest
    rectangle of an allowed shape in the middle.
    """
    height, width = have
    narrow, wide = (_single(math.log(bound)) for bound in ratio)
    for _ in range(tries):
        pixels = height * width * _single(area[0] + (area[1] - area[0]) * next(draws))
        shape = _single(math.exp(_single(narrow + (wide - narrow) * next(draws))))
        size = round(math.sqrt(pixels / shape)), round(math.sqrt(pixels * shape))
        if 0 < size[0] <= height and 0 < size[1] <= width:
            top, left = (min(int(next(draws) * (s - c + 1)), s - c) for s, c in zip(have, size, strict=True))
            return top, left, size
    size = height, width
    if width / height < ratio[0]:
        size = round(width / ratio[0]), width
    elif width / height > ratio[1]:
        size = height, round(height * ratio[1])
    return (height - size[0]) // 2, (width - size[1]) // 2, size


def _single(value: float) -> float:
    """In single precision, as the release draws."""
    return struct.unpack("f", struct.pack("f", value))[0]  # type: ignore[no-any-return]


def cut(clip: Num[Tensor, "3 t H W"], top: int, left: int, size: Size) -> Num[Tensor, "3 t h w"]:
    """A view of part of every frame."""
    return clip[:, :, top : top + size[0], left : left + size[1]]


def room(clip: Num[Tensor, "3 t H W"], size: Size) -> Size:
    """How far a crop can move down and to the right."""
    height, width = clip.shape[2:]
    if height < size[0] or width < size[1]:
        raise ValueError(
            f"a crop of {size[0]} × {size[1]} does not fit into frames of {height} × {width}: resize them first."
        )
    return height - size[0], width - size[1]


def middle(space: int) -> int:
    """Half of it, rounded up as in the published protocol."""
    return (space + 1) // 2
