"""Processes that crash, hang and raise cost their own item and nothing else."""

import multiprocessing
import os
import signal
import time

import pytest

from motionformer.data.pool import Crash, run_in_processes


def behave(item: tuple[str, int]) -> int:
    """At module level, so that a fresh process finds it."""
    what, value = item
    if what == "segfault":
        os.kill(os.getpid(), signal.SIGSEGV)
    if what == "exit":
        os._exit(3)
    if what == "hang":
        time.sleep(1000)
    if what == "raise":
        raise ValueError("no such thing")
    return value * value


def test_every_item_has_one_outcome_and_no_process_is_left() -> None:
    items = [("square", index) for index in range(20)]
    items[3], items[7], items[11], items[19] = ("segfault", 0), ("hang", 0), ("raise", 0), ("exit", 0)
    outcomes = list(run_in_processes(behave, items, num_workers=2, time_limit=4.0))
    assert sorted(index for index, _ in outcomes) == list(range(20))
    found = dict(outcomes)
    assert found.pop(3) == Crash("the decoder crashed (signal SIGSEGV)")
    assert found.pop(7) == Crash("no answer within 4 s")
    assert found.pop(11) == Crash("unexpected ValueError: no such thing")
    assert found.pop(19) == Crash("the decoder crashed (exit code 3)")
    assert found == {index: index * index for index in found}
    assert multiprocessing.active_children() == []


def test_stopping_early_leaves_no_process() -> None:
    running = run_in_processes(behave, [("square", 2), ("hang", 0), ("hang", 0)], num_workers=3, time_limit=60.0)
    assert next(running) == (0, 4)
    assert len(multiprocessing.active_children()) == 3
    running.close()
    assert multiprocessing.active_children() == []


def test_nothing_to_do() -> None:
    assert list(run_in_processes(behave, [], num_workers=2, time_limit=1.0)) == []


@pytest.mark.parametrize("num_workers", [1, 5])
def test_any_number_of_workers(num_workers: int) -> None:
    outcomes = dict(run_in_processes(behave, [("square", 1), ("square", 2)], num_workers=num_workers, time_limit=30.0))
    assert outcomes == {0: 1, 1: 4}
