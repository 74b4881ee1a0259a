"""Training and validation clips as a LightningDataModule, in our own order of batches.

The global batch of a step is the same for any number of processes, and the position in the data follows from the number
of optimiser steps done, so there is nothing to save. Lightning sets a sampler's epoch too late for loader workers of a
resumed run; here the epoch comes from the step, and travels to the workers in each `Visit`.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
import torch
from lightning.pytorch import LightningDataModule
from torch import Tensor
from torch.utils.data import DataLoader, Sampler

from motionformer.data import collate_clips
from motionformer.data.datasets import EpochSampler, Visit
from motionformer.distributed import Rank
from motionformer.errors import RecipeError
from motionformer.models.config import InputSpec
from motionformer.stopping import keep_from_signals
from motionformer.training.recipe import Recipe
from motionformer.training.sources import Items, Source
from motionformer.training.trainer import Plan

Batch = dict[str, Any]
Order = Callable[[int, int], list[int]]
"""Indices of all training clips, each once, as a function of seed and epoch alone."""


class VideoDataModule(LightningDataModule):
    """The loaders of a run. The Trainer must not add samplers (`use_distributed_sampler=False`)."""

    def __init__(self, recipe: Recipe, plan: Plan, sources: tuple[Source, Source], spec: InputSpec) -> None:
        super().__init__()
        self.recipe, self.plan = recipe, plan
        self.order = _order(recipe, sources[0])
        self.train_items = sources[0].training_items(recipe, spec)
        self.val_items = sources[1].validation_items(recipe, spec)

    def train_dataloader(self) -> DataLoader[Batch]:
        trainer: Any = self.trainer
        return self._loader(
            self.train_items,
            _TrainBatches(
                self.plan,
                self.order,
                Rank(trainer.global_rank, trainer.world_size),
                self.recipe.seed,
                self.recipe.augmentation.repeats,
                steps_done=lambda: trainer.global_step,
            ),
        )

    def val_dataloader(self) -> DataLoader[Batch]:
        trainer: Any = self.trainer
        rank = Rank(trainer.global_rank, trainer.world_size)
        return self._loader(self.val_items, _ValBatches(self.plan.val_clips, self.plan.clips_at_once, rank))

    def transfer_batch_to_device(self, batch: Batch, device: torch.device, dataloader_idx: int) -> Batch:
        """Indices, paths and failures stay: nothing computes with them."""
        return {**batch, **{key: _to(batch[key], device) for key in ("clip", "label")}}

    def _loader(self, items: Items, batches: "_TrainBatches | _ValBatches") -> DataLoader[Batch]:
        workers = self.recipe.data.workers
        return DataLoader(
            items,
            batch_sampler=batches,
            num_workers=workers,
            collate_fn=_collate_batch,
            persistent_workers=workers > 0,
            pin_memory=torch.cuda.is_available(),
            worker_init_fn=keep_from_signals,
        )


def _collate_batch(items: list[dict[str, Any]]) -> Batch:
    """`collate_clips` with failures as plain values: Lightning traverses batches and fails on frozen dataclasses."""
    batch = collate_clips(items)
    return {**batch, "failed": [asdict(failure) for failure in batch["failed"]]}


def _to(value: Any, device: torch.device) -> Any:
    if isinstance(value, dict):  # labels by task
        return {task: _to(label, device) for task, label in value.items()}
    return value.to(device, non_blocking=True) if isinstance(value, Tensor) else value


def _order(recipe: Recipe, source: Source) -> Order:
    if recipe.data.order == "shuffled":
        return _shuffled(len(source))
    labels = [label for label in source.labels if isinstance(label, int)]
    if len(labels) != len(source):
        raise RecipeError(f"recipe {recipe.name!r}: data.order=stratified needs one class per video; use shuffled.")
    return _stratified(labels)


def _shuffled(num_clips: int) -> Order:
    def order(seed: int, epoch: int) -> list[int]:
        sampler = EpochSampler(num_clips, shuffle=True, seed=seed)
        sampler.set_epoch(epoch)
        return [visit.index for visit in sampler]

    return order


def _stratified(labels: Sequence[int]) -> Order:
    """Shuffled within each class, and the classes spread evenly: every stretch has the class proportions of the whole.

    Small batches of few classes otherwise differ most in their class counts, and an untrained model learns that first.
    """

    def order(seed: int, epoch: int) -> list[int]:
        rng = np.random.default_rng([seed, epoch])
        classes = np.asarray(labels)
        position = np.empty(len(classes))
        for label in np.unique(classes):
            members = rng.permutation(np.flatnonzero(classes == label))
            position[members] = (np.arange(len(members)) + rng.random()) / len(members)
        return [int(index) for index in position.argsort(kind="stable")]

    return order


class _TrainBatches(Sampler[list[Visit]]):
    """This process's part of every batch of the current epoch, from the optimiser step that `steps_done()` returns.

    The length is that of the whole epoch: Lightning counts the batches of a resumed epoch from its beginning. A
    repeated video comes `repeats` times in a row, each with its own draw of the augmentation (the epoch of a `Visit` is
    only a key of that draw).
    """

    def __init__(
        self, plan: Plan, order: Order, rank: Rank, seed: int, repeats: int, steps_done: Callable[[], int]
    ) -> None:
        self.plan, self.order, self.rank = plan, order, rank
        self.seed, self.repeats, self.steps_done = seed, repeats, steps_done

    def __len__(self) -> int:
        return self.plan.steps_per_epoch * self.plan.accumulation

    def __iter__(self) -> Iterator[list[Visit]]:
        epoch, steps = self.plan.position(self.steps_done())
        copies = range(epoch * self.repeats, (epoch + 1) * self.repeats)
        visits = [Visit(copy, index) for index in self.order(self.seed, epoch) for copy in copies]
        size = self.plan.clips_at_once * self.rank.world_size
        first = steps * self.plan.accumulation
        return iter([self.rank.share(visits[i * size : (i + 1) * size]) for i in range(first, len(self))])


class _ValBatches(Sampler[list[Visit]]):
    """This process's part of the validation clips, each clip in exactly one process. All processes get equally many
    batches (the last may be empty), because some strategies communicate in every forward pass."""

    def __init__(self, num_clips: int, batch: int, rank: Rank) -> None:
        self.num_clips, self.batch, self.rank = num_clips, batch, rank

    def __len__(self) -> int:
        largest_share = -(-self.num_clips // self.rank.world_size)
        return -(-largest_share // self.batch)

    def __iter__(self) -> Iterator[list[Visit]]:
        sampler = EpochSampler(self.num_clips, shuffle=False, rank=self.rank.rank, num_ranks=self.rank.world_size)
        visits = list(sampler)
        return iter([visits[i * self.batch : (i + 1) * self.batch] for i in range(len(self))])
