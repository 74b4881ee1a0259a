"""Logits become scores, and the scores of a video's views become one prediction. Softmax happens here and nowhere else.

The paper averages softmax scores over views (method.md §6), not logits. Everything that evaluates takes it from here.
"""

from collections.abc import Callable
from typing import Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float, Float32
from torch import Tensor, nn

from motionformer.models.config import ModelConfig, ScoringKind


@runtime_checkable
class Scoring(Protocol):
    """Logits of a view to scores between 0 and 1, in float32 whatever the model computed in."""

    @property
    def name(self) -> str: ...

    def __call__(self, logits: Tensor) -> Tensor: ...


class Softmax:
    """One class a video."""

    name = "softmax"

    def __call__(self, logits: Float[Tensor, "*b k"]) -> Float32[Tensor, "*b k"]:
        return logits.float().softmax(dim=-1)


class Sigmoid:
    """Any number of classes a video, each true or false by itself."""

    name = "sigmoid"

    def __call__(self, logits: Float[Tensor, "*b k"]) -> Float32[Tensor, "*b k"]:
        return logits.float().sigmoid()


SCORINGS: dict[ScoringKind, Callable[[], Scoring]] = {"softmax": Softmax, "sigmoid": Sigmoid}


def find_scoring(model: nn.Module) -> Scoring:
    """What the model was trained for; softmax for a model that does not say."""
    config = getattr(model, "config", None)
    return SCORINGS[config.scoring]() if isinstance(config, ModelConfig) else Softmax()


def average_views(scores: Float32[np.ndarray, "n v c k"]) -> Float32[np.ndarray, "n k"]:
    """One score a class and video: the mean over temporal views and crops. Summed in double, so that the order of
    the views does not show."""
    mean: Float32[np.ndarray, "n k"] = scores.mean(axis=(1, 2), dtype=np.float64).astype(np.float32)
    return mean
