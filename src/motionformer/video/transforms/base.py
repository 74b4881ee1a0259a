"""What a transform is: clip in, clip out, one random draw for all frames, every draw from the generator it is given.

A clip here is `[3 t H W]`, RGB, in any memory layout: bytes, or floats from 0 to 1. A step gives back the kind of
pixels it was given; only `Normalise`, and resizing as released, turn bytes into floats. Nothing here knows where frames
come from. Below the contract, the two ends of a pipeline: decoded frames become a clip, a clip what a model takes.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TypeVar

import torch
from jaxtyping import Float, Num
from torch import Generator, Tensor

Clip = Num[Tensor, "3 t _ _"]
Label = TypeVar("Label")


class Transform(ABC):
    """One step, or a pipeline of them; everything about it is chosen at construction."""

    @abstractmethod
    def __call__(self, clip: Clip, generator: Generator | None = None) -> Clip:
        """The changed clip. Steps that draw at random need a generator."""

    def with_label(
        self, clip: Num[Tensor, "..."], label: Label, generator: Generator | None = None
    ) -> tuple[Clip, Label]:
        """The changed clip and the label that is right for it: the same one, except where a mirror changes it."""
        return self(clip, generator), label

    def _uniform(self, generator: Generator | None, low: float = 0.0, high: float = 1.0) -> float:
        """A number from `low` to `high`."""
        return low + (high - low) * torch.rand((), generator=self._required(generator)).item()

    def _whole(self, generator: Generator | None, high: int) -> int:
        """A whole number from 0 to `high`, both included."""
        return int(torch.randint(0, high + 1, (), generator=self._required(generator)).item())

    def _required(self, generator: Generator | None) -> Generator:
        """The generator, or an error: without one the draw would come from global state."""
        if generator is None:
            raise ValueError(f"{type(self).__name__} draws at random: pass a torch.Generator.")
        return generator

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


_Triple = tuple[float, float, float]
_FrameChange = Callable[[Float[Tensor, "3 H W"]], Float[Tensor, "3 H W"]]


class FromFrames(Transform):
    """`[t H W 3] -> [3 t H W]`, as a view: pixels stay interleaved in memory, which is what makes resizing fast."""

    def __call__(self, clip: Num[Tensor, "t H W 3"], generator: Generator | None = None) -> Num[Tensor, "3 t H W"]:
        return clip.permute(3, 0, 1, 2)


class Normalise(Transform):
    """Bytes or floats from 0 to 1 → contiguous floats, `(x − mean) / std` per channel."""

    def __init__(self, mean: _Triple = (0.5, 0.5, 0.5), std: _Triple = (0.5, 0.5, 0.5)) -> None:
        self.mean = mean
        self.std = std

    def __call__(self, clip: Num[Tensor, "3 t H W"], generator: Generator | None = None) -> Float[Tensor, "3 t H W"]:
        full = 255.0 if clip.dtype == torch.uint8 else 1.0
        std = clip.new_tensor(self.std, dtype=torch.float32)
        scale = 1.0 / (std * full)
        shift = -clip.new_tensor(self.mean, dtype=torch.float32) / std
        planes = clip.contiguous().to(torch.float32, copy=True)  # bytes are reordered before they grow to floats
        return planes.mul_(scale[:, None, None, None]).add_(shift[:, None, None, None])


class SwapChannels(Transform):
    """RGB → BGR, which the EPIC-Kitchens weights expect (method.md §5)."""

    def __call__(self, clip: Num[Tensor, "3 t H W"], generator: Generator | None = None) -> Num[Tensor, "3 t H W"]:
        return clip.flip(0)


def by_frame(clip: Num[Tensor, "3 t H W"], change: _FrameChange) -> Num[Tensor, "3 t H W"]:
    """`change` (floats from 0 to 1 in and out) on every frame; the same kind of pixels as were given.

    One frame at a time: its floats stay in the processor's cache, where those of a clip would go through memory.
    """
    is_bytes = clip.dtype == torch.uint8
    changed = torch.empty_like(clip, memory_format=torch.contiguous_format)
    for before, after in zip(clip.unbind(1), changed.unbind(1), strict=True):
        pixels = change(before.contiguous().to(torch.float32) / 255.0 if is_bytes else before.contiguous())
        after.copy_((pixels * 255.0).round_() if is_bytes else pixels)
    return changed
