"""Real ListOps for as many steps as fit: exact attention against Orthoformer-64, same batches, same seed.

python -m benchmarks.lra_listops                  # writes build/lra-listops.json and the runs' own logs

The published run is 5,000 steps of 32 sequences (`motionformer lra train listops --attend …`). This one is a small part
of it at a higher learning rate: it shows that the pieces work together and what a step costs, not who is better.
"""

import argparse
import json
import time
from collections import Counter
from pathlib import Path

import torch

from motionformer.lra import Run, Splits, find_task, train
from motionformer.lra.examples import Examples
from motionformer.lra.listops import ListOps


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=240)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--attends", nargs="+", default=["exact", "orthoformer-64"])
    parser.add_argument("--dev", type=int, default=200)
    parser.add_argument("--test", type=int, default=400)
    parser.add_argument("--out", type=Path, default=Path("build"))
    options = parser.parse_args()
    torch.set_num_threads(1)
    splits = Splits(ListOps("train"), ListOps("val", options.dev), ListOps("test", options.test))
    majority = most_frequent(splits.test)
    print(f"always the most frequent class: {majority:.1%} of test", flush=True)
    report: dict[str, object] = {"options": {**vars(options), "out": str(options.out)}, "majority": majority}
    for attend in options.attends:
        run = Run(
            "listops",
            attend,
            options.seed,
            options.steps,
            options.batch,
            lr=options.lr,
            evaluate_every=max(1, options.steps // 4),
        )
        started, rows = time.process_time(), []
        result = train(
            find_task("listops"),
            splits,
            run,
            options.out / f"lra-listops-{attend}-{options.seed}",
            report=lambda step, row, rows=rows: rows.append({"step": step, **row}),
        )
        seconds = time.process_time() - started
        print(
            f"{attend}: {result.test_accuracy:.1%} of test, {result.dev_accuracy:.1%} of development at step "
            f"{result.best_step}; {seconds:.0f} s of CPU time, evaluation included",
            flush=True,
        )
        report[attend] = {
            "test": result.test_accuracy,
            "dev": result.dev_accuracy,
            "cpu_seconds": seconds,
            "rows": rows,
        }
        (options.out / "lra-listops.json").write_text(json.dumps(report, indent=2), encoding="utf-8")


def most_frequent(examples: Examples) -> float:
    counts = Counter(examples[i].label for i in range(len(examples)))
    return max(counts.values()) / len(examples)


if __name__ == "__main__":
    main()
