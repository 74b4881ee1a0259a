"""Run a function over many items in processes that may die: a crash or a hang costs one item, never the run.

`concurrent.futures` gives up the whole pool when one process dies and cannot end one that hangs, which is what broken
video files make decoders do.
"""

import contextlib
import multiprocessing
import signal
import time
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.context import BaseContext
from multiprocessing.process import BaseProcess
from typing import Any, Generic, TypeVar

from motionformer.errors import PoolError
from motionformer.stopping import keep_from_signals

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")

_START_LIMIT = 120.0  # seconds a process may take to import what it needs


@dataclass(frozen=True)
class Crash:
    """What became of an item whose process did not return a result."""

    reason: str


def run_in_processes(
    function: Callable[[_Item], _Result],
    items: Sequence[_Item],
    *,
    num_workers: int,
    time_limit: float,
    ahead: int | None = None,
    context: BaseContext | None = None,
) -> Generator[tuple[int, _Result | Crash], None, None]:
    """(index, result) of every item, each exactly once, as they come. No process is left when the iterator ends.

    Processes continue while the caller uses a result. `ahead` is how far they may be beyond the oldest item that is
    not done (no limit by default); `context` how they are started (`_context` by default).
    """
    context = context or _context(function.__module__)
    waiting = list(reversed(range(len(items))))
    workers = [_Worker(context, function) for _ in range(min(num_workers, len(items)))]
    try:
        _give_out(workers, waiting, items, ahead)
        while busy := [worker for worker in workers if worker.index is not None]:
            _wait_for_news(busy, time_limit)
            for worker in busy:
                result = worker.news(time_limit)
                if result is None:
                    continue
                index, worker.index = worker.index, None
                assert index is not None
                _give_out(workers, waiting, items, ahead)
                yield index, result
    finally:
        for worker in workers:
            worker.end()


def run_in_order(
    function: Callable[[_Item], _Result],
    items: Sequence[_Item],
    *,
    num_workers: int,
    time_limit: float,
    context: BaseContext | None = None,
) -> Generator[_Result | Crash, None, None]:
    """The results in the order of the items; at most two for each process wait for an earlier one."""
    early: dict[int, _Result | Crash] = {}
    following = 0
    done = run_in_processes(
        function, items, num_workers=num_workers, time_limit=time_limit, ahead=2 * num_workers, context=context
    )
    with contextlib.closing(done):
        for index, result in done:
            early[index] = result
            while following in early:
                yield early.pop(following)
                following += 1


def _give_out(
    workers: "list[_Worker[_Item, _Result]]", waiting: list[int], items: Sequence[_Item], ahead: int | None
) -> None:
    """The next items to workers that have none."""
    for worker in workers:
        if worker.index is None and waiting:
            oldest = min((one.index for one in workers if one.index is not None), default=waiting[-1])
            if ahead is None or waiting[-1] < oldest + ahead:
                worker.give(waiting.pop(), items)


class _Worker(Generic[_Item, _Result]):
    """One process and the item it is busy with; a dead process is followed by a fresh one with the next item."""

    process: BaseProcess
    connection: "Connection[Any, Any]"

    def __init__(self, context: BaseContext, function: Callable[[_Item], _Result]) -> None:
        self.context, self.function = context, function
        self.index: int | None = None
        self.since = 0.0
        self._start()

    def give(self, index: int, items: Sequence[_Item]) -> None:
        if not self.process.is_alive():
            self.end()
            self._start()
        self.index, self.since = index, time.monotonic() + (0 if self.is_ready else _START_LIMIT)
        with contextlib.suppress(OSError):  # died in between: `news` reports it, with the reason
            self.connection.send(items[index])

    def news(self, time_limit: float) -> _Result | Crash | None:
        """The result, how the process ended without one, or None: still busy."""
        try:
            while self.connection.poll():
                message: tuple[_Result | Crash, ...] = self.connection.recv()
                if message:
                    return message[0]
                self.is_ready, self.since = True, time.monotonic()
        except (EOFError, OSError):
            self.process.join()
        if not self.process.is_alive() and not self.is_ready:
            raise PoolError(
                f"a process for decoding could not start ({_how_it_ended(self.process.exitcode)}); it has said why on"
                " stderr. In a script, what starts processes belongs under `if __name__ == '__main__':`."
            )
        if not self.process.is_alive():
            return Crash(f"the decoder crashed ({_how_it_ended(self.process.exitcode)})")
        if time.monotonic() - self.since > time_limit:
            self.end()
            return Crash(f"no answer within {time_limit:g} s")
        return None

    def end(self) -> None:
        self.process.kill()
        self.process.join()
        self.connection.close()

    def _start(self) -> None:
        self.is_ready = False
        self.connection, theirs = self.context.Pipe()
        process = self.context.Process(  # type: ignore[attr-defined]
            target=_serve, args=(theirs, self.function), daemon=True
        )
        process.start()
        theirs.close()
        self.process = process


def _serve(connection: "Connection[Any, Any]", function: Callable[[Any], Any]) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent ends us
    keep_from_signals()
    connection.send(())  # ready: from here on the time limit counts
    parent = multiprocessing.parent_process()
    assert parent is not None
    while True:
        # a forked process holds the other end of its own connection: only this tells that the parent was killed
        if connection not in wait([connection, parent.sentinel]):
            return
        try:
            item = connection.recv()
        except EOFError:
            return
        try:
            result = function(item)
        except Exception as error:
            result = Crash(f"unexpected {type(error).__name__}: {error}")
        connection.send((result,))


def _wait_for_news(busy: "list[_Worker[Any, Any]]", time_limit: float) -> None:
    first_end = min(worker.since for worker in busy) + time_limit
    signs = [sign for worker in busy for sign in (worker.connection, worker.process.sentinel)]
    wait(signs, timeout=max(0.0, first_end - time.monotonic()) + 0.01)


def _context(module: str) -> BaseContext:
    """Processes that did not inherit the parent's threads; a fork server makes a fresh one cheap after a crash."""
    if "forkserver" not in multiprocessing.get_all_start_methods():
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__, module])
    return context


def _how_it_ended(code: int | None) -> str:
    if code is not None and code < 0:
        return f"signal {signal.Signals(-code).name}"
    return f"exit code {code}"
