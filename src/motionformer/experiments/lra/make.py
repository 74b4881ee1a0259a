"""Make numbered examples: how many there are, which numbers are among them, and all in order on several processes."""

from collections.abc import Callable, Iterator, Mapping
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


def count_examples(split: str, count: int | None, sizes: Mapping[str, int]) -> int:
    """`count`, or the size of the split where it is None."""
    if split not in sizes:
        raise ValueError(f"split is one of {', '.join(sizes)}; not {split!r}.")
    return sizes[split] if count is None else count


def check_index(index: int, count: int) -> None:
    """An `IndexError` ends a `for` loop over made examples, so there must be one."""
    if not 0 <= index < count:
        raise IndexError(f"example {index} of {count}.")
