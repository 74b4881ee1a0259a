"""Maps → paths: where attention is on average in each frame, and how far it spreads. Pure functions of weights."""

import math

import torch
from jaxtyping import Float
from torch import Tensor


def expected_path(maps: Float[Tensor, "*which f s"], places: Float[Tensor, "s 2"]) -> Float[Tensor, "*which f 2"]:
    """The mean place of each frame's map (soft-argmax); every map sums to one."""
    return maps @ places


def path_covariance(maps: Float[Tensor, "*which f s"], places: Float[Tensor, "s 2"]) -> Float[Tensor, "*which f 2 2"]:
    """The covariance of the place under each frame's map: its square root is how far off the mean may be."""
    offset = places - expected_path(maps, places)[..., None, :]
    return torch.einsum("...s,...si,...sj->...ij", maps, offset, offset)


def ellipse(covariance: Float[Tensor, "2 2"], deviations: float = 1.0) -> tuple[float, float, float]:
    """Full lengths of the long and the short axis, and the angle of the long one in degrees from x towards y."""
    lengths, axes = torch.linalg.eigh(covariance)  # ascending
    short, long = (2 * deviations * math.sqrt(max(value, 0.0)) for value in lengths.tolist())
    x, y = axes[:, 1].tolist()
    return long, short, math.degrees(math.atan2(y, x))
