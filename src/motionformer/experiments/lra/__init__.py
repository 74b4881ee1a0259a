"""Long Range Arena in plain PyTorch: five tasks of long sequences, one small model, any way to compute attention.

`TASKS` has their sizes, and how long each is trained in the published comparison.
"""

from motionformer.experiments.lra.examples import (
    Batch,
    Example,
    Splits,
    Task,
    collate,
    read_image,
    read_retrieval,
    read_text,
)
from motionformer.experiments.lra.listops import VOCABULARY, make_listops, read_listops
from motionformer.experiments.lra.model import (
    COMPARED,
    Encoder,
    SequenceClassifier,
    compare_costs,
    encoder_macs,
    make_kernel,
)
from motionformer.experiments.lra.pathfinder import make_pathfinder, read_pathfinder
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
    "make_kernel",
    "train",
]

_BYTES = 257
"""256 values and padding."""
TASKS = {
    task.name: task
    for task in (
        Task("listops", 2000, len(VOCABULARY), 10, 32, 5_000, 1_000, read_listops, make_listops),
        Task("text", 4000, _BYTES, 2, 32, 20_000, 8_000, read_text),
        Task("retrieval", 4000, _BYTES, 2, 32, 30_000, 800, read_retrieval, num_texts=2),
        Task("image", 1024, _BYTES, 10, 256, 35_000, 175, read_image),
        Task("pathfinder", 1024, _BYTES, 2, 256, 62_400, 312, read_pathfinder, make_pathfinder),
    )
}
