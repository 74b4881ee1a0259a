"""Where and how precisely forward passes are computed, for whoever scores clips."""

from contextlib import AbstractContextManager, nullcontext
from typing import Any, Literal

import torch
from torch import nn

Precision = Literal["32", "bf16", "16"]


def autocast(device: torch.device, precision: Precision) -> AbstractContextManager[Any]:
    """Inside, layers compute in `precision`; "32" changes nothing."""
    if precision == "32":
        return nullcontext()
    return torch.autocast(device.type, torch.bfloat16 if precision == "bf16" else torch.float16)


def find_device(model: nn.Module, device: str | torch.device | None) -> torch.device:
    """The one asked for, or where the model is."""
    if device is not None:
        return torch.device(device)
    return next((parameter.device for parameter in model.parameters()), torch.device("cpu"))
