"""What to train of an image model, with few videos: head, LoRA, adapters, last blocks, everything; accuracy and cost.

    python -m benchmarks.training_choices gestures/ dinov2_vits14_fp16.safetensors --output runs/choices --seeds 0 1 2

A fifth of the videos is held out once, the same for every choice and seed; of the others a seed draws `--clips` of each
class to learn from. Head and adapters are trained on the image model run on every frame (space-only attention); the
others on divided attention, whose layer along time adds nothing until it is trained. The same command resumes, skips
what is finished, and prints the table so far; `--table` only prints.
"""

import argparse
import json
import random
import time
from dataclasses import replace
from pathlib import Path

import torch

from motionformer.data.lists import write_list
from motionformer.finetuning import finetune
from motionformer.finetuning.split import open_splits
from motionformer.inference.metrics import wilson

CHOICES = {
    "head, class token": {"train": "head", "readout": "class"},
    "trajectory adapter, class token": {"train": "adapter:trajectory", "readout": "class"},
    "joint adapter, class token": {"train": "adapter:joint", "readout": "class"},
    "divided adapter, class token": {"train": "adapter:divided", "readout": "class"},
    "LoRA 8, class token": {"train": "lora:8", "readout": "class"},
    "last 4 blocks, class token": {"train": "last:4", "readout": "class"},
    "everything, class token": {"train": "all", "readout": "class"},
    "head, motion": {"train": "head", "readout": "motion"},
    "trajectory adapter, motion": {"train": "adapter:trajectory", "readout": "motion"},
    "joint adapter, motion": {"train": "adapter:joint", "readout": "motion"},
    "divided adapter, motion": {"train": "adapter:divided", "readout": "motion"},
    "LoRA 8, motion": {"train": "lora:8", "readout": "motion"},
    "last 4 blocks, motion": {"train": "last:4", "readout": "motion"},
    "everything, motion": {"train": "all", "readout": "motion"},
}
"""What is trained, and what the head sees."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("videos", type=Path)
    parser.add_argument("weights")
    parser.add_argument("--output", type=Path, default=Path("runs/choices"))
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--clips", type=int, default=20, help="training videos of each class")
    parser.add_argument("--size", type=int, default=56)
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--batch-size", type=int, default=10)
    parser.add_argument("--choices", nargs="+", default=list(CHOICES), choices=list(CHOICES), metavar="NAME")
    parser.add_argument("--table", action="store_true", help="print what is finished")
    args = parser.parse_args()
    torch.set_num_threads(1)
    if not args.table:
        for seed in args.seeds:
            lists = write_lists(args.videos, args.output / f"lists-{args.clips}-{seed}", args.clips, seed)
            for name in args.choices:
                run(name, seed, lists, args)
                print(f"{name}, seed {seed}: done", flush=True)
    print_table(args)


def write_lists(videos: Path, folder: Path, clips: int, seed: int) -> Path:
    """`train.csv` and `val.csv` of a seed; the second is the same for every seed."""
    train, val = open_splits(videos, 0.2, 0, "error")
    folder.mkdir(parents=True, exist_ok=True)
    records = list(train.records)
    random.Random(seed).shuffle(records)
    taken: dict[object, int] = {}
    few = []
    for record in records:
        taken[record.label] = taken.get(record.label, 0) + 1
        if taken[record.label] <= clips:
            few.append(record)
    write_list(replace(train, records=tuple(few)), folder / "train.csv")
    write_list(val, folder / "val.csv")
    return folder


def run_folder(name: str, seed: int, args: argparse.Namespace) -> Path:
    return args.output / f"{name.replace(', ', '-').replace(' ', '-')}-{args.clips}-{args.size}-{seed}"


def run(name: str, seed: int, lists: Path, args: argparse.Namespace) -> None:
    folder = run_folder(name, seed, args)
    done, before = folder / "cpu.json", time.process_time()
    if done.exists():
        return
    resumed = folder.exists()
    finetune(
        lists,
        folder,
        init_from=args.weights,
        attention="space" if CHOICES[name]["train"].startswith(("head", "adapter")) else "divided",
        size=args.size,
        epochs=args.epochs,
        batch_size=args.batch_size,
        seed=seed,
        num_workers=0,  # so that the processor time is that of everything
        device="cpu",
        overrides=[f"engine.validate_epochs={args.epochs}"],
        quiet=True,
        **CHOICES[name],
    )
    seconds = None if resumed else time.process_time() - before
    done.write_text(json.dumps({"cpu_seconds": seconds}), encoding="utf-8")


def print_table(args: argparse.Namespace) -> None:
    print(f"{args.clips} videos of each class, {args.size} px, {args.epochs} epochs of {args.batch_size} clips a step")
    print("| trained, head on | top-1, % by seed | all seeds (95 % CI) | trained M | CPU seconds |")
    print("|---|---|---|---|---|")
    for name in args.choices:
        found = [run_folder(name, seed, args) for seed in args.seeds]
        found = [folder for folder in found if (folder / "cpu.json").exists()]
        if not found:
            continue
        cards = [json.loads((folder / "card.json").read_text()) for folder in found]
        seconds = [json.loads((folder / "cpu.json").read_text())["cpu_seconds"] for folder in found]
        count = cards[0]["plan"]["val_clips"]
        right = [round(card["results"]["kept"]["top1"] * count) for card in cards]
        low, high = wilson(sum(right), count * len(right))
        shares = " · ".join(f"{100 * one / count:.1f}" for one in right)
        total = f"{100 * sum(right) / count / len(right):.1f} ({100 * low:.1f}–{100 * high:.1f})"
        trained = cards[0]["model"].get("trainable", 0) / 1e6
        cost = " · ".join("resumed" if one is None else f"{one:.0f}" for one in seconds)
        print(f"| {name} | {shares} | {total} | {trained:.2f} | {cost} |")


if __name__ == "__main__":
    main()
