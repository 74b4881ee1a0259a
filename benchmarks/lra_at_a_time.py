"""CPU seconds of a training step on 32 real ListOps sequences, all at once and a few of like length at a time.

python -m benchmarks.lra_at_a_time                # a minute on one core

The gradient is the same (a test says so); what is saved is padding, and what leaves the cache.
"""

import argparse
import time
from collections.abc import Sequence

import torch
import torch.nn.functional as F

from motionformer.experiments.lra import TASKS, SequenceClassifier
from motionformer.experiments.lra.examples import Batch, collate
from motionformer.experiments.lra.listops import ListOps
from motionformer.experiments.lra.model import COMPARED

BATCH = 32
SIZES = (32, 8, 4, 2, 1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=2)
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    examples = ListOps("train")
    batch = collate([examples[i] for i in range(BATCH)])
    print(f"| at a time | {' | '.join(map(str, SIZES))} |\n|---{'|---' * len(SIZES)}|")
    for name in COMPARED:
        model = SequenceClassifier(TASKS["listops"], name)
        print(f"| {name} | {' | '.join(f'{s:.2f} s' for s in seconds(model, batch, options.rounds))} |", flush=True)


def seconds(model: torch.nn.Module, batch: Batch, rounds: int) -> Sequence[float]:
    """The best of the rounds for each size; sizes take turns."""
    best = dict.fromkeys(SIZES, float("inf"))
    for _ in range(rounds):
        for size in SIZES:
            started = time.process_time()
            for part in batch.parts(size):
                F.cross_entropy(model(part.tokens, part.mask), part.labels, reduction="sum").backward()
            best[size] = min(best[size], time.process_time() - started)
    return list(best.values())


if __name__ == "__main__":
    main()
