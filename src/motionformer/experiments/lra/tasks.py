"""The five tasks: sizes, and how long each is trained in the published comparison. The one place that knows them."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from motionformer.experiments.lra.aan import read_aan
from motionformer.experiments.lra.cifar import read_cifar
from motionformer.experiments.lra.examples import Splits
from motionformer.experiments.lra.imdb import read_imdb
from motionformer.experiments.lra.listops import VOCABULARY, make_listops, read_listops
from motionformer.experiments.lra.pathfinder import make_pathfinder, read_pathfinder

BYTES = 257
"""256 values and padding."""


@dataclass(frozen=True)
class Task:
    """What a task is, and batch, steps and warm-up steps of its training."""

    name: str
    length: int
    vocabulary: int
    num_classes: int
    batch: int
    steps: int
    warmup: int
    read: Callable[[Path], Splits]
    make: Callable[[int], Splits] | None = None
    """The splits from a seed, for tasks that are generated."""
    num_texts: int = 1

    def warmup_of(self, steps: int) -> int:
        """Warm-up steps of a run of another length: the same share."""
        return max(1, round(self.warmup / self.steps * steps))


TASKS = {
    task.name: task
    for task in (
        Task("listops", 2000, len(VOCABULARY), 10, 32, 5_000, 1_000, read_listops, make_listops),
        Task("text", 4000, BYTES, 2, 32, 20_000, 8_000, read_imdb),
        Task("retrieval", 4000, BYTES, 2, 32, 30_000, 800, read_aan, num_texts=2),
        Task("image", 1024, BYTES, 10, 256, 35_000, 175, read_cifar),
        Task("pathfinder", 1024, BYTES, 2, 256, 62_400, 312, read_pathfinder, make_pathfinder),
    )
}


def find_task(name: str) -> Task:
    if name not in TASKS:
        raise ValueError(f"the task is one of {', '.join(TASKS)}; not {name!r}.")
    return TASKS[name]
