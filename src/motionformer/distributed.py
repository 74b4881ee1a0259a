"""The processes of one job: launcher, rank, world size, a queue of work, gathering of results.

torchrun, srun or Lightning start the processes; where none did, one process does everything. Every command finds them
here, and joins them before it does anything else, so that a rank that fails can tell the others (`monitor.py`).
"""

import logging
import os
import re
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from itertools import count
from pathlib import Path
from typing import Any, TypeVar
from uuid import uuid4

from motionformer.errors import LaunchError, MotionformerError, OutputError
from motionformer.stopping import is_stop_requested

log = logging.getLogger("motionformer")
T = TypeVar("T")
_SECONDS_TO_JOIN = 180
"""From the first process of a job to the last: imports from a network file system take their time."""
_SECONDS_TO_SEE_A_FILE = 5.0
_NO_LIMIT = timedelta(days=7)
"""Of collectives: a rank may be done hours before the others. A lost one is noticed by the monitor, not by a limit."""
_groups, _queues = count(), count()
"""How many this process has made: all ranks make the same, in the same order."""


@dataclass(frozen=True)
class Launcher:
    """Processes that a launcher started, the same number on every node."""

    name: str
    rank: int
    world_size: int
    num_nodes: int
    local_rank: int = 0
    address: str = "127.0.0.1"
    """Where rank zero is."""
    port: int = 0

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

        torchrun, and others that set the same variables, are asked first: they may run inside a SLURM job. Of SLURM
        only the variables of a step count, which srun sets: also in `salloc` and in a batch script, where a command
        without srun is one process.

        Raises:
            LaunchError: the nodes have different numbers of processes.
        """
        told = os.environ
        address = told.get("MASTER_ADDR", "")
        if {"RANK", "WORLD_SIZE", "MASTER_PORT"} <= told.keys():
            ranks = int(told["RANK"]), int(told["WORLD_SIZE"])
            nodes = ranks[1] // int(told.get("LOCAL_WORLD_SIZE", "1"))
            name = "torchrun" if "TORCHELASTIC_RUN_ID" in told else "a launcher (RANK is set)"
            return cls(name, *ranks, nodes, int(told.get("LOCAL_RANK", "0")), address, int(told["MASTER_PORT"]))
        if "SLURM_STEP_NUM_TASKS" in told and "SLURM_PROCID" in told:
            ranks = int(told["SLURM_PROCID"]), int(told["SLURM_STEP_NUM_TASKS"])
            step = int(told.get("SLURM_JOB_ID", "0")) * 31 + int(told.get("SLURM_STEP_ID", "0"))
            return cls(
                "srun",
                *ranks,
                int(told.get("SLURM_STEP_NUM_NODES", "1")),
                int(told.get("SLURM_LOCALID", "0")),
                address or _first_node(told.get("SLURM_STEP_NODELIST", "127.0.0.1")),
                int(told.get("MASTER_PORT", 15000 + step % 15000)),  # all ranks of a step know it, and no other step
            )
        if {"LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE"} <= told.keys():  # `training.trainer` starts these
            local, each, world_size = (int(told[key]) for key in ("LOCAL_RANK", "LOCAL_WORLD_SIZE", "WORLD_SIZE"))
            rank = int(told.get("NODE_RANK", "0")) * each + local
            return cls("Lightning", rank, world_size, world_size // each, local, address, int(told["MASTER_PORT"]))
        return None


def is_rank_zero() -> bool:
    """Whether this process writes and prints for all of them; also right before the process group is there."""
    if (found := rank_and_size()) is not None:
        return found[0] == 0
    launcher = Launcher.find()
    return launcher is None or launcher.rank == 0


def local_rank() -> int:
    """The number of this process on its node, which is that of its GPU; also before there is a process group."""
    launcher = Launcher.find()
    return 0 if launcher is None else launcher.local_rank


@dataclass(frozen=True)
class Rank:
    """This process among those of its job."""

    rank: int = 0
    world_size: int = 1

    @property
    def is_zero(self) -> bool:
        return self.rank == 0

    def share(self, items: Sequence[T]) -> list[T]:
        """Every item goes to exactly one process."""
        return list(items[self.rank :: self.world_size])

    def queue(self, items: Sequence[T]) -> Iterator[T]:
        """Every item goes to exactly one process: to the one that asks next. Ends early once any is asked to stop."""
        if self.world_size == 1:
            for item in items:
                if is_stop_requested():
                    return
                yield item
            return
        store, name = _store(), f"queue/{next(_queues)}"
        while True:
            if is_stop_requested():
                store.set(f"{name}/stop", "")
            number = store.add(name, 1) - 1
            if number >= len(items) or store.check([f"{name}/stop"]):
                return
            yield items[number]

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
        distributed.broadcast_object_list(box, src=0)
        if box[1] is not None:
            box[1].is_reported = not self.is_zero
            raise box[1]
        return box[0]  # type: ignore[no-any-return]

    def gather(self, value: T) -> list[T]:
        """Everybody's value, in order of rank, on every rank."""
        if self.world_size == 1:
            return [value]
        from torch import distributed

        box: list[Any] = [None] * self.world_size
        distributed.all_gather_object(box, value)
        return box

    def any_stopped(self) -> bool:
        """Whether a signal has asked any process to stop; the same answer on every rank. One number is sent."""
        if self.world_size == 1:
            return is_stop_requested()
        import torch
        from torch import distributed

        asked = torch.tensor(int(is_stop_requested()))  # on the CPU, whatever the model uses: nothing waits for a GPU
        distributed.all_reduce(asked, distributed.ReduceOp.MAX)
        return bool(asked)

    def check_shared(self, folder: Path) -> None:
        """All processes see the same folder.

        Raises:
            OutputError: some do not see what rank zero writes there, on every rank.
        """
        if self.world_size == 1:
            return
        file = self.on_zero(lambda: _leave_mark(folder))
        limit = time.monotonic() + _SECONDS_TO_SEE_A_FILE
        while not (seen := _lists(file)) and time.monotonic() < limit:
            time.sleep(0.1)
        found = self.gather((socket.gethostname(), seen))

        def check() -> None:
            file.unlink(missing_ok=True)
            blind = [f"rank {rank} on {host}" for rank, (host, sees) in enumerate(found) if not sees]
            if blind:
                raise OutputError(
                    f"{folder}: {', '.join(blind)} cannot see what rank 0 on {found[0][0]} writes there; give a folder"
                    " that all nodes of the job share."
                )

        self.on_zero(check)


def current_rank() -> Rank:
    """The rank in the process group that is there."""
    return Rank(*(rank_and_size() or (0, 1)))


@contextmanager
def process_group(*, of_lightning: bool = False) -> Iterator[Rank]:
    """Join the processes that a launcher started for the time of the block; without a launcher, this one is alone.

    Args:
        of_lightning: also those that Lightning started, which come into being in the middle of training.

    Raises:
        LaunchError: some did not come, or cannot be reached.
    """
    launcher = Launcher.find()
    is_here = launcher is not None and launcher.world_size > 1 and (of_lightning or launcher.name != "Lightning")
    if not is_here or rank_and_size():
        if launcher is None and int(os.environ.get("SLURM_NTASKS", "1")) > 1:
            log.warning(
                "this SLURM job has %s tasks, and srun did not start this process: it works alone. Put srun before the"
                " command.",
                os.environ["SLURM_NTASKS"],
            )
        yield current_rank()
        return
    assert launcher is not None
    from torch import cuda, distributed

    from motionformer.monitor import Monitor

    store = _join(launcher)
    backend = "cpu:gloo,cuda:nccl" if cuda.is_available() and distributed.is_nccl_available() else "gloo"
    if backend != "gloo" and launcher.local_rank < cuda.device_count():
        cuda.set_device(launcher.local_rank)
    monitor = Monitor(launcher.rank, launcher.world_size, launcher.address, store)
    try:
        distributed.init_process_group(
            backend, store=store, rank=launcher.rank, world_size=launcher.world_size, timeout=_NO_LIMIT
        )
        yield current_rank()
    except BaseException as error:
        monitor.close(error)
        raise
    else:
        monitor.close()
    finally:
        if distributed.is_initialized():
            distributed.destroy_process_group()


def _join(launcher: Launcher) -> Any:
    """The store that all ranks have, once all are there."""
    from torch.distributed import DistError, PrefixStore, TCPStore  # type: ignore[attr-defined]

    is_agents = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"  # torchrun's own process serves it
    is_host = launcher.rank == 0 and not is_agents
    if not is_host:
        _wait_for_host(launcher)  # the store's own waiting prints pages
    try:
        found = TCPStore(launcher.address, launcher.port, is_master=is_host, wait_for_workers=False, multi_tenant=True)
    except (DistError, RuntimeError) as error:
        raise LaunchError(
            f"rank {launcher.rank} on {socket.gethostname()}: {launcher.address}:{launcher.port} cannot be used"
            f" ({str(error).splitlines()[0]}); MASTER_PORT chooses another port."
        ) from error
    attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    store = PrefixStore(f"motionformer/{attempt}/{next(_groups)}", found)
    keys = [f"joined/{rank}" for rank in range(launcher.world_size)]
    store.set(keys[launcher.rank], socket.gethostname())
    try:
        store.wait(keys, timedelta(seconds=_SECONDS_TO_JOIN))
    except (DistError, RuntimeError) as error:
        lost = ", ".join(str(rank) for rank, key in enumerate(keys) if not store.check([key]))
        raise LaunchError(
            f"rank {lost} of {launcher.world_size} did not come within {_SECONDS_TO_JOIN} s; {launcher.name} started"
            " this one. See what they have printed."
        ) from error
    return store


def _wait_for_host(launcher: Launcher) -> None:
    limit = time.monotonic() + _SECONDS_TO_JOIN
    while True:
        try:
            socket.create_connection((launcher.address, launcher.port), timeout=10.0).close()
        except OSError as error:
            if time.monotonic() > limit:
                raise LaunchError(
                    f"rank {launcher.rank} on {socket.gethostname()}: rank 0 cannot be reached at"
                    f" {launcher.address}:{launcher.port} within {_SECONDS_TO_JOIN} s ({error}). Check that it started;"
                    " MASTER_ADDR and MASTER_PORT choose another address."
                ) from error
            time.sleep(0.2)
        else:
            return


def _store() -> Any:
    from torch.distributed.distributed_c10d import _get_default_store

    return _get_default_store()


def _leave_mark(folder: Path) -> Path:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        file = folder / f".shared-{uuid4().hex}"
        file.touch()
    except OSError as error:
        raise OutputError(f"{folder}: cannot be written ({error.strerror or error}); choose another output.") from error
    return file


def _lists(file: Path) -> bool:
    """By listing the folder: a network file system remembers for a while that a file was not there."""
    try:
        return file.name in os.listdir(file.parent)  # noqa: PTH208
    except OSError:
        return False


def _first_node(nodes: str) -> str:
    """Of SLURM's list: `n[03-05,07],m1` begins with n03."""
    return re.sub(r"\[([^],-]+)[^]]*\]", r"\1", nodes).split(",")[0]


def rank_and_size() -> tuple[int, int] | None:
    """Of this process in the process group; None where there is none."""
    from torch import distributed

    if not (distributed.is_available() and distributed.is_initialized()):
        return None
    return distributed.get_rank(), distributed.get_world_size()
