"""Many heads at once on frozen features.

A linear head is multinomial logistic regression on standardised features, with a penalty `decay · |W|² / 2` beside
the summed loss. The heads of a sweep are solved together, on the principal axes of the clips that they are trained on.
There is no learning rate: on these axes half of the squared singular values bounds the curvature of softmax's loss
(Böhning, 1992), so that the step along each is divided by its own bound. Steps are accelerated, and restarted head by
head where that overshoots (O'Donoghue and Candès, 2015).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Float16, Int64
from torch import Tensor, nn

from motionformer.models.config import ModelConfig, ReadoutKind
from motionformer.models.head import POOLED, build_head, build_readout
from motionformer.probing.cache import FeatureCache

_STEPS = 300
_BATCH = 32
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
    depth: int = 0
    positions: bool = False
    epochs: int = 0

    @property
    def is_linear(self) -> bool:
        """Whether the readout has no parameters: solved from the pooled features in seconds."""
        return self.readout in POOLED

    def config(self, backbone: ModelConfig, class_names: tuple[str, ...]) -> ModelConfig:
        """Of the backbone with such a head."""
        return replace(
            backbone,
            readout=self.readout,
            readout_depth=self.depth,
            readout_positions=self.positions,
            num_classes=len(class_names),
            labels=class_names,
        )

    def solver(
        self,
        features: FeatureCache,
        clips: Sequence[int],
        labels: Int64[Tensor, " n"],
        class_names: tuple[str, ...],
        seed: int,
    ) -> "LinearHeads | LearntHeads":
        """What trains such heads on these clips."""
        if self.is_linear:
            return LinearHeads(features.pooled(self.readout, clips), labels, len(class_names))
        config = self.config(features.backbone.config, class_names)
        return LearntHeads(features.tokens(clips).half(), labels, config, self.epochs, seed)


_LINEAR = tuple(Setting(decay) for decay in (0.003, 0.01, 0.03, 0.1, 1.0, 10.0))
_LEARNT = tuple(Setting(decay, lr) for lr in (3e-4, 1e-3) for decay in (0.05, 0.5))
KINDS: dict[str, HeadKind] = {
    kind.name: kind
    for kind in (
        HeadKind("linear", "a linear layer on the class token, of an image model on their mean", "class", _LINEAR),
        HeadKind("side-by-side", "a linear layer on the frames' class tokens side by side", "concat", _LINEAR),
        HeadKind("motion", "a linear layer on the class token and the moments of motion", "motion", _LINEAR),
        HeadKind("paths", "likewise, and on the displacements along attention paths", "paths", _LINEAR),
        HeadKind("attentive-1", "a learnt query reads the patches once", "cross", _LEARNT, 1, epochs=15),
        HeadKind("attentive-2", "a learnt query reads the patches twice", "cross", _LEARNT, 2, epochs=15),
        HeadKind("attentive-4", "a learnt query reads the patches four times", "cross", _LEARNT, 4, epochs=15),
        HeadKind(
            "attentive-positions", "likewise, twice, with positions of frames", "cross", _LEARNT, 2, True, epochs=15
        ),
        HeadKind("trajectory", "trajectory attention, then motion", "trajectory", _LEARNT[2:3], 1, epochs=15),
        HeadKind("trajectory-2", "two such blocks", "trajectory", _LEARNT[2:3], 2, epochs=15),
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
        self.features = features
        self.targets = F.one_hot(labels, num_classes).to(features.dtype)

    @property
    def parameters(self) -> int:
        """Of one head."""
        return self.targets.shape[1] * (self.features.shape[1] + 1)

    def logits(self, included: Bool[Tensor, "m n"], settings: Sequence[Setting]) -> Float[Tensor, "m s n k"]:
        """Of all clips, by heads that were trained on some of them: m subsets, s settings."""
        layers = [self._layers(subset, settings) for subset in included]
        return torch.stack([_apply(self.features, weight, bias) for weight, bias in layers])

    def state(self, setting: Setting) -> dict[str, Tensor]:
        """Weights of the head that is trained on all clips, by their names in a model."""
        everything = torch.ones(len(self.features), dtype=torch.bool)
        weight, bias = self._layers(everything, [setting])
        return {"head.classifier.weight": weight[0], "head.classifier.bias": bias[0]}

    def _layers(
        self, subset: Bool[Tensor, " n"], settings: Sequence[Setting]
    ) -> tuple[Float[Tensor, "s k d"], Float[Tensor, "s k"]]:
        """Weights and biases for the features as they are. Mean and spread are those of the subset."""
        features = self.features[subset]
        mean, variance = features.mean(dim=0), features.var(dim=0, correction=0)
        # of few clips the spread of a channel is not known well: that of all channels counts as ten clips more
        std = ((len(features) * variance + 10 * variance.mean()) / (len(features) + 10)).sqrt().clamp(min=1e-6)
        rows, axes = _principal_axes((features - mean) / std)
        heads = _solve(rows, self.targets[subset], torch.tensor([setting.decay for setting in settings]))
        weight = torch.einsum("dr,rsk->skd", axes, heads[:-1]) / std
        return weight, heads[-1] - weight @ mean


class LearntHeads:
    """Trains readouts with parameters and their classifiers: many at once, in the same passes over the tokens.

    AdamW with a cosine schedule; the batches of a pass are the same for every head, which leaves out the clips that
    it is not trained on.
    """

    def __init__(
        self,
        tokens: Float16[Tensor, "n tokens c"],
        labels: Int64[Tensor, " n"],
        config: ModelConfig,
        epochs: int,
        seed: int,
    ) -> None:
        self.tokens, self.labels, self.config, self.epochs, self.seed = tokens, labels, config, epochs, seed

    @property
    def parameters(self) -> int:
        return sum(parameter.numel() for parameter in self._build().parameters())

    def logits(self, included: Bool[Tensor, "m n"], settings: Sequence[Setting]) -> Float[Tensor, "m s n k"]:
        heads = self._train([(subset, setting) for subset in included for setting in settings])
        with torch.no_grad():
            parts = [tokens.float() for tokens in self.tokens.split(_BATCH)]
            found = torch.stack([torch.cat([head.eval()(part) for part in parts]) for head in heads])
        return found.view(len(included), len(settings), *found.shape[1:])

    def state(self, setting: Setting) -> dict[str, Tensor]:
        everything = torch.ones(len(self.labels), dtype=torch.bool)
        return self._train([(everything, setting)])[0].state_dict()

    def _build(self) -> "_TokenHead":
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self.seed)
            return _TokenHead(self.config)

    def _train(self, wanted: list[tuple[Bool[Tensor, " n"], Setting]]) -> list["_TokenHead"]:
        heads = [self._build().train() for _ in wanted]
        solvers = [
            torch.optim.AdamW(head.parameters(), lr=setting.lr or 1e-3, weight_decay=setting.decay)
            for head, (_, setting) in zip(heads, wanted, strict=True)
        ]
        generator = torch.Generator().manual_seed(self.seed)
        steps = self.epochs * math.ceil(len(self.labels) / _BATCH)
        step = 0
        for _ in range(self.epochs):
            for batch in torch.randperm(len(self.labels), generator=generator).split(_BATCH):
                rate = min(1.0, 10 * (step + 1) / steps) * (1 + math.cos(math.pi * step / steps)) / 2
                tokens, labels = self.tokens[batch].float(), self.labels[batch]
                for head, solver, (subset, setting) in zip(heads, solvers, wanted, strict=True):
                    chosen = subset[batch]
                    if chosen.any():
                        solver.param_groups[0]["lr"] = rate * (setting.lr or 1e-3)
                        loss = F.cross_entropy(head(tokens[chosen]), labels[chosen], label_smoothing=0.1)
                        solver.zero_grad()
                        loss.backward()
                        solver.step()
                step += 1
        return heads


class _TokenHead(nn.Module):
    """Readout and classifier under their names in a model."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.readout, self.head, self.grid = build_readout(config), build_head(config), config.grid

    def forward(self, tokens: Float[Tensor, "b n c"]) -> Float[Tensor, "b k"]:
        return self.head(self.readout(tokens, self.grid))  # type: ignore[no-any-return]


def _apply(
    features: Float[Tensor, "n d"], weight: Float[Tensor, "s k d"], bias: Float[Tensor, "s k"]
) -> Float[Tensor, "s n k"]:
    found: Tensor = (features @ weight.flatten(0, 1).T + bias.flatten()).unflatten(1, bias.shape)
    return found.transpose(0, 1)


def _solve(
    rows: Float[Tensor, "n r"], targets: Float[Tensor, "n k"], decays: Float[Tensor, " s"]
) -> Float[Tensor, "_ s k"]:
    """One head for each decay, on the principal axes; the last row is the bias, which does not decay."""
    rows = torch.cat((rows, torch.ones(len(rows), 1)), dim=1)
    (n, r), (s, k) = rows.shape, (len(decays), targets.shape[1])
    decay = decays.repeat(r, 1)
    decay[-1] = 0.0
    step, decay = (1 / (rows.square().sum(dim=0)[:, None] / 2 + decay))[..., None], decay[..., None]
    heads = ahead = torch.zeros(r, s, k)
    pace = torch.ones(s)
    for _ in range(_STEPS):
        wrong = (rows @ ahead.flatten(1)).view(n, s, k).softmax(dim=-1) - targets[:, None]
        new = ahead - step * ((rows.T @ wrong.flatten(1)).view(r, s, k) + decay * ahead)
        overshoots = ((ahead - new) * (new - heads)).sum(dim=(0, 2)) > 0
        pace = torch.where(overshoots, torch.ones_like(pace), pace)
        following = (1 + (1 + 4 * pace.square()).sqrt()) / 2
        ahead = new + ((pace - 1) / following)[:, None] * (new - heads)
        heads, pace = new, following
    return heads


def _principal_axes(x: Float[Tensor, "n d"]) -> tuple[Float[Tensor, "n r"], Float[Tensor, "d r"]]:
    """The features on their principal axes, and these: all, or the strongest where finding all would take minutes."""
    n, d = x.shape
    if min(n, d) > 2 * _MAX_AXES:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            axes = torch.svd_lowrank(x, q=_MAX_AXES)[2]
        return x @ axes, axes
    values, vectors = torch.linalg.eigh((x @ x.T if n < d else x.T @ x).double())
    kept = values > 1e-7 * values.max().clamp(min=1e-12)
    values, vectors = values[kept], vectors[:, kept].to(x.dtype)
    if n >= d:
        return x @ vectors, vectors
    scale = values.sqrt().to(x.dtype)
    return vectors * scale, x.T @ (vectors / scale)
