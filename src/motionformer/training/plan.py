"""What follows from a recipe and the devices found. The recipe says the global batch; this says who does which part.

`lr = optimiser.lr × global_batch / optimiser.lr_batch`: the learning rate goes in proportion to the batch. Knows
nothing of Lightning.
"""

from dataclasses import asdict, dataclass
from typing import Any

from motionformer.errors import RecipeError
from motionformer.training.recipe import Recipe


@dataclass(frozen=True)
class Plan:
    """The derived numbers of a run; the run card records them."""

    processes: int
    clips_at_once: int  # of one process
    accumulation: int  # how often that makes one optimiser step
    lr: float
    train_clips: int
    val_clips: int
    steps_per_epoch: int
    total_steps: int
    warmup_steps: int

    def position(self, step: int) -> tuple[int, int]:
        """The epoch that comes after `step` optimiser steps, and how many of its own it has had."""
        return divmod(step, self.steps_per_epoch)

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def make_plan(recipe: Recipe, processes: int, train_clips: int, val_clips: int) -> Plan:
    """Deal the global batch to `processes`, and count steps. The last clips of an epoch that make no whole global
    batch are left out (others each epoch)."""
    share = _share(recipe, processes)
    clips_at_once = _largest_divisor(share, recipe.engine.max_clips or share)
    visits = train_clips * recipe.augmentation.repeats
    steps = visits // recipe.global_batch
    if steps == 0:
        raise RecipeError(
            f"recipe {recipe.name!r}: {visits} training clips an epoch are less than one global batch of "
            f"{recipe.global_batch}. Use global_batch={visits} or less, or more clips."
        )
    return Plan(
        processes=processes,
        clips_at_once=clips_at_once,
        accumulation=share // clips_at_once,
        lr=recipe.optimiser.lr * recipe.global_batch / recipe.optimiser.lr_batch,
        train_clips=train_clips,
        val_clips=val_clips,
        steps_per_epoch=steps,
        total_steps=steps * recipe.epochs,
        warmup_steps=round(recipe.schedule.warmup * steps),
    )


def _share(recipe: Recipe, processes: int) -> int:
    share, rest = divmod(recipe.global_batch, processes)
    if rest == 0:
        return share
    near = [n * processes for n in (share, share + 1) if n]
    raise RecipeError(
        f"recipe {recipe.name!r}: global_batch={recipe.global_batch} cannot be dealt evenly to {processes} processes. "
        f"Use global_batch={' or '.join(map(str, near))}, or another number of devices (engine.devices, engine.nodes)."
    )


def _largest_divisor(number: int, limit: int) -> int:
    """Equal parts: what a process does at once divides its share."""
    return max(part for part in range(1, min(number, limit) + 1) if number % part == 0)
