"""How labels teach a model, and how validation judges it: one class of all, or each class by itself. Chosen once, by
the model's `scoring`.

Everything is a function of logits and labels by task, as the model and the collated batch give them. Knows nothing of
recipes, Lightning or processes.
"""

from collections.abc import Mapping, Sequence
from typing import Protocol, runtime_checkable

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
from motionformer.training.losses import binary_losses, binary_targets, clip_losses, soft_targets

Tasks = dict[str, Tensor]
Metrics = Mapping[str, Metric]
ONE = "label"
"""The name of the only task of a model with one head."""


@runtime_checkable
class Objective(Protocol):
    """What is learned from labels."""

    @property
    def best(self) -> str:
        """The metric that says which validation was the best."""

    def targets(self, label: Tensor, num_classes: int, smoothing: float) -> Tensor:
        """What the model is to say, `[b k]`; mixed clips mix theirs."""

    def losses(self, logits: Tensor, targets: Tensor) -> Tensor:
        """One number a clip."""

    def metrics(self) -> dict[str, Metric]:
        """What validation measures, empty."""

    def measure(self, metrics: Metrics, logits: Tasks, label: Tasks) -> None:
        """Add clips."""

    def count_failed(self, metrics: Metrics, failures: Sequence[Failure]) -> None:
        """Add clips that could not be read, as wrong as can be; they have no loss."""


class OneOf:
    """One class a video and task: cross entropy; top-1 and top-5, of several tasks each, and whether all are right."""

    def __init__(self, num_classes: int | dict[str, int]) -> None:
        self.names = metric_names(num_classes)
        self.best = "action" if "action" in self.names else "top1"

    def targets(self, label: Int[Tensor, " b"], num_classes: int, smoothing: float) -> Float[Tensor, "b k"]:
        return soft_targets(label, num_classes, smoothing)

    def losses(self, logits: Float[Tensor, "b k"], targets: Float[Tensor, "b k"]) -> Float[Tensor, " b"]:
        return clip_losses(logits, targets)

    def metrics(self) -> dict[str, Metric]:
        return {name: MeanMetric() for name in self.names}

    def measure(self, metrics: Metrics, logits: Tasks, label: Tasks) -> None:
        for name, values in clip_scores(logits, label).items():
            metrics[name].update(values)

    def count_failed(self, metrics: Metrics, failures: Sequence[Failure]) -> None:
        for name, metric in metrics.items():
            if name != "loss":
                metric.update(torch.zeros(len(failures), device=metric.device))


class AnyOf:
    """Any number of classes a video: binary cross entropy of each class; mean average precision."""

    best = "map"

    def __init__(self, num_classes: int) -> None:
        self.num_classes = num_classes

    def targets(self, label: Int[Tensor, "b m"], num_classes: int, smoothing: float) -> Float[Tensor, "b k"]:
        return binary_targets(multi_hot(label, num_classes), smoothing)

    def losses(self, logits: Float[Tensor, "b k"], targets: Float[Tensor, "b k"]) -> Float[Tensor, " b"]:
        return binary_losses(logits, targets)

    def metrics(self) -> dict[str, Metric]:
        return {"loss": MeanMetric(), "map": MeanAveragePrecision(self.num_classes)}

    def measure(self, metrics: Metrics, logits: Tasks, label: Tasks) -> None:
        truth = multi_hot(label[ONE], self.num_classes)
        metrics["loss"].update(binary_losses(logits[ONE], truth.float()))
        metrics["map"].update(logits[ONE].float().sigmoid(), truth)

    def count_failed(self, metrics: Metrics, failures: Sequence[Failure]) -> None:
        """Score 0 for every class: last in every ranking, as in evaluation."""
        device = metrics["map"].device
        for failure in failures:
            truth = torch.zeros(1, self.num_classes, dtype=torch.bool, device=device)
            truth[0, list(_several(failure.label))] = True
            metrics["map"].update(torch.zeros(1, self.num_classes, device=device), truth)


class MeanAveragePrecision(Metric):
    """`evaluation.metrics.mean_average_precision` of all clips of all processes."""

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
        """No clips, but the shape and the type of them: a process without any has something to send to the others."""
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


def find_objective(config: ModelConfig) -> Objective:
    """The one for what the model's logits mean."""
    if config.scoring == "softmax":
        return OneOf(config.num_classes)
    if isinstance(config.num_classes, Mapping):
        raise ValueError("a model with several heads chooses one class of each: scoring is softmax.")
    return AnyOf(config.num_classes)


def scoring_for(labels: Sequence[Label]) -> ScoringKind:
    """How a model that learns from such labels is scored."""
    return "sigmoid" if any(isinstance(label, tuple) for label in labels) else "softmax"


def by_task(value: Tensor | Mapping[str, Tensor]) -> Tasks:
    """Logits or labels of one head or several, by the name of the task."""
    return dict(value) if isinstance(value, Mapping) else {ONE: value}


def multi_hot(label: Int[Tensor, "b m"], num_classes: int) -> Bool[Tensor, "b k"]:
    """True for the classes of each clip; `label` lists them, filled up with -1."""
    classes = torch.arange(num_classes, device=label.device)
    return (label[:, :, None] == classes).any(dim=1)


def metric_names(tasks: int | Mapping[str, int]) -> list[str]:
    """What validation measures: top-1 and top-5; for several heads of each, and whether all are right."""
    if not isinstance(tasks, Mapping):
        return ["loss", "top1", *(["top5"] if tasks > 5 else [])]
    return ["loss", *(f"{task}_top1" for task in tasks), "action"]


def clip_scores(logits: Tasks, label: Tasks) -> dict[str, Tensor]:
    """For every clip its loss (without smoothing) and whether it is right."""
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


def _several(label: Label) -> tuple[int, ...]:
    assert isinstance(label, tuple), "a list of several classes a video has a tuple for each"
    return label
