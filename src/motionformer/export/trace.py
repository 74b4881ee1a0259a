"""A model as a `torch.export` program: any batch, one clip size, nothing of this package left in it."""

import torch
from torch.export import Dim, ExportedProgram

from motionformer.models import ModelConfig, Motionformer

MAX_BATCH = 4096
"""A program states the range it was traced for; this one is beyond any memory."""


def trace_program(model: Motionformer) -> ExportedProgram:
    """The graph of `model` in evaluation, for clips of its `config.input` and any number of them."""
    model.eval()
    spec = model.config.input
    parameter = next(model.parameters())
    clip = torch.zeros(2, 3, spec.frames, spec.height, spec.width, dtype=parameter.dtype, device=parameter.device)
    with torch.no_grad():
        return torch.export.export(model, (clip,), dynamic_shapes={"clip": {0: Dim("batch", min=1, max=MAX_BATCH)}})


def output_names(config: ModelConfig) -> tuple[str, ...]:
    """What comes out, in order: `logits`, or the heads by name, or `features` of a model without classes."""
    if isinstance(config.num_classes, dict):
        return tuple(config.num_classes)
    return ("logits",) if config.num_classes else ("features",)
