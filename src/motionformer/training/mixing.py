"""Mixup and cutmix on clips: one draw a batch, all frames alike, keyed by whoever calls (seed, step …)."""

import math
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

Box = tuple[int, int, int, int]  # top, bottom, left, right


@dataclass(frozen=True)
class Mix:
    """Clip i is mixed with clip `partner[i]`, which gets `share` of it: everywhere, or all of it inside `box`."""

    partner: Tensor
    share: float
    box: Box | None = None

    def mix_clips(self, clip: Float[Tensor, "b 3 t H W"]) -> Float[Tensor, "b 3 t H W"]:
        if self.box is None:
            return clip.lerp(clip[self.partner], self.share)
        top, bottom, left, right = self.box
        mixed = clip.clone()
        mixed[..., top:bottom, left:right] = clip[self.partner][..., top:bottom, left:right]
        return mixed

    def mix_targets(self, targets: Float[Tensor, "b k"]) -> Float[Tensor, "b k"]:
        return targets.lerp(targets[self.partner], self.share)


def draw_mix(rng: np.random.Generator, mixup: float, cutmix: float, batch: int, size: tuple[int, int]) -> Mix | None:
    """A draw of mixup, of cutmix, or of either with equal chance where both α are given; None where neither is."""
    if mixup == 0 and cutmix == 0:
        return None
    partner = torch.from_numpy(rng.permutation(batch))
    cuts = cutmix > 0 and (mixup == 0 or bool(rng.random() < 0.5))
    alpha = cutmix if cuts else mixup
    share = float(rng.beta(alpha, alpha))
    if not cuts:
        return Mix(partner, share)
    box = _draw_box(rng, share, size)
    return Mix(partner, (box[1] - box[0]) * (box[3] - box[2]) / (size[0] * size[1]), box)


def _draw_box(rng: np.random.Generator, share: float, size: tuple[int, int]) -> Box:
    """A box of about `share` of the picture around a point anywhere; what lies outside is cut off."""
    edges: list[int] = []
    for length in size:
        middle, half = rng.integers(length), round(length * math.sqrt(share) / 2)
        edges += [max(0, int(middle) - half), min(length, int(middle) + half)]
    return edges[0], edges[1], edges[2], edges[3]
