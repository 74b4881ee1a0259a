"""Where a clip's pixels come from: resizing that keeps the shape of the picture, crops, erasing, mirroring.

Resizing is bilinear (bicubic for models that were trained so) with antialiasing. Enlarging, that changes nothing;
shrinking, pixels are averaged and not skipped, so a 1080p file gives the clip that a 256-pixel copy of it would
(docs/video.md). Class names tell what mirroring does to a label: two names that differ by left and right (or by
clockwise and counter-clockwise) are twins.
"""

import math
import re
import struct
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float, Num
from torch import Generator, Tensor

from motionformer.video.spec import Interpolation
from motionformer.video.transforms.base import Label, Transform

Size = tuple[int, int]


@dataclass(eq=False)
class ShortSideResize(Transform):
    """The short side becomes `size`. For a pair (height, width): the smallest picture that covers it.

    Args:
        released: sizes and pixels as in the release: bytes become floats, no antialiasing.
        interpolation: otherwise.
    """

    size: int | Size
    released: bool = field(default=False, kw_only=True)
    interpolation: Interpolation = field(default="bilinear", kw_only=True)

    def __call__(self, clip: Num[Tensor, "3 t H W"], generator: Generator | None = None) -> Num[Tensor, "3 t h w"]:
        have, want = (clip.shape[2], clip.shape[3]), _as_pair(self.size)
        if self.released:
            return _resize_to_floats(clip, released_cover(have, want))
        return resize(clip, cover(have, want), self.interpolation)


@dataclass(eq=False)
class ShortSideJitter(Transform):
    """The short side becomes a length between `low` and `high`; every length alike, or (`inverse`) its inverse alike.

    With `inverse`, short lengths come more often, so that every magnification of a *crop* is as likely.

    Args:
        shape: of the crop that follows, where it is not a square.
        released: sizes and pixels as in the release (`_released_size`, `_resize_plain`); bytes become floats.
    """

    low: int
    high: int
    _: KW_ONLY
    inverse: bool = False
    shape: Size = (1, 1)
    released: bool = False

    def __post_init__(self) -> None:
        if not 0 < self.low <= self.high:
            raise ValueError(
                f"the short side is drawn from {self.low} to {self.high}: they must be positive and in order."
            )
        if self.released and self.shape[0] != self.shape[1]:
            raise ValueError(f"the released protocol takes square crops; not {self.shape[0]} × {self.shape[1]}.")

    def __call__(self, clip: Num[Tensor, "3 t H W"], generator: Generator | None = None) -> Num[Tensor, "3 t h w"]:
        side = self.side(self._uniform(generator))
        if self.released:
            return _resize_to_floats(clip, _released_size(clip.shape[2], clip.shape[3], side))
        short = min(self.shape)
        target = (side * self.shape[0] // short, side * self.shape[1] // short)
        return resize(clip, cover((clip.shape[2], clip.shape[3]), target))

    def side(self, draw: float) -> int:
        """The length of the short side for a number drawn from 0 to 1."""
        if self.inverse:
            return round(1.0 / (1.0 / self.high + (1.0 / self.low - 1.0 / self.high) * draw))
        return round(self.low + (self.high - self.low) * draw)


def resize(
    clip: Num[Tensor, "3 t H W"], size: Size, interpolation: Interpolation = "bilinear"
) -> Num[Tensor, "3 t h w"]:
    """The clip at another height and width. Interleaved bytes are resized as bytes, much faster than floats."""
    if tuple(clip.shape[2:]) == size:
        return clip
    frames = clip.transpose(0, 1)
    return F.interpolate(frames, size=size, mode=interpolation, align_corners=False, antialias=True).transpose(0, 1)


def _resize_plain(clip: Float[Tensor, "c t h w"], size: Size) -> Float[Tensor, "c t H W"]:
    """Bilinear without antialiasing, as the released models saw their clips; the clip itself if it has that size."""
    if tuple(clip.shape[2:]) == size:
        return clip
    frames = clip.transpose(0, 1)
    return F.interpolate(frames, size=size, mode="bilinear", align_corners=False, antialias=False).transpose(0, 1)


def _resize_to_floats(clip: Num[Tensor, "3 t h w"], size: Size) -> Float[Tensor, "3 t H W"]:
    """`_resize_plain` without rounding: bytes become floats from 0 to 1, a frame at a time to spare memory."""
    if clip.is_floating_point():
        return _resize_plain(clip, size)
    return torch.cat([_resize_plain(frame.float() / 255.0, size) for frame in clip.split(1, dim=1)], dim=1)


def _released_size(height: int, width: int, short: int) -> Size:
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
    return _released_size(*have, want[0]) if want[0] == want[1] else cover(have, want)


def cover(have: Size, want: Size) -> Size:
    """The smallest size of the shape `have` that covers `want`: one side fits, the other is rounded down."""
    height, width = have
    if height * want[1] <= width * want[0]:  # the height is what limits
        return want[0], max(width * want[0] // height, want[1])
    return max(height * want[1] // width, want[0]), want[1]


def _as_pair(size: int | Size) -> Size:
    """Height and width; one number is a square."""
    return (size, size) if isinstance(size, int) else size


class _Crop(Transform):
    """`size` (a side, or height and width) from the corner that a subclass chooses."""

    def __init__(self, size: int | Size) -> None:
        self.size = _as_pair(size)

    def __call__(self, clip: Num[Tensor, "3 t H W"], generator: Generator | None = None) -> Num[Tensor, "3 t h w"]:
        (height, width), size = clip.shape[2:], self.size
        if height < size[0] or width < size[1]:
            raise ValueError(
                f"a crop of {size[0]} × {size[1]} does not fit into frames of {height} × {width}: resize them first."
            )
        top, left = self._corner(height - size[0], width - size[1], generator)
        return clip[:, :, top : top + size[0], left : left + size[1]]

    @abstractmethod
    def _corner(self, down: int, across: int, generator: Generator | None) -> Size:
        """Top and left, for a crop that can move so far down and to the right."""


class RandomCrop(_Crop):
    """`size` (a side, or height and width) from anywhere.

    Args:
        released: never from the last row or column of positions, which the release does not draw.
    """

    def __init__(self, size: int | Size, *, released: bool = False) -> None:
        super().__init__(size)
        self.released = released

    def _corner(self, down: int, across: int, generator: Generator | None) -> Size:
        if self.released:
            return _released_offset(down, self._uniform(generator)), _released_offset(across, self._uniform(generator))
        return self._whole(generator, down), self._whole(generator, across)


class CentreCrop(_Crop):
    """`size` from the middle.

    Args:
        to_even: half a pixel goes to the even one, as in torchvision; otherwise up, as in the published protocol.
    """

    def __init__(self, size: int | Size, *, to_even: bool = False) -> None:
        super().__init__(size)
        self.to_even = to_even

    def _corner(self, down: int, across: int, generator: Generator | None) -> Size:
        return (round(down / 2), round(across / 2)) if self.to_even else (middle(down), middle(across))


class SideCrop(_Crop):
    """One of the three crops of the testing protocol: 0 left (or top), 1 centre, 2 right (or bottom).

    Along the side with more room; in the middle of the other.
    """

    def __init__(self, size: int | Size, index: int) -> None:
        if index not in (0, 1, 2):
            raise ValueError(f"there are three crops, 0 to 2; not {index!r}.")
        super().__init__(size)
        self.index = index

    def _corner(self, down: int, across: int, generator: Generator | None) -> Size:
        if down > across:
            return (0, middle(down), down)[self.index], middle(across)
        return middle(down), (0, middle(across), across)[self.index]


class RandomResizedCrop(Transform):
    """A rectangle of random area and shape, resized to `size`.

    Args:
        area: share of the picture, smallest and largest.
        ratio: width to height, narrowest and widest.
        released: pixels as in the release (`_resize_plain`; bytes become floats), and its centre where no rectangle
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
        self.size = _as_pair(size)
        self.area = area
        self.ratio = ratio
        self.released = released

    def __call__(self, clip: Num[Tensor, "3 t H W"], generator: Generator | None = None) -> Num[Tensor, "3 t h w"]:
        if self.released:
            draws = iter(lambda: self._uniform(generator), None)
            top, left, size = _released_box((clip.shape[2], clip.shape[3]), self.area, self.ratio, draws, self.TRIES)
            return _resize_to_floats(clip[:, :, top : top + size[0], left : left + size[1]], self.size)
        size = self.draw((clip.shape[2], clip.shape[3]), generator)
        return resize(RandomCrop(size)(clip, generator), self.size)

    def draw(self, have: Size, generator: Generator | None) -> Size:
        """Height and width of a rectangle that fits; if none is found, the largest of an allowed shape."""
        height, width = have
        for _ in range(self.TRIES):
            pixels = height * width * self._uniform(generator, *self.area)
            ratio = math.exp(self._uniform(generator, math.log(self.ratio[0]), math.log(self.ratio[1])))
            size = round(math.sqrt(pixels / ratio)), round(math.sqrt(pixels * ratio))
            if 0 < size[0] <= height and 0 < size[1] <= width:
                return size
        ratio = min(max(width / height, self.ratio[0]), self.ratio[1])
        return max(min(height, round(width / ratio)), 1), max(min(width, round(height * ratio)), 1)


def _released_offset(space: int, draw: float) -> int:
    """Where a released crop begins that can move by `space`, for a number drawn from 0 to 1; never at the end."""
    return max(min(int(draw * space), space - 1), 0)


def _released_box(
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


def middle(space: int) -> int:
    """Half of it, rounded up as in the published protocol."""
    return (space + 1) // 2


@dataclass(eq=False)
class RandomErasing(Transform):
    """With some probability, fills a rectangle of random position, area and shape with random pixels.

    Args:
        area: share of the picture, smallest and largest.
        ratio: width to height, narrowest and widest.
    """

    probability: float = 0.25
    area: tuple[float, float] = (0.02, 0.33)
    ratio: tuple[float, float] = (0.3, 3.3)

    def __post_init__(self) -> None:
        self._rectangle = RandomResizedCrop(1, self.area, self.ratio)

    def __call__(self, clip: Num[Tensor, "3 t H W"], generator: Generator | None = None) -> Num[Tensor, "3 t H W"]:
        if self._uniform(generator) >= self.probability:
            return clip
        height, width = self._rectangle.draw((clip.shape[2], clip.shape[3]), generator)
        top = self._whole(generator, clip.shape[2] - height)
        left = self._whole(generator, clip.shape[3] - width)
        noise = torch.rand(3, 1, height, width, generator=self._required(generator))
        erased = clip.clone()
        full = 256.0 if clip.dtype == torch.uint8 else 1.0
        erased[:, :, top : top + height, left : left + width] = (noise * full).to(clip.device, clip.dtype)
        return erased


_MIRRORED = {
    "left": "right",
    "leftward": "rightward",
    "leftwards": "rightwards",
    "clockwise": "counterclockwise",
    "cw": "ccw",
    "links": "rechts",
    "gauche": "droite",
    "izquierda": "derecha",
}
_UNSURE = frozenset({"links"})
"""Words of a side in one language and of something else in another: a side only where the twin is a class too."""
_MIRRORED |= {there: here for here, there in _MIRRORED.items()}


@dataclass(eq=False)
class HorizontalFlip(Transform):
    """Mirrors the clip with some probability. The label stays: only for data whose classes have no sides."""

    probability: float = 0.5

    def __call__(self, clip: Num[Tensor, "3 t H W"], generator: Generator | None = None) -> Num[Tensor, "3 t H W"]:
        return clip.flip(-1) if self._uniform(generator) < self.probability else clip


class LabelAwareFlip(Transform):
    """Mirrors the clip with some probability, and swaps the label of classes that have a side with their twin's.

    If any class has a side but no twin, nothing is ever mirrored: a mirrored clip of that class, or of one that looks
    like its mirror image, would get a wrong label.
    """

    def __init__(self, class_names: Sequence[str], probability: float = 0.5) -> None:
        self.twins, self.without_twin = find_twins(class_names)
        self.probability = 0.0 if self.without_twin else probability
        self._names = tuple(class_names)

    @property
    def pairs(self) -> tuple[tuple[str, str], ...]:
        """The names of classes that are each other's mirror image."""
        return tuple((self._names[a], self._names[b]) for a, b in enumerate(self.twins) if a < b)

    def __call__(self, clip: Num[Tensor, "3 t H W"], generator: Generator | None = None) -> Num[Tensor, "3 t H W"]:
        raise TypeError("LabelAwareFlip may change the label: call `with_label(clip, label, generator)`.")

    def with_label(
        self, clip: Num[Tensor, "3 t H W"], label: Label, generator: Generator | None = None
    ) -> tuple[Num[Tensor, "3 t H W"], Label]:
        """The clip and its label, or the mirrored clip and its twin's label; of several classes, the twin of each."""
        classes: tuple[Any, ...] = label if isinstance(label, tuple) else (label,)
        if not all(isinstance(one, int) and 0 <= one < len(self.twins) for one in classes):
            raise ValueError(f"label {label!r} is not one of the {len(self.twins)} classes this flip was made for.")
        if self._uniform(generator) >= self.probability:
            return clip, label
        twins = [self.twins[one] for one in classes]
        mirrored: Any = tuple(sorted(twins)) if isinstance(label, tuple) else twins[0]
        return clip.flip(-1), mirrored

    def __repr__(self) -> str:
        if self.without_twin:
            return f"LabelAwareFlip(off: no class is the mirror image of {', '.join(map(repr, self.without_twin))})"
        pairs = [f"{here} ↔ {there}" for here, there in self.pairs]
        return f"LabelAwareFlip(probability={self.probability}, {', '.join(pairs) or 'no class has a side'})"


def find_twins(class_names: Sequence[str]) -> tuple[tuple[int, ...], tuple[str, ...]]:
    """For each class the one its mirror image belongs to (mostly itself), and the names whose mirror is no class."""
    words = [_words(name) for name in class_names]
    index = {name: position for position, name in enumerate(words)}
    mirrors = [_mirror(name) for name in words]
    mirrors = [
        mirror if mirror in index else _mirror(name, _UNSURE) for name, mirror in zip(words, mirrors, strict=True)
    ]
    twins = tuple(
        position if name == mirror else index.get(mirror, position)
        for position, (name, mirror) in enumerate(zip(words, mirrors, strict=True))
    )
    return twins, tuple(name for name, mirror in zip(class_names, mirrors, strict=True) if mirror not in index)


def _mirror(words: tuple[str, ...], but: frozenset[str] = frozenset()) -> tuple[str, ...]:
    return tuple(word if word in but else _MIRRORED.get(word, word) for word in words)


def _words(name: str) -> tuple[str, ...]:
    """`SwipeLeft`, `swipe_left` and `Swipe left` are the same words."""
    name = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", name).lower()
    name = re.sub(r"\b(counter|anti)[\s_-]*clockwise", "counterclockwise", name.replace("_", " "))
    return tuple(re.findall(r"[^\W\d_]+|\d+", name))
