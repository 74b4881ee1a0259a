"""Make numbered examples on several processes, in order."""

from collections.abc import Callable, Iterator
from multiprocessing import get_context
from typing import TypeVar

T = TypeVar("T")


def in_order(make: Callable[[int], T], count: int, workers: int) -> Iterator[T]:
    """`make(0)` … `make(count − 1)`. The result does not depend on the number of workers."""
    if workers == 1:
        yield from map(make, range(count))
        return
    with get_context("spawn").Pool(workers) as pool:
        yield from pool.imap(make, range(count), chunksize=16)
