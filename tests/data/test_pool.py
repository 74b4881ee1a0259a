"""Processes that crash, hang and raise cost their own item and nothing else."""

import multiprocessing
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from motionformer.data.pool import Crash, run_in_order, run_in_processes
from motionformer.errors import PoolError


def behave(item: tuple[str, int]) -> int | bytes:
    """At module level, so that a fresh process finds it."""
    what, value = item
    if what == "segfault":
        os.kill(os.getpid(), signal.SIGSEGV)
    if what == "exit":
        os._exit(3)
    if what == "hang":
        time.sleep(1000)
    if what == "slow":
        time.sleep(2)
    if what in ("slow", "when"):
        return time.monotonic_ns()
    if what == "large":
        time.sleep(1)  # the others answer first
        return bytes(10_000_000)
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


def test_a_process_that_dies_while_it_sends_its_result() -> None:
    """A pipe shared by all processes would be left with half a message, and none could be read any more."""
    items = [("square", 2), ("large", 0), ("square", 3), ("square", 4)]
    running = run_in_processes(behave, items, num_workers=2, time_limit=60.0)
    assert next(running) == (0, 4)
    time.sleep(3.0)  # more than a pipe holds: it waits for us to read on
    for child in multiprocessing.active_children():
        child.kill()
    assert dict(running) == {1: Crash("the decoder crashed (signal SIGKILL)"), 2: 9, 3: 16}


def test_nothing_to_do() -> None:
    assert list(run_in_processes(behave, [], num_workers=2, time_limit=1.0)) == []


@pytest.mark.parametrize("num_workers", [1, 5])
def test_any_number_of_workers(num_workers: int) -> None:
    outcomes = dict(run_in_processes(behave, [("square", 1), ("square", 2)], num_workers=num_workers, time_limit=30.0))
    assert outcomes == {0: 1, 1: 4}


def test_results_come_in_order() -> None:
    items = [("slow", 0), *[("square", index) for index in range(9)]]
    items[4] = ("segfault", 0)
    found = list(run_in_order(behave, items, num_workers=2, time_limit=60.0))
    assert found.pop(4) == Crash("the decoder crashed (signal SIGSEGV)")
    assert found[1:] == [0, 1, 4, 16, 25, 36, 49, 64]


def test_nobody_is_more_than_two_for_each_process_ahead() -> None:
    done, *others = run_in_order(behave, [("slow", 0), *[("when", 0)] * 7], num_workers=2, time_limit=60.0)
    assert min(others[3:]) > done


def test_a_process_works_while_the_caller_does() -> None:
    running = run_in_order(behave, [("when", 0)] * 2, num_workers=1, time_limit=60.0)
    next(running)
    time.sleep(0.5)
    seen = time.monotonic_ns()
    assert next(running) < seen


KILLED = """
import math, multiprocessing, os
from motionformer.data.pool import run_in_order
context = multiprocessing.get_context("fork")
running = run_in_order(math.sqrt, [4.0] * 8, num_workers=2, time_limit=60.0, context=context)
next(running)
print(*[child.pid for child in multiprocessing.active_children()], flush=True)
os.kill(os.getpid(), 9)
"""


class EndsOnArrival:
    """Ends the process that it is sent to, before that is ready."""

    def __reduce__(self) -> tuple[Any, tuple[int]]:
        return os._exit, (3,)

    def __call__(self, item: float) -> float:
        return item


def test_a_process_that_cannot_start_is_no_items_fault() -> None:
    running = run_in_order(
        EndsOnArrival(), [4.0], num_workers=1, time_limit=60.0, context=multiprocessing.get_context("spawn")
    )
    with pytest.raises(PoolError, match=r"could not start \(exit code 3\).*belongs under `if __name__"):
        list(running)


def test_forked_processes_end_with_a_killed_parent(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(KILLED)
    done = _run(tmp_path / "script.py")
    assert done.returncode == -signal.SIGKILL, done.stderr
    children = [int(pid) for pid in done.stdout.split()]
    assert len(children) == 2
    until = time.monotonic() + 20
    while left := [pid for pid in children if _is_running(pid)]:
        assert time.monotonic() < until, f"{left} live on"
        time.sleep(0.05)


def _run(script: Path) -> "subprocess.CompletedProcess[str]":
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.run([sys.executable, script], capture_output=True, text=True, env=environment, timeout=120)


def _is_running(pid: int) -> bool:
    """Not gone, and no zombie that nobody collects."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
