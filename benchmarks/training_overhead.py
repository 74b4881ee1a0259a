"""What the engine costs: clips a second of a training run, data loading included, beside the bare loop.

python -m benchmarks.training_overhead --model motionformer-tiny --batch 32 --steps 20 --workers 1 --threads 2

The bare loop is forward, backward, clipping and AdamW on the same clips, made beforehand. Both take turns, round by
round, and the fastest step of each counts as well as the median: on a shared machine the rest is other people's work.
"""

import argparse
import json
import statistics
import tempfile
import time
from itertools import pairwise
from typing import Any

import torch
import torch.nn.functional as F
from lightning.pytorch import Callback
from torch import Tensor, nn

from motionformer.data import Visit
from motionformer.training.datamodule import VideoDataModule, _collate_batch
from motionformer.training.model import build_model
from motionformer.training.module import TrainingModule
from motionformer.training.recipe import Recipe, make_recipe
from motionformer.training.run import Prepared, prepare
from motionformer.training.trainer import make_trainer, quiet_lightning


class Stopwatch(Callback):
    """When each step ended, on the clock."""

    def __init__(self) -> None:
        self.times: list[float] = []

    def on_train_batch_end(self, *args: Any) -> None:
        self.times.append(time.perf_counter())


def main() -> None:
    options = parse_options()
    torch.set_num_threads(options.threads)
    with tempfile.TemporaryDirectory() as folder, quiet_lightning():
        recipe = make_recipe(
            {
                "name": "overhead",
                "model": {"variant": options.model},
                "data": {
                    "train_clips": options.batch * options.steps,
                    "val_clips": 1,
                    "workers": options.workers,
                },
                "optimiser": {"clip_norm": 1.0},
                "schedule": {"kind": "cosine"},
                "engine": {"accelerator": "cpu", "validate_epochs": 2},
                "global_batch": options.batch,
                "epochs": 1,
                "output": folder,
            }
        )
        prepared = prepare(recipe)
        ours: list[float] = []
        bare: list[float] = []
        for _ in range(options.rounds):
            ours += run_ours(recipe, prepared)
            bare += run_bare(recipe, prepared)
    result = {
        "model": options.model,
        "batch": options.batch,
        "workers": options.workers,
        "threads": options.threads,
        "steps_timed": len(ours),
        "clips_per_second": rate(ours, options.batch),
        "clips_per_second_bare": rate(bare, options.batch),
        "overhead_of_medians": round(statistics.median(ours) / statistics.median(bare) - 1, 4),
        "overhead_of_fastest": round(min(ours) / min(bare) - 1, 4),
    }
    print(json.dumps(result, indent=2))


def run_ours(recipe: Recipe, prepared: Prepared) -> list[float]:
    """Seconds of every step of an epoch under the Trainer, the first two left out."""
    watch = Stopwatch()
    module = TrainingModule(_model(recipe, prepared), recipe, prepared.plan)
    clips = VideoDataModule(recipe, prepared.plan, prepared.sources, prepared.config.input)
    trainer = make_trainer(recipe, prepared.plan, [], [watch])
    trainer.fit(module, datamodule=clips)
    return _differences(watch.times)


def run_bare(recipe: Recipe, prepared: Prepared) -> list[float]:
    """The same of a loop that does nothing else."""
    model = _model(recipe, prepared)
    optimiser = torch.optim.AdamW(model.parameters(), lr=prepared.plan.lr)
    times = []
    for clip, label in load(recipe, prepared):
        loss = F.cross_entropy(model(clip), label, label_smoothing=recipe.label_smoothing)
        optimiser.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        times.append(time.perf_counter())
    return _differences(times)


def load(recipe: Recipe, prepared: Prepared) -> list[tuple[Tensor, Tensor]]:
    """All batches of the epoch, in memory."""
    items = prepared.sources[0].training_items(recipe, prepared.config.input)
    size = recipe.global_batch
    made = []
    for i in range(prepared.plan.steps_per_epoch):
        batch = _collate_batch([items[Visit(0, j)] for j in range(i * size, (i + 1) * size)])
        made.append((batch["clip"], batch["label"]))
    return made


def rate(seconds: list[float], batch: int) -> dict[str, float]:
    return {"median": round(batch / statistics.median(seconds), 2), "fastest": round(batch / min(seconds), 2)}


def _model(recipe: Recipe, prepared: Prepared) -> Any:
    return build_model(recipe, prepared.config)[0]


def _differences(times: list[float]) -> list[float]:
    return [after - before for before, after in pairwise(times[1:])]


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="motionformer-tiny")
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--threads", type=int, default=2)
    return parser.parse_args()


if __name__ == "__main__":
    main()
