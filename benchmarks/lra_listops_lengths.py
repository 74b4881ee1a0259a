"""ListOps by length: how many steps each method needs to leave the plateau of guessing, and what it can do then.

python -m benchmarks.lra_listops_lengths          # an hour of a core; writes build/lra-lengths.json, goes on if stopped

Expressions are those of ListOps in all but their length. A run has left the plateau when its loss over 50 steps is
below 2.15: who knows only how frequent the classes are has about 2.25.
"""

import argparse
import csv
import json
from pathlib import Path

import torch

from motionformer.experiments.lra import COMPARED, TASKS, Run, train
from motionformer.experiments.lra.listops import Lengths, make_listops

LENGTHS: tuple[Lengths, ...] = ((50, 100), (100, 200), (200, 400), (400, 800))
EVERY, LEFT = 50, 2.15


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=600)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--longest", type=int, default=800, help="leave out expressions of more tokens")
    parser.add_argument("--methods", nargs="+", default=COMPARED)
    parser.add_argument("--out", type=Path, default=Path("build"))
    options = parser.parse_args()
    torch.set_num_threads(1)
    report: dict[str, object] = {"options": {**vars(options), "out": str(options.out)}}
    print("| tokens | method | seed | left the plateau | test |\n|---|---|---|---|---|")
    for lengths in LENGTHS:
        if lengths[1] > options.longest:
            continue
        for method in options.methods:
            for seed in options.seeds:
                left, test = learn(lengths, method, seed, options)
                tokens = f"{lengths[0]} to {lengths[1]}"
                said = "no" if left is None else f"step {left}"
                print(f"| {tokens} | {method} | {seed} | {said} | {test:.1%} |", flush=True)
                report[f"{tokens}, {method}, {seed}"] = {"left": left, "test": test}
                (options.out / "lra-lengths.json").write_text(json.dumps(report, indent=2), encoding="utf-8")


def learn(lengths: Lengths, method: str, seed: int, options: argparse.Namespace) -> tuple[int | None, float]:
    """The step at which the plateau was left, and accuracy on 2,000 test expressions."""
    run = Run(
        "listops", method, seed, options.steps, options.batch, 0, options.lr, evaluate_every=EVERY, dev_examples=200
    )
    out = options.out / "lra-lengths" / f"{lengths[0]}-{lengths[1]}-{method}-{seed}"
    result = train(TASKS["listops"], make_listops(lengths=lengths), run, out)
    with (out / "log.csv").open(encoding="utf-8") as file:
        losses = {int(row["step"]): float(row["loss"]) for row in csv.DictReader(file)}
    return next((step for step, loss in losses.items() if loss < LEFT), None), result.test_accuracy


if __name__ == "__main__":
    main()
