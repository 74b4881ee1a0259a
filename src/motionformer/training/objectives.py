"""Losses and validation metrics: one class per video, or any number, chosen by the model's `scoring`; mixup and cutmix.

Functions of logits and labels by task, as the model and the collated batch have them. Does not import recipes or
Lightning.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torchmetrics import MeanMetric, Metric
from torchmetrics.utilities import dim_zero_cat

from motionformer.data import Failure
from motionformer.data.record import Label
from motionformer.inference.metrics import mean_average_precision
from motionformer.models.config import ModelConfig, ScoringKind

Tasks = dict[str, Tensor]
Metrics = Mapping[str, Metric]
_Box = tuple[int, int, int, int]  # top, bottom, left, right
ONE = "label"
"""The name of the only task of a model with one head."""


@dataclass(frozen=True)
class Mix:
    """Clip i is mixed with clip `partner[i]`, of weight `share`: everywhere (mixup), or whole inside `box` (cutmix)."""

    partner: Tensor
    share: float
    box: _Box | None = None

    @classmethod
    def draw(
        cls, rng: np.random.Generator, mixup: float, cutmix: float, batch: int, size: tuple[int, int]
    ) -> "Mix | None":
        """Mixup or cutmix for a batch, all frames alike: either with equal chance where both α are given."""
        if mixup == 0 and cutmix == 0:
            return None
        partner = torch.from_numpy(rng.permutation(batch))
        cuts = cutmix > 0 and (mixup == 0 or bool(rng.random() < 0.5))
        alpha = cutmix if cuts else mixup
        share = float(rng.beta(alpha, alpha))
        if not cuts:
            return cls(partner, share)
        top, bottom, left, right = box = _draw_box(rng, share, size)
        return cls(partner, (bottom - top) * (right - left) / (size[0] * size[1]), box)

    def mix_clips(self, clip: Float[Tensor, "b 3 t H W"]) -> Float[Tensor, "b 3 t H W"]:
        if self.box is None:
            return clip.lerp(clip[self.partner], self.share)
        top, bottom, left, right = self.box
        mixed = clip.clone()
        mixed[..., top:bottom, left:right] = clip[self.partner][..., top:bottom, left:right]
        return mixed

    def mix_targets(self, targets: Float[Tensor, "b k"]) -> Float[Tensor, "b k"]:
        return targets.lerp(targets[self.partner], self.share)


class _SingleLabel:
    """One class per video and task: cross entropy; top-1 and top-5, of several tasks each, and all tasks correct."""

    def __init__(self, num_classes: int | dict[str, int]) -> None:
        """`best` is the metric that chooses the best epoch."""
        if isinstance(num_classes, Mapping):
            self.names, self.best = ["loss", *(f"{task}_top1" for task in num_classes), "action"], "action"
        else:
            self.names, self.best = ["loss", "top1", *(["top5"] if num_classes > 5 else [])], "top1"

    def targets(self, label: Int[Tensor, " b"], num_classes: int, smoothing: float) -> Float[Tensor, "b k"]:
        """The label with probability 1 − smoothing, and `smoothing` spread over all classes."""
        return F.one_hot(label, num_classes).float() * (1 - smoothing) + smoothing / num_classes

    def losses(self, logits: Float[Tensor, "b k"], targets: Float[Tensor, "b k"]) -> Float[Tensor, " b"]:
        """Cross entropy per clip, in single precision."""
        return F.cross_entropy(logits.float(), targets, reduction="none")

    def metrics(self) -> dict[str, Metric]:
        """The metrics of a validation, empty."""
        return {name: MeanMetric() for name in self.names}

    def measure(self, metrics: Metrics, logits: Tasks, label: Tasks) -> None:
        """Add clips."""
        for name, values in self.scores(logits, label).items():
            metrics[name].update(values)

    def scores(self, logits: Tasks, label: Tasks) -> dict[str, Tensor]:
        """Of every clip its loss (without smoothing) and whether it is correct."""
        losses = [F.cross_entropy(logits[task].float(), label[task], reduction="none") for task in label]
        right = {task: logits[task].argmax(dim=-1) == label[task] for task in label}
        scores = {"loss": torch.stack(losses).mean(dim=0)}
        if list(label) != [ONE]:
            scores |= {f"{task}_top1": correct.float() for task, correct in right.items()}
            return {**scores, "action": torch.stack(list(right.values())).all(dim=0).float()}
        scores["top1"] = right[ONE].float()
        if logits[ONE].shape[-1] > 5:
            scores["top5"] = (logits[ONE].topk(5).indices == label[ONE][:, None]).any(dim=-1).float()
        return scores

    def count_failed(self, metrics: Metrics, failures: Sequence[Failure]) -> None:
        """Add unreadable clips as wrong predictions; they have no loss."""
        for name, metric in metrics.items():
            if name != "loss":
                metric.update(torch.zeros(len(failures), device=metric.device))


class _MultiLabel:
    """Any number of classes per video: binary cross entropy of each class; mean average precision."""

    best = "map"

    def __init__(self, num_classes: int) -> None:
        self.num_classes = num_classes

    def targets(self, label: Int[Tensor, "b m"], num_classes: int, smoothing: float) -> Float[Tensor, "b k"]:
        """`smoothing` is spread over yes and no of each class."""
        return self.truth(label).float() * (1 - smoothing) + smoothing / 2

    def losses(self, logits: Float[Tensor, "b k"], targets: Float[Tensor, "b k"]) -> Float[Tensor, " b"]:
        """Binary cross entropy per clip, the mean over its classes, in single precision."""
        return F.binary_cross_entropy_with_logits(logits.float(), targets, reduction="none").mean(dim=-1)

    def truth(self, label: Int[Tensor, "b m"]) -> Bool[Tensor, "b k"]:
        """True for the classes of each clip; `label` lists them, padded with -1."""
        classes = torch.arange(self.num_classes, device=label.device)
        return (label[:, :, None] == classes).any(dim=1)

    def metrics(self) -> dict[str, Metric]:
        return {"loss": MeanMetric(), "map": _MeanAveragePrecision(self.num_classes)}

    def measure(self, metrics: Metrics, logits: Tasks, label: Tasks) -> None:
        truth = self.truth(label[ONE])
        metrics["loss"].update(self.losses(logits[ONE], truth.float()))
        metrics["map"].update(logits[ONE].float().sigmoid(), truth)

    def count_failed(self, metrics: Metrics, failures: Sequence[Failure]) -> None:
        """Score 0 for every class: last in every ranking, as in evaluation."""
        device = metrics["map"].device
        for failure in failures:
            truth = torch.zeros(1, self.num_classes, dtype=torch.bool, device=device)
            truth[0, list(cast(tuple[int, ...], failure.label))] = True
            metrics["map"].update(torch.zeros(1, self.num_classes, device=device), truth)


class _MeanAveragePrecision(Metric):
    """`inference.metrics.mean_average_precision` of all clips of all processes."""

    higher_is_better = True
    full_state_update = False
    scores: list[Tensor]
    truth: list[Tensor]

    def __init__(self, num_classes: int) -> None:
        super().__init__()
        self.num_classes = num_classes
        self.add_state("scores", default=[], dist_reduce_fx="cat")
        self.add_state("truth", default=[], dist_reduce_fx="cat")
        self.reset()

    def reset(self) -> None:
        """Empty tensors of the right shape and type: a process without clips has something to gather."""
        super().reset()
        self.scores.append(torch.zeros(0, self.num_classes, device=self.device))
        self.truth.append(torch.zeros(0, self.num_classes, dtype=torch.bool, device=self.device))

    def update(self, scores: Float[Tensor, "b k"], truth: Bool[Tensor, "b k"]) -> None:
        self.scores.append(scores)
        self.truth.append(truth)

    def compute(self) -> Tensor:
        scores, truth = dim_zero_cat(self.scores), dim_zero_cat(self.truth)
        mean, _ = mean_average_precision(scores.cpu().numpy(), truth.cpu().numpy())
        return torch.tensor(mean, dtype=torch.float64)


def find_objective(config: ModelConfig) -> _SingleLabel | _MultiLabel:
    """The objective for the model's `scoring`."""
    if config.scoring == "softmax":
        return _SingleLabel(config.num_classes)
    if isinstance(config.num_classes, Mapping):
        raise ValueError("a model with several heads needs scoring softmax.")
    return _MultiLabel(config.num_classes)


def scoring_for(labels: Sequence[Label]) -> ScoringKind:
    """The scoring of a model trained on such labels."""
    return "sigmoid" if any(isinstance(label, tuple) for label in labels) else "softmax"


def by_task(value: Tensor | Mapping[str, Tensor]) -> Tasks:
    """Logits or labels of one head or several, by name of the task."""
    return dict(value) if isinstance(value, Mapping) else {ONE: value}


def _draw_box(rng: np.random.Generator, share: float, size: tuple[int, int]) -> _Box:
    """A box of about `share` of the frame around a random point, clipped to the frame."""
    edges: list[int] = []
    for length in size:
        middle, half = rng.integers(length), round(length * math.sqrt(share) / 2)
        edges += [max(0, int(middle) - half), min(length, int(middle) + half)]
    return edges[0], edges[1], edges[2], edges[3]
