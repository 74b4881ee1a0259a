"""Many heads at once on frozen features.

A linear head is multinomial logistic regression on standardised features, with a penalty `decay · |W|² / 2` beside
the summed loss. All heads of a kind (every decay, every fold, every subset of clips) are solved together: a subset is a
weight of 0 or 1 for each clip, and one product of matrices takes a step for all of them. There is no learning rate: on
the features' principal axes half of their squared singular values bounds the curvature of softmax's loss (Böhning,
1992), axis by axis, so that each is divided by its own bound. Steps are accelerated, and restarted head by head where
that overshoots (O'Donoghue and Candès, 2015).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int64
from torch import Tensor

from motionformer.models.config import ReadoutKind
from motionformer.probing.cache import FeatureCache

_DECAYS = (0.3, 1.0, 3.0, 10.0, 30.0, 100.0)
_STEPS = 150
_MAX_AXES = 2048
"""Principal axes of the features that are kept, where clips and channels are more than twice as many."""


@dataclass(frozen=True)
class Setting:
    """One of the values that are swept."""

    decay: float
    lr: float | None = None


@dataclass(frozen=True)
class HeadKind:
    """One way of reading a clip's tokens, and the settings that are swept."""

    name: str
    what: str
    readout: ReadoutKind
    settings: tuple[Setting, ...]

    @property
    def is_linear(self) -> bool:
        """Whether the readout has no parameters: solved from the pooled features in seconds."""
        return True

    def solver(
        self,
        features: FeatureCache,
        clips: Sequence[int],
        labels: Int64[Tensor, " n"],
        num_classes: int,
        seed: int,
    ) -> "LinearHeads":
        """What trains such heads on these clips."""
        return LinearHeads(features.pooled(self.readout, clips), labels, num_classes)


_LINEAR = tuple(Setting(decay) for decay in _DECAYS)
KINDS: dict[str, HeadKind] = {
    kind.name: kind
    for kind in (
        HeadKind("linear", "a linear layer on the class token, of an image model on their mean", "class", _LINEAR),
        HeadKind("side-by-side", "a linear layer on the frames' class tokens side by side", "concat", _LINEAR),
        HeadKind("motion", "a linear layer on the class token and the moments of motion", "motion", _LINEAR),
        HeadKind("paths", "likewise, and on the displacements along attention paths", "paths", _LINEAR),
    )
}


class LinearHeads:
    """Solves linear heads on some features.

    Args:
        features: of all clips that heads may be trained on.
        labels: their classes.
        num_classes: of the heads.
    """

    def __init__(self, features: Float[Tensor, "n d"], labels: Int64[Tensor, " n"], num_classes: int) -> None:
        self.mean = features.mean(dim=0)
        spread = features.std(dim=0, correction=0)
        self.std = torch.where(spread > 1e-6, spread, torch.ones_like(spread))
        centred = (features - self.mean) / self.std
        self.axes = _principal_axes(centred)
        ones = torch.ones(len(features), 1)
        self.rows = torch.cat((centred @ self.axes, ones), dim=1)
        self.bound = self.rows.square().sum(dim=0) / 2
        self.targets = F.one_hot(labels, num_classes).to(features.dtype)

    @property
    def parameters(self) -> int:
        """Of one head."""
        return self.targets.shape[1] * (len(self.mean) + 1)

    def logits(self, included: Float[Tensor, "m n"], settings: Sequence[Setting]) -> Float[Tensor, "m n k"]:
        """Of all clips, by heads that were trained on some of them, each with its setting."""
        heads = self._solve(included, settings)
        return (self.rows @ heads.flatten(1)).view(len(self.rows), *heads.shape[1:]).permute(1, 0, 2)

    def layer(self, setting: Setting) -> tuple[Float[Tensor, "k d"], Float[Tensor, " k"]]:
        """Weight and bias, for features as they are, of the head that was trained on all clips."""
        head = self._solve(torch.ones(1, len(self.rows)), [setting])[:, 0]
        weight = (self.axes @ head[:-1]).T / self.std
        return weight, head[-1] - weight @ self.mean

    def _solve(self, included: Float[Tensor, "m n"], settings: Sequence[Setting]) -> Float[Tensor, "r m k"]:
        """Heads on the principal axes; the last row is the bias."""
        rows, (n, r) = self.rows, self.rows.shape
        m, k = len(included), self.targets.shape[1]
        decay = torch.tensor([setting.decay for setting in settings]).expand(r, m).clone()
        decay[-1] = 0.0
        step, decay = (1 / (self.bound[:, None] + decay))[..., None], decay[..., None]
        counts, targets = included.T[..., None], self.targets[:, None]
        heads = ahead = torch.zeros(r, m, k)
        pace = torch.ones(m)
        for _ in range(_STEPS):
            wrong = ((rows @ ahead.flatten(1)).view(n, m, k).softmax(dim=-1) - targets) * counts
            new = ahead - step * ((rows.T @ wrong.flatten(1)).view(r, m, k) + decay * ahead)
            overshoots = ((ahead - new) * (new - heads)).sum(dim=(0, 2)) > 0
            pace = torch.where(overshoots, torch.ones_like(pace), pace)
            following = (1 + (1 + 4 * pace.square()).sqrt()) / 2
            ahead = new + ((pace - 1) / following)[:, None] * (new - heads)
            heads, pace = new, following
        return heads


def _principal_axes(x: Float[Tensor, "n d"]) -> Float[Tensor, "d r"]:
    """All that the features have; the strongest, found at random, where a decomposition would take minutes."""
    n, d = x.shape
    if min(n, d) > 2 * _MAX_AXES:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            found: Tensor = torch.svd_lowrank(x, q=_MAX_AXES)[2]
            return found
    square = x @ x.T if n < d else x.T @ x
    values, vectors = torch.linalg.eigh(square.double())
    kept = values > 1e-7 * values.max().clamp(min=1e-12)
    vectors = vectors[:, kept]
    axes = x.T.double() @ vectors / values[kept].sqrt() if n < d else vectors
    kept_axes: Tensor = axes.to(x.dtype)
    return kept_axes
