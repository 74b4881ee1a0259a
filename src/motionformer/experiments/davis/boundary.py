"""F, the boundary measure: how much of two outlines runs close to the other (DAVIS; Martin et al., 2004).

An outline pixel is right if the other outline comes within a tolerance of it, 0.8 % of the image's diagonal. F is the
harmonic mean of the share of right pixels in the prediction (precision) and in the truth (recall).
"""

import math

import torch
import torch.nn.functional as F
from jaxtyping import Bool
from torch import Tensor

from motionformer.tracking.masks import outline

TOLERANCE = 0.008


def boundary_f(predicted: Bool[Tensor, "H W"], truth: Bool[Tensor, "H W"], tolerance: float = TOLERANCE) -> float:
    """The measure; `tolerance` is a share of the diagonal, rounded up to whole pixels."""
    radius = math.ceil(tolerance * math.hypot(*truth.shape))
    found, wanted = outline(predicted), outline(truth)
    precision, recall = share_near(found, wanted, radius), share_near(wanted, found, radius)
    return 2 * precision * recall / (precision + recall) if precision + recall else 0.0


def share_near(outline: Bool[Tensor, "H W"], other: Bool[Tensor, "H W"], radius: int) -> float:
    """The share of `outline` with a pixel of `other` within `radius`; an outline without pixels is all right.

    The same as covering `other` with discs, for the outline's pixels only, which are few: a disc is a stack of
    stretches of rows, and running sums say whether a stretch holds a pixel.
    """
    y, x = outline.nonzero(as_tuple=True)
    if len(y) == 0:
        return 1.0
    sums = F.pad(other, (radius + 1, radius, radius, radius)).cumsum(dim=1, dtype=torch.int32)
    near = torch.zeros(len(y), dtype=torch.bool)
    for down in range(-radius, radius + 1):
        reach = math.isqrt(radius**2 - down**2)
        row, centre = y + radius + down, x + radius + 1
        near |= sums[row, centre + reach] > sums[row, centre - reach - 1]
    return int(near.sum()) / len(y)
