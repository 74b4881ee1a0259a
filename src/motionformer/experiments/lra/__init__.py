"""Long Range Arena in plain PyTorch: five tasks of long sequences, one small model, any way to compute attention."""

from motionformer.experiments.lra.examples import Batch, Example, Splits, collate
from motionformer.experiments.lra.model import (
    COMPARED,
    Encoder,
    SequenceClassifier,
    compare_costs,
    encoder_macs,
    make_kernel,
)
from motionformer.experiments.lra.tasks import TASKS, Task, find_task
from motionformer.experiments.lra.train import Result, Run, train

__all__ = [
    "COMPARED",
    "TASKS",
    "Batch",
    "Encoder",
    "Example",
    "Result",
    "Run",
    "SequenceClassifier",
    "Splits",
    "Task",
    "collate",
    "compare_costs",
    "encoder_macs",
    "find_task",
    "make_kernel",
    "train",
]
