"""Cross entropy against soft targets, one number a clip: the caller decides what to average over."""

import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor


def soft_targets(label: Int[Tensor, " b"], num_classes: int, smoothing: float) -> Float[Tensor, "b k"]:
    """The label with probability 1 − smoothing, and `smoothing` spread over all classes."""
    return F.one_hot(label, num_classes).float() * (1 - smoothing) + smoothing / num_classes


def clip_losses(logits: Float[Tensor, "b k"], targets: Float[Tensor, "b k"]) -> Float[Tensor, " b"]:
    """Cross entropy of every clip, in single precision."""
    return F.cross_entropy(logits.float(), targets, reduction="none")
