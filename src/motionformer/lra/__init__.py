"""Long Range Arena in plain PyTorch: five tasks of long sequences, one small model, any way to compute attention."""

from motionformer.lra.attends import COMPARED, make_attend
from motionformer.lra.costs import compare_costs, encoder_macs
from motionformer.lra.examples import Batch, Example, Splits, collate
from motionformer.lra.model import Encoder, SequenceClassifier
from motionformer.lra.tasks import TASKS, Task, find_task
from motionformer.lra.train import Result, Run, train

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
    "make_attend",
    "train",
]
