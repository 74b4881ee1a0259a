"""Evaluation mode for a while."""

from collections.abc import Iterator
from contextlib import contextmanager

from torch import nn


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """The model in evaluation mode, and afterwards each part of it as it was."""
    were_training = [module for module in model.modules() if module.training]
    model.eval()
    try:
        yield
    finally:
        for module in were_training:
            module.training = True
