"""Several processes score one list: each takes its share, all end with the same whole. Knows nothing of videos.

Lightning, torchrun or SLURM start the processes; where none was started, one process does everything.
"""


import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
from torch import distributed

from motionformer.errors import MotionformerError

T = TypeVar("T")


@dataclass(frozen=True)
class Processes:
    """This process among its equals. `group` moves plain objects, on the CPU, whatever the tensors use."""

    rank: int = 0
    count: int = 1
    group: Any = None

    @property
    def is_first(self) -> bool:
        return self.rank == 0

    def share(self, items: Sequence[T]) -> list[T]:
        """Every item goes to exactly one process."""
        return list(items[self.rank :: self.count])

    def first_does(self, work: Callable[[], T]) -> T:
        """What `work` returns or refuses in the first process, in all of them: none is left waiting for another."""
        if self.count == 1:
            return work()
        box: list[Any] = [None, None]
        if self.is_first:
            try:
                box[0] = work()
            except MotionformerError as error:
                box[1] = error
        distributed.broadcast_object_list(box, src=0, group=self.group)
        if box[1] is not None:
            raise box[1]
        return box[0]  # type: ignore[no-any-return]

    def gather(self, value: T) -> list[T]:
        """Everybody's, in order of rank, in every process."""
        if self.count == 1:
            return [value]
        box: list[Any] = [None] * self.count
        distributed.all_gather_object(box, value, group=self.group)
        return box


def find_processes() -> Processes:
    """The processes this one was started among. Every one of them must call this."""
    if not (distributed.is_available() and distributed.is_initialized()):
        return Processes()
    group = None if distributed.get_backend() == "gloo" else distributed.new_group(backend="gloo")
    return Processes(distributed.get_rank(), distributed.get_world_size(), group)


@contextmanager
def joined_processes(device: torch.device) -> Iterator[Processes]:
    """Inside, the processes that torchrun started know each other; without torchrun, this one is alone."""
    if int(os.environ.get("WORLD_SIZE", "1")) < 2 or "RANK" not in os.environ or distributed.is_initialized():
        yield find_processes()
        return
    if device.type == "cuda":
        torch.cuda.set_device(device)
    distributed.init_process_group("nccl" if device.type == "cuda" else "gloo")
    try:
        yield find_processes()
    finally:
        distributed.destroy_process_group()
