"""Losses against soft targets, one number a clip: the caller decides what to average over."""

import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor


def soft_targets(label: Int[Tensor, " b"], num_classes: int, smoothing: float) -> Float[Tensor, "b k"]:
    """The label with probability 1 − smoothing, and `smoothing` spread over all classes."""
    return F.one_hot(label, num_classes).float() * (1 - smoothing) + smoothing / num_classes


def clip_losses(logits: Float[Tensor, "b k"], targets: Float[Tensor, "b k"]) -> Float[Tensor, " b"]:
    """Cross entropy of every clip, in single precision."""
    return F.cross_entropy(logits.float(), targets, reduction="none")


def binary_targets(truth: Bool[Tensor, "b k"], smoothing: float) -> Float[Tensor, "b k"]:
    """Each class is a question of two answers: `smoothing` is spread over yes and no."""
    return truth.float() * (1 - smoothing) + smoothing / 2


def binary_losses(logits: Float[Tensor, "b k"], targets: Float[Tensor, "b k"]) -> Float[Tensor, " b"]:
    """Binary cross entropy of every clip, the mean over its classes, in single precision."""
    return F.binary_cross_entropy_with_logits(logits.float(), targets, reduction="none").mean(dim=-1)
