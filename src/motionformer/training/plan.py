"""What follows from a recipe and the devices: the plan of a run, its learning-rate schedule and its optimiser.

`lr = optimiser.lr × global_batch / optimiser.lr_batch`: the learning rate scales with the batch. Does not import
Lightning.
"""

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import nn

from motionformer.errors import RecipeError
from motionformer.models.motionformer import Motionformer
from motionformer.training.recipe import OptimiserPart, Recipe, SchedulePart


@dataclass(frozen=True)
class Plan:
    """The derived numbers of a run; the run card records them."""

    processes: int
    clips_at_once: int  # per process
    accumulation: int  # batches per optimiser step
    lr: float
    train_clips: int
    val_clips: int
    steps_per_epoch: int
    total_steps: int
    warmup_steps: int

    def position(self, step: int) -> tuple[int, int]:
        """The epoch that follows `step` optimiser steps, and how many of its own steps are done."""
        return divmod(step, self.steps_per_epoch)

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def make_plan(recipe: Recipe, processes: int, train_clips: int, val_clips: int) -> Plan:
    """Divide the global batch among `processes`, and count steps. An incomplete last batch of an epoch is dropped."""
    share, rest = divmod(recipe.global_batch, processes)
    if rest:
        near = [n * processes for n in (share, share + 1) if n]
        raise RecipeError(
            f"recipe {recipe.name!r}: `global_batch` ({recipe.global_batch}) must be divisible by the number of "
            f"processes ({processes}). Use global_batch={' or '.join(map(str, near))}, or another number of devices "
            "(engine.devices, engine.nodes)."
        )
    limit = min(share, recipe.engine.max_clips or share)
    clips_at_once = max(part for part in range(1, limit + 1) if share % part == 0)
    visits = train_clips * recipe.augmentation.repeats
    steps = visits // recipe.global_batch
    if steps == 0:
        raise RecipeError(
            f"recipe {recipe.name!r}: {visits} training clips per epoch are less than one global batch of "
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


def make_schedule(part: SchedulePart, plan: Plan) -> Callable[[int], float]:
    """`factor(step)` on the learning rate: a pure function of the optimiser step, with nothing to save or restore."""
    boundaries = [round(epoch * plan.steps_per_epoch) for epoch in part.milestones]
    length = plan.total_steps - plan.warmup_steps

    def factor(step: int) -> float:
        if step < plan.warmup_steps:
            return (step + 1) / plan.warmup_steps
        if part.kind == "step":
            return part.divisor ** -sum(step >= boundary for boundary in boundaries)
        done = min(1.0, (step - plan.warmup_steps) / length)
        return part.final + (1 - part.final) * (1 + math.cos(math.pi * done)) / 2

    return factor


def make_optimiser(
    model: Motionformer, part: OptimiserPart, lr: float, new: frozenset[str] = frozenset()
) -> torch.optim.AdamW:
    """AdamW over the trainable parameters; `lr` is already scaled to the batch, `new` are newly initialised ones."""
    first, second = part.betas
    return torch.optim.AdamW(_parameter_groups(model, part, lr, new), lr=lr, betas=(first, second))


def _parameter_groups(
    model: Motionformer, part: OptimiserPart, lr: float, new: frozenset[str] = frozenset()
) -> list[dict[str, Any]]:
    """One group per learning rate and decay, in the order of the layers. Newly initialised parameters have
    `new_rate` times the learning rate, in any layer."""
    groups: dict[tuple[int, bool, bool], dict[str, Any]] = {}
    top = len(model.blocks) + 1
    for name, weight in model.named_parameters():
        if not weight.requires_grad:
            continue
        is_new = name in new and part.new_rate != 1.0
        layer = _layer_of(name, top) if part.layer_decay < 1 and not is_new else top
        decays = part.decay_everything or _decays_by_default(name, weight)
        group = groups.setdefault(
            (layer, decays, is_new),
            {
                "params": [],
                "lr": lr * part.layer_decay ** (top - layer) * (part.new_rate if is_new else 1.0),
                "weight_decay": part.weight_decay if decays else 0.0,
            },
        )
        group["params"].append(weight)
    return [groups[key] for key in sorted(groups)]


def _decays_by_default(name: str, weight: nn.Parameter) -> bool:
    """Matrices and kernels decay; biases, norms, tokens and position embeddings do not."""
    return weight.ndim > 1 and not name.startswith(("prefix", "positions."))


def _layer_of(name: str, top: int) -> int:
    """0 for tokens and positions, i + 1 for block i, `top` for the final norm and the head."""
    if name.startswith("blocks."):
        return int(name.split(".")[1]) + 1
    return 0 if name.startswith(("tokens.", "prefix", "positions.")) else top
