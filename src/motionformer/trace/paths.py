"""Maps → paths: where attention is on average in each frame, how far it spreads, and where it is strongest. Pure
functions of weights."""

import math

import torch
from jaxtyping import Float
from torch import Tensor

REACH = 2
"""Patches around the largest weight that belong to the peak (docs/decisions.md, "where it looks most")."""
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
    of two peaks has its mean between them. A map that is the same everywhere has no peak, and keeps its mean.
    """
    peak = places[maps.argmax(dim=-1)]
    apart = (places - peak[..., None, :]).abs() / places.new_tensor(patch_size)
    near = (apart < REACH + 0.5).all(dim=-1)
    above = (maps - 1 / maps.shape[-1]).clamp(min=0) * near
    total = above.sum(dim=-1, keepdim=True)
    return torch.where(total > 0, above / total.clamp(min=TINY), maps) @ places


def ellipse(covariance: Float[Tensor, "2 2"], deviations: float = 1.0) -> tuple[float, float, float]:
    """Full lengths of the long and the short axis, and the angle of the long one in degrees from x towards y."""
    lengths, axes = torch.linalg.eigh(covariance)  # ascending
    short, long = (2 * deviations * math.sqrt(max(value, 0.0)) for value in lengths.tolist())
    x, y = axes[:, 1].tolist()
    return long, short, math.degrees(math.atan2(y, x))
