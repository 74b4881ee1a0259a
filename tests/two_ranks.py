"""A function in two processes of one job, without a launcher: they are forked, so that nothing is imported again."""

import multiprocessing
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch


def start_two_ranks(function: Callable[[Path], Any], output: Path) -> tuple[list[Any], Any]:
    """As torchrun does it: a store that the parent keeps, so that no port is guessed.

    Returns:
        The processes, and a queue of what the function returns in each.
    """
    store = torch.distributed.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    context = multiprocessing.get_context("fork")
    box = context.SimpleQueue()

    def one(rank: int) -> None:
        os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE="2", LOCAL_WORLD_SIZE="2")
        os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(store.port))
        os.environ.update(TORCHELASTIC_USE_AGENT_STORE="True", TORCHELASTIC_RUN_ID="test")
        box.put(function(output))

    both = [context.Process(target=one, args=(rank,)) for rank in range(2)]
    for process in both:
        process.start()
        process.store = store  # type: ignore[attr-defined]  # it lives as long as they do
    return both, box


def run_two_ranks(function: Callable[[Path], Any], output: Path) -> list[Any]:
    """What the function returns in each; both must end well."""
    both, box = start_two_ranks(function, output)
    for process in both:
        process.join(120)
    assert [process.exitcode for process in both] == [0, 0]
    return [box.get(), box.get()]
