"""RandAugment (Cubuk et al. 2020) for clips: some changes of picture or colour, the same for all frames.

What a change looks at (mean, histogram) is the whole clip, so that brightness never flickers from frame to frame.
"""

from collections.abc import Callable, Mapping

import torch
from jaxtyping import Int, Num, UInt8
from torch import Generator, Tensor

from motionformer.video.transforms.colour import (
    brightness_map,
    contrast_map,
    mean_colour,
    recolour,
    saturation_map,
)
from motionformer.video.transforms.contract import Transform, uniform, whole
from motionformer.video.transforms.pixels import to_bytes
from motionformer.video.transforms.warp import rotation, sharpen, warp

Bytes = UInt8[Tensor, "3 t H W"]
STRONGEST = 30.0


class RandAugment(Transform):
    """`num_ops` changes drawn from `OPERATIONS`, each at strength `magnitude` out of 30, to either side.

    Args:
        spread: standard deviation of the magnitude, a new one for each change.
    """

    def __init__(self, num_ops: int = 2, magnitude: float = 20.0, spread: float = 0.0) -> None:
        if num_ops < 0 or not 0 <= magnitude <= STRONGEST or spread < 0:
            raise ValueError(f"num_ops is 0 or more, magnitude 0 to {STRONGEST:.0f}, spread not negative.")
        self.num_ops = num_ops
        self.magnitude = magnitude
        self.spread = spread

    def __call__(self, clip: Num[Tensor, "3 t H W"], generator: Generator | None = None) -> Num[Tensor, "3 t H W"]:
        pixels = to_bytes(clip)
        names = tuple(OPERATIONS)
        for _ in range(self.num_ops):
            name = names[whole(0, len(names) - 1, generator, self)]
            pixels = OPERATIONS[name](pixels, self.draw_strength(generator))
        return pixels if clip.dtype == torch.uint8 else pixels.to(clip.dtype) / 255.0

    def draw_strength(self, generator: Generator | None) -> float:
        """From −1 to 1; the sign is the side to which the picture is changed."""
        sign = 1.0 if uniform(0.0, 1.0, generator, self) < 0.5 else -1.0
        magnitude = self.magnitude
        if self.spread > 0:
            magnitude += self.spread * torch.randn((), generator=generator).item()
        return sign * min(max(magnitude / STRONGEST, 0.0), 1.0)


def equalise(clip: Bytes, strength: float = 0.0) -> Bytes:
    """Every brightness about as often as any other, per channel."""
    return look_up(clip, torch.stack([_equal_shares(channel) for channel in clip]))


def _equal_shares(channel: UInt8[Tensor, "t H W"]) -> Int[Tensor, "256"]:
    counts = torch.bincount(channel.flatten(), minlength=256)
    occurs = counts.nonzero()
    if occurs.numel() < 2:
        return torch.arange(256, device=channel.device)
    below = counts.cumsum(0) - counts
    darker = below[occurs[-1, 0]]  # all pixels but the brightest: the full range is shared out among them
    return (below * 255 + darker // 2) // darker


def stretch(clip: Bytes, strength: float = 0.0) -> Bytes:
    """Each channel from its darkest and brightest to the full range (autocontrast)."""
    low, high = (bound.float()[:, None] for bound in torch.aminmax(clip.reshape(3, -1), dim=1))
    values = torch.arange(256.0, device=clip.device).expand(3, 256)
    stretched = (values - low) * 255.0 / (high - low).clamp(min=1.0)
    return look_up(clip, torch.where(high > low, stretched, values).round())


def solarise(clip: Bytes, strength: float) -> Bytes:
    """Bright pixels, above a threshold, become their negative."""
    values = torch.arange(256, device=clip.device)
    return look_up(clip, torch.where(values > 255 * (1.0 - abs(strength)), 255 - values, values))


def posterise(clip: Bytes, strength: float) -> Bytes:
    """Fewer bits per channel, four at least."""
    dropped = round(4 * abs(strength))
    return look_up(clip, torch.arange(256, device=clip.device) & (256 - 2**dropped))


def look_up(clip: Bytes, table: Num[Tensor, "*channels 256"]) -> Bytes:
    """The byte that stands in the table (one for all channels, or one each) for every byte of the clip."""
    tables = table.clamp(0, 255).to(torch.uint8).expand(3, 256)
    planes = [one.index_select(0, plane.flatten().int()) for one, plane in zip(tables, clip, strict=True)]
    return torch.stack(planes).view(clip.shape)


OPERATIONS: Mapping[str, Callable[[Bytes, float], Bytes]] = {
    "identity": lambda clip, strength: clip,
    "stretch": stretch,
    "equalise": equalise,
    "solarise": solarise,
    "posterise": posterise,
    "brightness": lambda clip, strength: recolour(clip, brightness_map(1.0 + 0.9 * strength)),
    "contrast": lambda clip, strength: recolour(clip, contrast_map(1.0 + 0.9 * strength, mean_colour(clip))),
    "saturation": lambda clip, strength: recolour(clip, saturation_map(1.0 + 0.9 * strength)),
    "sharpness": lambda clip, strength: sharpen(clip, 1.0 + 0.9 * strength),
    "rotate": lambda clip, strength: warp(clip, rotation(30.0 * strength)),
    "shear across": lambda clip, strength: warp(clip, ((1.0, 0.3 * strength), (0.0, 1.0))),
    "shear down": lambda clip, strength: warp(clip, ((1.0, 0.0), (0.3 * strength, 1.0))),
    "shift across": lambda clip, strength: warp(clip, shift=(0.45 * strength, 0.0)),
    "shift down": lambda clip, strength: warp(clip, shift=(0.0, 0.45 * strength)),
}
