"""The same work on many things, in this process or in several."""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from typing import TypeVar

Job = TypeVar("Job")
Result = TypeVar("Result")


def at_once(do: Callable[[Job], Result], jobs: Sequence[Job], processes: int) -> Iterator[tuple[Job, Result]]:
    """Each job with what it gave, as they end; `do` and the jobs must be picklable. The first error stops the rest."""
    if processes == 1:
        yield from ((job, do(job)) for job in jobs)
        return
    context = get_context("spawn")  # a fork of a process with threads can hang
    with ProcessPoolExecutor(processes, mp_context=context) as pool:
        running = {pool.submit(do, job): job for job in jobs}
        try:
            yield from ((running[done], done.result()) for done in as_completed(running))
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
