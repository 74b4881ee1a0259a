"""Attention rollout: what reaches a token through all layers, residuals included (Abnar & Zuidema, 2020).

Every step of every layer is `(1 + A) / 2`, the mean of its heads beside the residual, and layers are multiplied. Right
for every scheme because a layer says what its steps are: trajectory attention is one (time × space, summed over
frames), divided attention two with a residual each.
"""

from collections.abc import Collection

import torch
from jaxtyping import Float
from torch import Tensor

from motionformer.models import Motionformer
from motionformer.trace.walk import walk


def rollout_rows(
    model: Motionformer, clip: Float[Tensor, "1 3 t H W"], token: int, upto: Collection[int]
) -> list[Float[Tensor, " n"]]:
    """How much of each input token is in `token` after layer i, for every i in `upto`, ascending."""
    reached: Tensor | None = None
    rows = []
    for number, layer in walk(model, clip, range(max(upto) + 1)):
        for weights in layer.steps:
            step = with_residual(weights.mean(dim=0))
            reached = step if reached is None else step @ reached
        if number in upto:
            assert reached is not None
            rows.append(reached[token].clone())
    return rows


def with_residual(weights: Float[Tensor, "n n"]) -> Float[Tensor, "n n"]:
    """Half of it attention, half of it the token itself; rows sum to one.

    Rows of approximate attention are brought to one first, without their negative weights.
    """
    positive = weights.clamp(min=0.0)
    positive = positive / positive.sum(dim=1, keepdim=True)
    return (positive + torch.eye(len(weights), dtype=weights.dtype, device=weights.device)) / 2
