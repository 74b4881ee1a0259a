"""The two ends of a pipeline: decoded frames become a clip, and a clip becomes what a model takes."""

from collections.abc import Callable

import torch
from jaxtyping import Float, Num, UInt8
from torch import Generator, Tensor

from motionformer.video.transforms.contract import Transform

Triple = tuple[float, float, float]
FrameChange = Callable[[Float[Tensor, "3 H W"]], Float[Tensor, "3 H W"]]


class FromFrames(Transform):
    """`[t H W 3] -> [3 t H W]`, as a view: pixels stay interleaved in memory, which is what makes resizing fast."""

    def __call__(self, clip: Num[Tensor, "t H W 3"], generator: Generator | None = None) -> Num[Tensor, "3 t H W"]:
        return clip.permute(3, 0, 1, 2)


class Normalise(Transform):
    """Bytes or floats from 0 to 1 → contiguous floats, `(x − mean) / std` per channel."""

    def __init__(self, mean: Triple = (0.5, 0.5, 0.5), std: Triple = (0.5, 0.5, 0.5)) -> None:
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


def by_frame(clip: Num[Tensor, "3 t H W"], change: FrameChange) -> Num[Tensor, "3 t H W"]:
    """`change` (floats from 0 to 1 in and out) on every frame; the same kind of pixels as were given.

    One frame at a time: its floats stay in the processor's cache, where those of a clip would go through memory.
    """
    is_bytes = clip.dtype == torch.uint8
    changed = torch.empty_like(clip, memory_format=torch.contiguous_format)
    for before, after in zip(clip.unbind(1), changed.unbind(1), strict=True):
        pixels = change(before.contiguous().to(torch.float32) / 255.0 if is_bytes else before.contiguous())
        after.copy_((pixels * 255.0).round_() if is_bytes else pixels)
    return changed


def to_bytes(clip: Num[Tensor, "3 t H W"]) -> UInt8[Tensor, "3 t H W"]:
    """The clip as bytes, one plane per channel in memory; floats are rounded."""
    return clip.contiguous() if clip.dtype == torch.uint8 else (clip.contiguous() * 255.0).round_().to(torch.uint8)
