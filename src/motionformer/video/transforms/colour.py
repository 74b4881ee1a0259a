"""Colour changes as affine maps of RGB, and colour jitter as one of them.

Brightness, contrast, saturation and hue (a turn in the plane of colour differences, YIQ) each take a pixel x to
`M x + b`. So any chain of them is one matrix and one pass over the clip, where a library that goes through HSV and
clamps after every step needs ten times as long (docs/video.md). Pixels are clamped once, at the end.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, get_args

import torch
from jaxtyping import Float, Num
from torch import Generator, Tensor

from motionformer.video.transforms.base import Transform, by_frame

_GREY = (0.299, 0.587, 0.114)
_TO_YIQ = ((0.299, 0.587, 0.114), (0.596, -0.274, -0.322), (0.211, -0.523, 0.312))


class ColourMap(NamedTuple):
    """`x -> matrix x + shift` on RGB from 0 to 1."""

    matrix: Float[Tensor, "3 3"]
    shift: Float[Tensor, "3"]

    def after(self, first: "ColourMap") -> "ColourMap":
        """Both maps in a row."""
        return ColourMap(self.matrix @ first.matrix, self.matrix @ first.shift + self.shift)

    def colour(self, rgb: Float[Tensor, "3"]) -> Float[Tensor, "3"]:
        """What becomes of one colour."""
        return self.matrix @ rgb + self.shift

    def apply(self, clip: Num[Tensor, "3 t H W"]) -> Num[Tensor, "3 t H W"]:
        """The changed clip, clamped to the range of pixels."""
        matrix, shift = (part.to(clip.device) for part in (self.matrix, self.shift[:, None]))

        def one(frame: Tensor) -> Tensor:
            pixels = torch.addmm(shift.to(frame.dtype), matrix.to(frame.dtype), frame.flatten(1))
            return pixels.clamp_(0.0, 1.0).view(frame.shape)

        return by_frame(clip, one)

    @classmethod
    def brightness(cls, factor: float) -> "ColourMap":
        """Towards black (0) or beyond the original (above 1)."""
        return cls(torch.eye(3) * factor, torch.zeros(3))

    @classmethod
    def contrast(cls, factor: float, mean: Float[Tensor, "3"]) -> "ColourMap":
        """Towards the grey of the mean colour."""
        grey = (torch.tensor(_GREY) @ mean).expand(3)
        return cls(torch.eye(3) * factor, (1.0 - factor) * grey)

    @classmethod
    def saturation(cls, factor: float) -> "ColourMap":
        """Towards the pixel's own grey."""
        return cls(torch.eye(3) * factor + (1.0 - factor) * torch.tensor(_GREY).expand(3, 3), torch.zeros(3))

    @classmethod
    def hue(cls, turn: float) -> "ColourMap":
        """Around the circle of hues, brightness kept; `turn` 1 is once around."""
        to_yiq = torch.tensor(_TO_YIQ)
        cos, sin = math.cos(2 * math.pi * turn), math.sin(2 * math.pi * turn)
        rotation = torch.tensor([[1.0, 0.0, 0.0], [0.0, cos, -sin], [0.0, sin, cos]])
        return cls(torch.linalg.solve(to_yiq, rotation @ to_yiq), torch.zeros(3))


@dataclass(eq=False)
class ColourJitter(Transform):
    """Brightness, contrast, saturation and hue, each changed by a random amount, in a random order.

    Args:
        brightness, contrast, saturation: a factor from 1 − amount to 1 + amount.
        hue: largest turn to either side, as a share of the full circle.
        probability: of changing anything.
    """

    brightness: float = 0.4
    contrast: float = 0.4
    saturation: float = 0.4
    hue: float = 0.1
    probability: float = 1.0

    def __post_init__(self) -> None:
        factors = (self.brightness, self.contrast, self.saturation)
        if not (all(0 <= amount <= 1 for amount in factors) and 0 <= self.hue <= 0.5):
            raise ValueError("amounts of brightness, contrast and saturation are 0 to 1, of hue 0 to 0.5.")

    def __call__(self, clip: Num[Tensor, "3 t H W"], generator: Generator | None = None) -> Num[Tensor, "3 t H W"]:
        if self._uniform(generator) >= self.probability:
            return clip
        factors = [1.0 + self._uniform(generator, -a, a) for a in (self.brightness, self.contrast, self.saturation)]
        turn = self._uniform(generator, -self.hue, self.hue)
        mean = mean_colour(clip)
        chain = ColourMap(torch.eye(3), torch.zeros(3))
        for step in torch.randperm(4, generator=self._required(generator)).tolist():
            maps = (
                ColourMap.brightness(factors[0]),
                ColourMap.contrast(factors[1], chain.colour(mean)),
                ColourMap.saturation(factors[2]),
                ColourMap.hue(turn),
            )
            chain = maps[step].after(chain)
        return chain.apply(clip)


@dataclass(eq=False)
class ReleasedColourJitter(Transform):
    """Brightness, contrast and saturation as the released Kinetics models were trained: on normalised clips, last.

    0 of the normalised values is mid-grey, and brightness goes towards or away from that; contrast towards the mean
    grey of each frame; grey has the weights of BGR although clips are RGB. Nothing is clamped.

    Args:
        amount: a factor from 1 − amount to 1 + amount for each of the three, in a random order.
        probability: of changing anything.
    """

    amount: float = 0.4
    probability: float = 0.8

    def __post_init__(self) -> None:
        if not (0 <= self.amount <= 1 and 0 <= self.probability <= 1):
            raise ValueError(
                f"amount ({self.amount}) and probability ({self.probability}) of colour jitter must be 0 to 1."
            )

    def __call__(self, clip: Num[Tensor, "3 t H W"], generator: Generator | None = None) -> Num[Tensor, "3 t H W"]:
        if not clip.is_floating_point():
            raise TypeError("ReleasedColourJitter works on normalised floats: put it after Normalise.")
        if self._uniform(generator) >= self.probability:
            return clip
        factors = [1.0 + self._uniform(generator, -self.amount, self.amount) for _ in _RELEASED_CHANGES]
        order = torch.randperm(3, generator=self._required(generator)).tolist()
        return _change_colours(clip, [(_RELEASED_CHANGES[k], factors[k]) for k in order])


_ReleasedChange = Literal["brightness", "contrast", "saturation"]
_RELEASED_CHANGES: tuple[_ReleasedChange, ...] = get_args(_ReleasedChange)
_RELEASED_GREY = _GREY[::-1]


def _change_colours(
    clip: Float[Tensor, "3 t H W"], changes: Sequence[tuple[_ReleasedChange, float]]
) -> Float[Tensor, "3 t H W"]:
    """`changes` (name and factor) of `ReleasedColourJitter` one after the other."""
    weights = clip.new_tensor(_RELEASED_GREY)[:, None, None, None]
    for name, factor in changes:
        if name == "brightness":
            clip = clip * factor
            continue
        grey = (clip * weights).sum(dim=0, keepdim=True)
        towards = grey.mean(dim=(2, 3), keepdim=True) if name == "contrast" else grey
        clip = factor * clip + (1.0 - factor) * towards
    return clip


def mean_colour(clip: Num[Tensor, "3 t H W"]) -> Float[Tensor, "3"]:
    """Over all frames: one colour for the clip, so that all frames get the same change."""
    means = torch.stack([frame.float().mean(dim=(1, 2)) for frame in clip.unbind(1)]).mean(dim=0).cpu()
    return means / 255.0 if clip.dtype == torch.uint8 else means
