"""Compare speeds on a noisy machine: the contestants take turns in one process, and the best of each counts."""

import time
from collections.abc import Callable


def compare(contestants: dict[str, Callable[[], object]], rounds: int) -> dict[str, float]:
    """Seconds of the fastest of `rounds` runs of each, after one warm-up, all taking turns."""
    best = {}
    for name, run in contestants.items():
        run()
        best[name] = float("inf")
    for _ in range(rounds):
        for name, run in contestants.items():
            start = time.perf_counter()
            run()
            best[name] = min(best[name], time.perf_counter() - start)
    return best
