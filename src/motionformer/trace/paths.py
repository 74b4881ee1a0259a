"""Maps → paths: where attention is on average in each frame, how far it spreads, where it is strongest, and whether it
has a peak at all. Pure functions of weights."""

import math

import torch
from jaxtyping import Float
from torch import Tensor

REACH = 2
"""Patches around the largest weight that belong to the peak (docs/decisions.md, "where it looks most")."""
MIN_PEAKEDNESS = 0.05
"""Below it a map counts as near uniform, and no path is drawn: measured in docs/seeing.md, "Maps that show nothing"."""
TINY = 1e-300  # maps are double


def expected_path(maps: Float[Tensor, "*which f s"], places: Float[Tensor, "s 2"]) -> Float[Tensor, "*which f 2"]:
    """The mean place of each frame's map (soft-argmax); every map sums to one."""
    return maps @ places


def path_covariance(maps: Float[Tensor, "*which f s"], places: Float[Tensor, "s 2"]) -> Float[Tensor, "*which f 2 2"]:
    """The covariance of the place under each frame's map: its square root is how far off the mean may be."""
    offset = places - expected_path(maps, places)[..., None, :]
    return torch.einsum("...s,...si,...sj->...ij", maps, offset, offset)


def peak_path(
    maps: Float[Tensor, "*which f s"], places: Float[Tensor, "s 2"], patch_size: tuple[float, float]
) -> Float[Tensor, "*which f 2"]:
    """Where each frame's map is strongest: the mean place of what is above a uniform map, around the largest weight.

    A map is a peak on a ground of small weights everywhere, which draws its mean to the middle of the frame; and a map
    of two peaks has its mean between them. A map that is the same everywhere has no peak, and keeps its mean; how much
    of a peak there is, `peakedness` says.
    """
    above = _above_uniform(maps, places, patch_size)
    total = above.sum(dim=-1, keepdim=True)
    return torch.where(total > 0, above / total.clamp(min=TINY), maps) @ places


def peakedness(
    maps: Float[Tensor, "*which f s"], places: Float[Tensor, "s 2"], patch_size: tuple[float, float]
) -> Float[Tensor, "*which f"]:
    """How much of each frame's map `peak_path` stands for: the weight in its peak beyond that of a uniform map.

    0 for a uniform map, almost 1 where one patch gets everything. A map may spread as far as a uniform one and have a
    peak, so the covariance cannot tell; and the entropy of a map of many patches that differ a little everywhere is
    that of a faint peak.
    """
    return _above_uniform(maps, places, patch_size).sum(dim=-1)


def ellipse(covariance: Float[Tensor, "2 2"], deviations: float = 1.0) -> tuple[float, float, float]:
    """Full lengths of the long and the short axis, and the angle of the long one in degrees from x towards y."""
    lengths, axes = torch.linalg.eigh(covariance)  # ascending
    short, long = (2 * deviations * math.sqrt(max(value, 0.0)) for value in lengths.tolist())
    x, y = axes[:, 1].tolist()
    return long, short, math.degrees(math.atan2(y, x))


def _above_uniform(
    maps: Float[Tensor, "*which f s"], places: Float[Tensor, "s 2"], patch_size: tuple[float, float]
) -> Float[Tensor, "*which f s"]:
    """What is above a uniform map within `REACH` patches of the largest weight."""
    peak = places[maps.argmax(dim=-1)]
    apart = (places - peak[..., None, :]).abs() / places.new_tensor(patch_size)
    near = (apart < REACH + 0.5).all(dim=-1)
    return (maps - 1 / maps.shape[-1]).clamp(min=0) * near
