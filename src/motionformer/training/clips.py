"""The clips of a run as Lightning wants them: a DataModule over our data sets and our own order of batches.

The Trainer is told not to put samplers of its own in their place (`use_distributed_sampler=False`).
"""

from dataclasses import asdict
from typing import Any

import torch
from lightning.pytorch import LightningDataModule
from torch import Tensor
from torch.utils.data import DataLoader

from motionformer.data import Failure, collate_clips
from motionformer.errors import RecipeError
from motionformer.models.config import InputSpec
from motionformer.training.order import Order, Place, Shuffled, TakingTurns, TrainBatches, ValBatches
from motionformer.training.plan import Plan
from motionformer.training.recipe import Recipe
from motionformer.training.sources import Items, Source

Batch = dict[str, Any]


class Clips(LightningDataModule):
    """Training batches in the order of `TrainBatches`, validation batches in that of the list."""

    def __init__(self, recipe: Recipe, plan: Plan, sources: tuple[Source, Source], spec: InputSpec) -> None:
        super().__init__()
        self.recipe, self.plan = recipe, plan
        self.order = _order(recipe, sources[0])
        self.train_items = sources[0].training_items(recipe, spec)
        self.val_items = sources[1].validation_items(recipe, spec)

    def train_dataloader(self) -> DataLoader[Batch]:
        trainer = _required(self.trainer)
        batches = TrainBatches(
            self.plan,
            self.order,
            self._place(),
            self.recipe.seed,
            self.recipe.augmentation.repeats,
            steps_done=lambda: trainer.global_step,
        )
        return self._loader(self.train_items, batches)

    def val_dataloader(self) -> DataLoader[Batch]:
        return self._loader(self.val_items, ValBatches(self.plan.val_clips, self.plan.clips_at_once, self._place()))

    def transfer_batch_to_device(self, batch: Batch, device: torch.device, dataloader_idx: int) -> Batch:
        """Clips and labels move; indices, paths and failures are for people."""
        return {**batch, "clip": _to(batch["clip"], device), "label": _to(batch["label"], device)}

    def _place(self) -> Place:
        trainer = _required(self.trainer)
        return Place(trainer.global_rank, trainer.world_size)

    def _loader(self, items: Items, batches: TrainBatches | ValBatches) -> DataLoader[Batch]:
        workers = self.recipe.data.workers
        return DataLoader(
            items,
            batch_sampler=batches,
            num_workers=workers,
            collate_fn=collate_batch,
            persistent_workers=workers > 0,
            pin_memory=torch.cuda.is_available(),
        )


def collate_batch(items: list[dict[str, Any]]) -> Batch:
    """`collate_clips` with failures as plain values: Lightning walks through batches and refuses frozen dataclasses."""
    batch = collate_clips(items)
    return {**batch, "failed": [asdict(failure) for failure in batch["failed"]]}


def failures_of(batch: Batch) -> list[Failure]:
    return [Failure(**values) for values in batch["failed"]]


def _order(recipe: Recipe, source: Source) -> Order:
    if recipe.data.order == "shuffled":
        return Shuffled(len(source))
    labels = [label for label in source.labels if isinstance(label, int)]
    if len(labels) != len(source):
        raise RecipeError(f"recipe {recipe.name!r}: data.order=turns needs one class a video; use shuffled.")
    return TakingTurns(labels)


def _to(value: Any, device: torch.device) -> Any:
    if isinstance(value, Tensor):
        return value.to(device, non_blocking=True)
    return {task: label.to(device, non_blocking=True) for task, label in value.items()} if value is not None else None


def _required(trainer: Any) -> Any:
    assert trainer is not None, "the trainer asks for its loaders; nobody else does"
    return trainer
