"""The processes of one job: launcher, rank, world size, shares of work, gathering of results.

torchrun, SLURM or Lightning start the processes; where none did, one process does everything.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from motionformer.errors import LaunchError, MotionformerError

if TYPE_CHECKING:
    import torch

T = TypeVar("T")


@dataclass(frozen=True)
class Launcher:
    """Processes that a launcher started, the same number on every node."""

    name: str
    rank: int
    world_size: int
    num_nodes: int

    @property
    def processes_per_node(self) -> int:
        return self.world_size // self.num_nodes

    def __post_init__(self) -> None:
        if self.world_size % self.num_nodes:
            raise LaunchError(
                f"{self.name} started {self.world_size} processes on {self.num_nodes} nodes; start the same number on"
                " each node."
            )

    @classmethod
    def find(cls) -> "Launcher | None":
        """What the launcher's environment variables tell of this process; None where a person started it alone.

        torchrun is asked first: it may run inside a SLURM job.

        Raises:
            LaunchError: the nodes have different numbers of processes.
        """
        environment = os.environ
        if "TORCHELASTIC_RUN_ID" in environment:
            world_size = int(environment["WORLD_SIZE"])
            nodes = world_size // int(environment["LOCAL_WORLD_SIZE"])
            return cls("torchrun", int(environment["RANK"]), world_size, nodes)
        if "SLURM_NTASKS" in environment and environment.get("SLURM_JOB_NAME") not in ("bash", "interactive"):
            world_size, nodes = int(environment["SLURM_NTASKS"]), int(environment.get("SLURM_NNODES", "1"))
            return cls("SLURM", int(environment.get("SLURM_PROCID", "0")), world_size, nodes)
        return None


def is_rank_zero() -> bool:
    """Whether this process writes and prints for all of them; also right before the process group is there."""
    if (found := rank_and_size()) is not None:
        return found[0] == 0
    for names in (("RANK",), ("LOCAL_RANK", "NODE_RANK"), ("SLURM_PROCID",)):  # torchrun, Lightning's own, srun
        if names[0] in os.environ:
            return all(int(os.environ.get(name, "0")) == 0 for name in names)
    return True


def local_rank() -> int:
    """The number of this process on its node, which is that of its GPU; also before there is a process group."""
    return int(os.environ.get("LOCAL_RANK", "0"))


@dataclass(frozen=True)
class Rank:
    """This process among those of its job. `group` moves plain objects, on the CPU, whatever the tensors use."""

    rank: int = 0
    world_size: int = 1
    group: Any = None

    @property
    def is_zero(self) -> bool:
        return self.rank == 0

    def share(self, items: Sequence[T]) -> list[T]:
        """Every item goes to exactly one process."""
        return list(items[self.rank :: self.world_size])

    def on_zero(self, work: Callable[[], T]) -> T:
        """What `work` returns or raises on rank zero, on every rank: none is left waiting for another."""
        if self.world_size == 1:
            return work()
        from torch import distributed

        box: list[Any] = [None, None]
        if self.is_zero:
            try:
                box[0] = work()
            except MotionformerError as error:
                box[1] = error
        distributed.broadcast_object_list(box, src=0, group=self.group)
        if box[1] is not None:
            raise box[1]
        return box[0]  # type: ignore[no-any-return]

    def gather(self, value: T) -> list[T]:
        """Everybody's value, in order of rank, on every rank."""
        if self.world_size == 1:
            return [value]
        from torch import distributed

        box: list[Any] = [None] * self.world_size
        distributed.all_gather_object(box, value, group=self.group)
        return box


def current_rank() -> Rank:
    """The rank in the process group that is there. A collective call where the group is not gloo's."""
    if (found := rank_and_size()) is None:
        return Rank()
    from torch import distributed

    group = None if distributed.get_backend() == "gloo" else distributed.new_group(backend="gloo")
    return Rank(*found, group)


@contextmanager
def process_group(device: "torch.device") -> Iterator[Rank]:
    """Join the processes that torchrun started for the time of the block; without a launcher, this one is alone."""
    if int(os.environ.get("WORLD_SIZE", "1")) < 2 or "RANK" not in os.environ or rank_and_size():
        yield current_rank()
        return
    import torch
    from torch import distributed

    if device.type == "cuda":
        torch.cuda.set_device(device)
    distributed.init_process_group("nccl" if device.type == "cuda" else "gloo")
    try:
        yield current_rank()
    finally:
        distributed.destroy_process_group()


def rank_and_size() -> tuple[int, int] | None:
    """Of this process in the process group; None where there is none."""
    from torch import distributed

    if not (distributed.is_available() and distributed.is_initialized()):
        return None
    return distributed.get_rank(), distributed.get_world_size()
