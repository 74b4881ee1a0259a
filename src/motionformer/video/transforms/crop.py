"""Cutting a rectangle out of all frames of a clip: at random, in the middle, or one of three along the long side."""

import math

from jaxtyping import Num
from torch import Generator, Tensor

from motionformer.video.transforms.contract import Transform, uniform, whole
from motionformer.video.transforms.resize import Size, as_pair, resize


class RandomCrop(Transform):
    """`size` (a side, or height and width) from anywhere."""

    def __init__(self, size: int | Size) -> None:
        self.size = as_pair(size)

    def __call__(self, clip: Num[Tensor, "3 t H W"], generator: Generator | None = None) -> Num[Tensor, "3 t h w"]:
        down, across = room(clip, self.size)
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
    """

    TRIES = 10

    def __init__(
        self,
        size: int | Size,
        area: tuple[float, float] = (0.08, 1.0),
        ratio: tuple[float, float] = (3 / 4, 4 / 3),
    ) -> None:
        if not (0 < area[0] <= area[1] <= 1 and 0 < ratio[0] <= ratio[1]):
            raise ValueError(f"area {area} and ratio {ratio}: smallest first, an area is a share of the picture.")
        self.size = as_pair(size)
        self.area = area
        self.ratio = ratio

    def __call__(self, clip: Num[Tensor, "3 t H W"], generator: Generator | None = None) -> Num[Tensor, "3 t h w"]:
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
