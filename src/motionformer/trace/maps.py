"""Weights over all tokens → one space-time map: a map for each frame, and how much each frame counts.

The same for every scheme and kernel: whatever a token takes from the patches is split into the share of each
frame (`mass`) and the distribution inside the frame (`space`). Approximations of the softmax can give slightly negative
weights; they count as zero here.
"""

from dataclasses import dataclass

import torch
from einops import rearrange
from jaxtyping import Float, Float64
from torch import Tensor

from motionformer.errors import TraceError


@dataclass(frozen=True)
class SpaceTimeMap:
    """Where one token looks."""

    space: Float64[Tensor, "f s"]
    """The map of each frame; it sums to one."""
    mass: Float64[Tensor, " f"]
    """The share of each frame; all together one."""
    prefix: float
    """What prefix tokens get of the whole, and patches do not."""

    @property
    def weights(self) -> Float64[Tensor, "f s"]:
        """The shares of all patches of the clip."""
        return self.mass[:, None] * self.space


def split_row(row: Float[Tensor, " n"], frames: int, num_prefix_tokens: int) -> SpaceTimeMap:
    """The map of a token that takes `row` from all tokens, prefix tokens first."""
    row = row.detach().to("cpu", torch.float64).clamp(min=0.0)  # float64: a frame's share may be far below float32's
    prefix, patches = row[:num_prefix_tokens], row[num_prefix_tokens:]
    weights = rearrange(patches, "(f s) -> f s", f=frames)
    by_frame, total = weights.sum(dim=1), patches.sum()
    if not total > 0:
        raise TraceError("nothing to show: the weights of all patches are zero.")
    uniform = torch.full_like(weights, 1 / weights.shape[1])  # of a frame that gets nothing, nothing is known
    space = torch.where(by_frame[:, None] > 0, weights / by_frame[:, None], uniform)
    return SpaceTimeMap(space, by_frame / total, float(prefix.sum() / row.sum()))
