"""Clips through the model, a batch at a time, to scores. Softmax and sigmoid are `evaluation.aggregate`'s."""

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import TypeVar

import numpy as np
import torch
from jaxtyping import Float, Float32
from torch import Tensor, nn

from motionformer.errors import EvaluationError
from motionformer.evaluation.aggregate import find_scoring
from motionformer.evaluation.classes import SINGLE
from motionformer.evaluation.computing import Precision, autocast

T = TypeVar("T")


class Scorer:
    """Holds what does not change from video to video."""

    def __init__(self, model: nn.Module, device: torch.device, batch: int, precision: Precision = "32") -> None:
        if batch < 1:
            raise EvaluationError(f"a batch holds at least one clip, not {batch}.")
        self.model, self.device, self.batch, self.precision = model, device, batch, precision
        self.scoring = find_scoring(model)

    @torch.inference_mode()
    def __call__(self, clips: Iterable[Float[Tensor, "3 t H W"]]) -> dict[str, Float32[np.ndarray, "n _"]]:
        """Scores of every clip, by task."""
        chunks: dict[str, list[Tensor]] = {}
        for some in batched(clips, self.batch):
            with autocast(self.device, self.precision):
                logits = self.model(torch.stack(some).to(self.device))
            for task, values in (logits if isinstance(logits, Mapping) else {SINGLE: logits}).items():
                chunks.setdefault(task, []).append(self.scoring(values).cpu())
        return {task: _finite(torch.cat(parts).numpy()) for task, parts in chunks.items()}


def batched(items: Iterable[T], size: int) -> Iterator[list[T]]:
    """Lists of `size`, the last one shorter."""
    iterator = iter(items)
    while some := list(islice(iterator, size)):
        yield some


def _finite(scores: Float32[np.ndarray, "n k"]) -> Float32[np.ndarray, "n k"]:
    if not np.isfinite(scores).all():
        raise EvaluationError(
            "the model's output is not a number. Its weights are broken, or it does not bear this precision: try 32."
        )
    return scores
