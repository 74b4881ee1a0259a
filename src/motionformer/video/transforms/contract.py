"""What a transform is: clip in, clip out, one random draw for all frames, every draw from the generator it is given.

A clip here is `[3 t H W]`, RGB, in any memory layout: bytes, or floats from 0 to 1. A step gives back the kind of
pixels it was given; only `Normalise`, and resizing as released, turn bytes into floats. Nothing here knows where frames
come from.
"""

from abc import ABC, abstractmethod
from typing import Any, TypeVar

import torch
from jaxtyping import Num
from torch import Generator, Tensor

Clip = Num[Tensor, "3 t _ _"]
Label = TypeVar("Label")


class Transform(ABC):
    """One step, or a pipeline of them; everything it does was said when it was made."""

    @abstractmethod
    def __call__(self, clip: Clip, generator: Generator | None = None) -> Clip:
        """The changed clip. Steps that draw at random refuse to work without a generator."""

    def with_label(
        self, clip: Num[Tensor, "..."], label: Label, generator: Generator | None = None
    ) -> tuple[Clip, Label]:
        """The changed clip and the label that is right for it: the same one, except where a mirror changes it."""
        return self(clip, generator), label

    def __repr__(self) -> str:
        values = ", ".join(f"{key}={value!r}" for key, value in vars(self).items() if not key.startswith("_"))
        return f"{type(self).__name__}({values})"


class Pipeline(Transform):
    """Steps one after the other."""

    def __init__(self, *steps: Transform) -> None:
        self.steps = steps

    def __call__(self, clip: Num[Tensor, "..."], generator: Generator | None = None) -> Clip:
        for step in self.steps:
            clip = step(clip, generator)
        return clip

    def with_label(
        self, clip: Num[Tensor, "..."], label: Label, generator: Generator | None = None
    ) -> tuple[Clip, Label]:
        for step in self.steps:
            clip, label = step.with_label(clip, label, generator)
        return clip, label

    def __repr__(self) -> str:
        return "\n".join(["Pipeline:", *(f"  {step!r}" for step in self.steps)])


def uniform(low: float, high: float, generator: Generator | None, who: Any) -> float:
    """A number from `low` to `high`."""
    return low + (high - low) * torch.rand((), generator=required(generator, who)).item()


def whole(low: int, high: int, generator: Generator | None, who: Any) -> int:
    """A whole number from `low` to `high`, both included."""
    return int(torch.randint(low, high + 1, (), generator=required(generator, who)).item())


def required(generator: Generator | None, who: Any) -> Generator:
    """The generator, or an error: without one the draw would come from global state."""
    if generator is None:
        raise ValueError(f"{type(who).__name__} draws at random: pass a torch.Generator.")
    return generator
