"""Grad-CAM on space-time tokens (Selvaraju et al., 2017): which tokens speak for a class.

At layer i it looks at the tokens that *enter* block i: the classifier reads the class token only, so the patch tokens
that leave the last block have no gradient at all.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from motionformer.errors import TraceError
from motionformer.models import ModelConfig, Motionformer
from motionformer.trace.choice import Which


@dataclass(frozen=True)
class Label:
    """A class of one of the model's classifiers; `task` is None where there is only one."""

    task: str | None
    index: int


def grad_cam(
    model: Motionformer, clip: Float[Tensor, "1 3 t H W"], layer: int, label: Label
) -> Float[Tensor, " patches"]:
    """ReLU of the tokens entering `layer`, weighted by the mean gradient of the label's logit for each channel."""
    grid, p = model.tokens.grid(clip), model.config.num_prefix_tokens
    with torch.no_grad():
        x = model.embed(clip)
        for block in model.blocks[:layer]:
            x = block(x, grid[0])
    with torch.enable_grad():
        tokens = x.detach().requires_grad_()
        y = tokens
        for block in model.blocks[layer:]:
            y = block(y, grid[0])
        y = model.norm(y)
        logit = _logits(model.head(model.readout(y, grid)), label.task)[0, label.index]
        (gradient,) = torch.autograd.grad(logit, tokens)
    channels = gradient[0, p:].mean(dim=0)
    cam: Tensor = (tokens.detach()[0, p:] @ channels).relu()
    return cam


def find_label(model: Motionformer, clip: Float[Tensor, "1 3 t H W"], wanted: Which | None) -> Label:
    """The class that was asked for by number or name (`verb:3` with several classifiers), or the predicted one."""
    counts = model.config.num_classes
    if counts == 0:
        raise TraceError("the model has no classes, so there is nothing to explain: load it with a classifier.")
    if wanted is None:
        with torch.no_grad():
            logits = model(clip)
        task = next(iter(logits)) if isinstance(logits, dict) else None
        return Label(task, int(_logits(logits, task)[0].argmax()))
    if isinstance(counts, dict):
        task, _, rest = str(wanted).partition(":")
        if task not in counts or not rest:
            raise TraceError(
                f"label {wanted!r}: the model has classes of {', '.join(counts)}; write {task_hint(counts)}."
            )
        return Label(task, _index(rest, counts[task], None))
    return Label(None, _index(wanted, counts, model.config.labels))


def label_name(config: ModelConfig, label: Label) -> str:
    """The name of the class, or its number where the model has no names."""
    name = str(label.index) if config.labels is None else config.labels[label.index]
    return name if label.task is None else f"{label.task}:{label.index}"


def task_hint(counts: dict[str, int]) -> str:
    return " or ".join(f"{task}:0 … {task}:{count - 1}" for task, count in counts.items())


def _index(wanted: Which, count: int, names: tuple[str, ...] | None) -> int:
    if names is not None and wanted in names:
        return names.index(str(wanted))
    try:
        index = int(wanted)
    except ValueError:
        known = "it has no names of classes" if names is None else f"it has {', '.join(names[:20])}"
        raise TraceError(f"the model has no class {wanted!r}: {known}; give a number from 0 to {count - 1}.") from None
    if not 0 <= index < count:
        raise TraceError(f"there is no class {index}: the model has {count}, counted from 0 to {count - 1}.")
    return index


def _logits(out: Tensor | dict[str, Tensor], task: str | None) -> Tensor:
    return out[task] if isinstance(out, dict) and task is not None else out  # type: ignore[return-value]
