"""The learning rate as a pure function of the optimiser step: nothing to save, nothing to get wrong on resuming."""

import math
from collections.abc import Callable

from motionformer.training.plan import Plan
from motionformer.training.recipe import SchedulePart


def make_schedule(part: SchedulePart, plan: Plan) -> Callable[[int], float]:
    """`factor(step)`, by which the learning rate is multiplied in the step that comes after `step` others."""
    after_warmup = _SHAPES[part.kind](part, plan)

    def factor(step: int) -> float:
        if step < plan.warmup_steps:
            return (step + 1) / plan.warmup_steps
        return after_warmup(step)

    return factor


def _step(part: SchedulePart, plan: Plan) -> Callable[[int], float]:
    boundaries = [round(epoch * plan.steps_per_epoch) for epoch in part.milestones]
    return lambda step: part.divisor ** -sum(step >= boundary for boundary in boundaries)


def _cosine(part: SchedulePart, plan: Plan) -> Callable[[int], float]:
    length = plan.total_steps - plan.warmup_steps

    def factor(step: int) -> float:
        done = min(1.0, (step - plan.warmup_steps) / length)
        return part.final + (1 - part.final) * (1 + math.cos(math.pi * done)) / 2

    return factor


_SHAPES = {"step": _step, "cosine": _cosine}
