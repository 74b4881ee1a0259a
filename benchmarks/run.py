"""`make benchmark`: every comparison at 1 and 2 threads, as a table and JSON in build/."""

import argparse
import json
import platform
from pathlib import Path

import torch
from rich.console import Console

from benchmarks.attention import Row, layer, models, selection
from benchmarks.memory import training_step_bytes
from motionformer.models import model_config


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3, help="runs of each contestant; the best counts")
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--only", nargs="+", default=["layer", "models", "selection", "memory"])
    parser.add_argument("--out", type=Path, default=Path("build"))
    words = parser.parse_args()
    torch.manual_seed(0)
    console = Console(width=150, highlight=False)
    rows: list[Row] = []
    parts = {"layer": layer, "models": models, "selection": selection}
    for threads in words.threads:
        torch.set_num_threads(threads)
        for name in words.only:
            for row in parts[name](threads, words.rounds) if name in parts else ():
                rows.append(row)
                console.print(_line(row))
    memory = {}
    if "memory" in words.only:
        for how in ("literal", "ours", "recompute"):
            memory[how] = training_step_bytes(model_config("motionformer-base"), how)
        memory["joint"] = training_step_bytes(model_config("joint-base"))
        console.print(_memory_lines(memory))
    words.out.mkdir(parents=True, exist_ok=True)
    machine = f"{platform.processor() or platform.machine()}, torch {torch.__version__}"
    (words.out / "benchmark.md").write_text(_page(rows, memory, machine), encoding="utf-8")
    report = {"machine": machine, "rows": [row.as_dict() for row in rows], "memory": memory}
    (words.out / "benchmark.json").write_text(json.dumps(report, indent=2), encoding="utf-8")
    console.print(f"written: {words.out / 'benchmark.md'}, {words.out / 'benchmark.json'}")


def _line(row: Row) -> str:
    if row.what.startswith("base forward, share"):
        return f"| {row.what} | {row.threads} | {row.other:.0f} GFLOP/s | | | {row.ratio:.0%} | |"
    work = "" if row.gmacs_ours is None else f"{row.gmacs_ours:.1f} / {row.gmacs_other:.1f}"
    speeds = f"{row.ours:.3f} s | {row.other:.3f} s"
    return f"| {row.what} | {row.threads} | {speeds} | {work} | {row.ratio:.2f}× | {row.target} |"


def _memory_lines(memory: dict[str, int]) -> str:
    base = memory["literal"]
    lines = [f"| {how} | {size / 1e6:,.0f} MB | {size / base:.2f}× |" for how, size in memory.items()]
    return "\n".join(lines)


def _page(rows: list[Row], memory: dict[str, int], machine: str) -> str:
    columns = ("what", "threads", "ours", "other", "G multiply-adds, ours / other", "ratio", "target")
    head = f"| {' | '.join(columns)} |\n{'|---' * len(columns)}|"
    page = [f"Measured on {machine}.", "", head, *(_line(row) for row in rows)]
    if memory:
        page += ["", "| training step of the base model | beyond weights and gradients | of literal (target ≤ 0.45×) |"]
        page += ["|---|---|---|", _memory_lines(memory)]
    return "\n".join(page) + "\n"


if __name__ == "__main__":
    main()
