"""Seconds of choosing prototypes and of attention against the number of tokens, up to 16,384.

python -m benchmarks.lra_scaling                  # minutes on one core; writes build/lra-scaling.json

Seconds are CPU time of one thread, the lengths take turns, and the best of the rounds counts: what else the machine
does matters little. `growth` is the exponent p of a fit seconds ∝ n^p over all lengths but the first: 1 is linear, 2
quadratic.
"""

import argparse
import json
import math
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch

from motionformer.attention import select_prototypes
from motionformer.experiments.lra.model import make_kernel

LENGTHS = (1024, 2048, 4096, 8192, 16384)
D, HEADS = 32, 2
METHODS = ("exact", "performer-256", "nystrom-128", "orthoformer-64", "orthoformer-64-improved")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--out", type=Path, default=Path("build"))
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    works = {"selection, r = 64": select, **{name: partial(attend, name) for name in METHODS}}
    report = {}
    print(f"| | {' | '.join(f'n = {n:,}' for n in LENGTHS)} | growth |\n|---{'|---' * (len(LENGTHS) + 1)}|")
    for name, work in works.items():
        seconds = best_of([work(n) for n in LENGTHS], options.rounds)
        report[name] = {"lengths": LENGTHS, "seconds": seconds, "growth": growth(LENGTHS[1:], seconds[1:])}
        print(
            f"| {name} | {' | '.join(f'{1e3 * s:.1f} ms' for s in seconds)} | {report[name]['growth']:.2f} |",
            flush=True,
        )
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "lra-scaling.json").write_text(json.dumps(report, indent=2), encoding="utf-8")


def select(n: int) -> Callable[[], object]:
    candidates = torch.randn(HEADS, n, D)
    return lambda: select_prototypes(candidates, 64, deterministic=True)


def attend(name: str, n: int) -> Callable[[], object]:
    q, k, v = torch.randn(3, 1, HEADS, n, D)
    one = make_kernel(name, D).eval()

    def run() -> None:
        with torch.no_grad():
            one(q, k, v)

    return run


def best_of(works: list[Callable[[], object]], rounds: int) -> list[float]:
    """CPU seconds of the fastest run of each, after one warm-up, all taking turns."""
    best = [math.inf] * len(works)
    for turn in range(rounds + 1):
        for place, work in enumerate(works):
            started = time.process_time()
            work()
            if turn > 0:
                best[place] = min(best[place], time.process_time() - started)
    return best


def growth(lengths: tuple[int, ...], seconds: list[float]) -> float:
    """The slope of log seconds over log n, by least squares."""
    x, y = [math.log(n) for n in lengths], [math.log(s) for s in seconds]
    mean_x, mean_y = sum(x) / len(x), sum(y) / len(y)
    above = sum((a - mean_x) * (b - mean_y) for a, b in zip(x, y, strict=True))
    return above / sum((a - mean_x) ** 2 for a in x)


if __name__ == "__main__":
    main()
