"""Clips through a model, a batch at a time, to scores: device, precision, memory, softmax and views are handled here.

The paper averages softmax scores over views (method.md §6), not logits.
"""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from itertools import islice
from typing import Literal, Protocol, TypeVar, get_args, runtime_checkable

import numpy as np
import torch
from jaxtyping import Float, Float32
from torch import Tensor, nn

from motionformer.errors import EvaluationError
from motionformer.logging import show_count
from motionformer.models.config import InputSpec, ModelConfig

Precision = Literal["32", "bf16", "16"]
SampleBy = Literal["time", "frames"]
"""What a clip's stride counts: frames at the model's rate, or the video's own frames, whatever its rate."""
SINGLE = "class"
"""The task of a model with one head."""
T = TypeVar("T")


@runtime_checkable
class Scoring(Protocol):
    """Logits of a view to scores between 0 and 1, in float32 whatever the model computed in."""

    @property
    def name(self) -> str: ...

    def __call__(self, logits: Tensor) -> Tensor: ...


class Softmax:
    """Scores of models with one class per video.

    Example:
        >>> Softmax()(torch.zeros(1, 4))
        tensor([[0.2500, 0.2500, 0.2500, 0.2500]])
    """

    name = "softmax"

    def __call__(self, logits: Float[Tensor, "*b k"]) -> Float32[Tensor, "*b k"]:
        return logits.float().softmax(dim=-1)


class Sigmoid:
    """Scores of models with any number of classes per video, each true or false by itself.

    Example:
        >>> Sigmoid()(torch.zeros(1, 2))
        tensor([[0.5000, 0.5000]])
    """

    name = "sigmoid"

    def __call__(self, logits: Float[Tensor, "*b k"]) -> Float32[Tensor, "*b k"]:
        return logits.float().sigmoid()


class Scorer:
    """A model on its device, and how its clips are batched and scored.

    `columns` picks and orders the outputs of each task; by default all, in the model's order.
    """

    def __init__(
        self,
        model: nn.Module,
        device: str | torch.device | None = None,
        *,
        batch_size: int = 8,
        precision: Precision = "32",
        scoring: Scoring | None = None,
        columns: Mapping[str, list[int]] | None = None,
    ) -> None:
        if batch_size < 1:
            raise EvaluationError(f"`batch_size` ({batch_size}) must be at least 1.")
        if precision not in get_args(Precision):
            raise EvaluationError(f"`precision` ({precision!r}) must be one of {', '.join(get_args(Precision))}.")
        self.device = next((parameter.device for parameter in model.parameters()), torch.device("cpu"))
        if device is not None:
            try:
                self.device = torch.empty(0, device=device).device
            except (RuntimeError, AssertionError) as error:
                reason = str(error).splitlines()[0]
                raise EvaluationError(f"`device` ({device}) cannot be used here ({reason}).") from error
        self.model = model.to(self.device)
        self.batch_size, self.precision, self.columns = batch_size, precision, columns
        self.scoring = scoring or Scorer.own_scoring(model)

    @torch.inference_mode()
    def __call__(self, clips: Iterable[Float[Tensor, "3 t H W"]]) -> dict[str, Float32[np.ndarray, "n _"]]:
        """Scores of every clip, by task."""
        chunks: dict[str, list[Tensor]] = {}
        for some in batched(clips, self.batch_size):
            with self.computing(len(some)):
                logits = self.model(torch.stack([clip.to(self.device, non_blocking=True) for clip in some]))
            for task, values in (logits if isinstance(logits, Mapping) else {SINGLE: logits}).items():
                scores = self.check_finite(self.scoring(values), f"output for {task!r}").cpu()
                chunks.setdefault(task, []).append(scores if self.columns is None else scores[:, self.columns[task]])
        return {task: torch.cat(parts).numpy() for task, parts in chunks.items()}

    @staticmethod
    def own_scoring(model: nn.Module) -> Scoring:
        """What the model was trained for; softmax for a model without a configuration."""
        config = getattr(model, "config", None)
        return Sigmoid() if isinstance(config, ModelConfig) and config.scoring == "sigmoid" else Softmax()

    @contextmanager
    def computing(self, num_clips: int) -> Iterator[None]:
        """A forward pass of `num_clips` clips; out of memory is an `EvaluationError` with the remedy."""
        types = {"bf16": torch.bfloat16, "16": torch.float16}
        try:
            with nullcontext() if self.precision == "32" else torch.autocast(self.device.type, types[self.precision]):
                yield
        except torch.OutOfMemoryError as error:
            raise EvaluationError(
                f"a batch of {show_count(num_clips, 'clip')} does not fit into the memory of {self.device};"
                " use a smaller batch."
            ) from error

    def check_finite(self, values: Tensor, what: str) -> Tensor:
        """The values, or an `EvaluationError` if one of them is NaN or infinite."""
        if not torch.isfinite(values).all():
            broken = "its weights are broken"
            remedy = broken if self.precision == "32" else f"overflow in {self.precision}; use --precision 32"
            raise EvaluationError(f"the model's {what} is not finite: {remedy}.")
        return values


def with_views(spec: InputSpec, views: int | None, crops: int | None, sample_by: SampleBy | None = None) -> InputSpec:
    """`spec` with other numbers of clips and crops, and its stride counted otherwise; None leaves them as they are."""
    is_segments = spec.sampling == "segments"
    if sample_by is not None:
        if sample_by not in get_args(SampleBy):
            raise EvaluationError(f"`sample_by` ({sample_by!r}) must be one of {', '.join(get_args(SampleBy))}.")
        if is_segments:
            raise EvaluationError(
                f"`sample_by` ({sample_by!r}) is what a stride counts, but this model's clip is made of segments of the"
                " whole video, which have none. Leave it out."
            )
        spec = replace(spec, fps=None if sample_by == "frames" else spec.fps or 30.0)
    crops = spec.crops if crops is None else crops
    if crops not in (1, 3):
        raise EvaluationError(f"`crops` ({crops}) must be 1 (the centre) or 3 (along the long side).")
    if is_segments and views not in (None, 1):
        raise EvaluationError(
            f"{views} views were asked for, but this model's clip is made of segments of the whole video: that is"
            " one view. Leave views out, or use 3 crops."
        )
    views = 1 if is_segments else spec.views if views is None else views
    if views < 1:
        raise EvaluationError(f"`views` ({views}) must be at least 1.")
    return replace(spec, views=views, crops=crops)


def average_views(scores: Float32[np.ndarray, "n v c k"]) -> Float32[np.ndarray, "n k"]:
    """The mean score per video and class over temporal views and crops, summed in double so that their order does not
    matter.

    Args:
        scores: `[n v c k]`: videos, temporal views, crops, classes.

    Returns:
        `[n k]`.

    Example:
        >>> average_views(np.array([[[[0.0, 1.0]], [[0.5, 0.5]]]], dtype=np.float32))
        array([[0.25, 0.75]], dtype=float32)
    """
    mean: Float32[np.ndarray, "n k"] = scores.mean(axis=(1, 2), dtype=np.float64).astype(np.float32)
    return mean


def batched(items: Iterable[T], size: int) -> Iterator[list[T]]:
    """Lists of `size`, the last one shorter."""
    iterator = iter(items)
    while some := list(islice(iterator, size)):
        yield some
