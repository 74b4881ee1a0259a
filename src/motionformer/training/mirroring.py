"""What mirroring does to the classes of a run, in words: a wrong guess costs accuracy and is seen nowhere else."""

from collections.abc import Mapping

from motionformer.data.record import ClassNames
from motionformer.training.recipe import AugmentationPart
from motionformer.video.transforms import LabelAwareFlip

MOST = 4
"""Pairs that are named."""


def describe_mirroring(part: AugmentationPart, names: ClassNames) -> str:
    """Which classes a mirrored clip changes into others, as far as their names tell."""
    if not part.flip:
        return "never"
    as_they_are = "every class as itself (augmentation.flip=0 if sides matter)"
    if not part.flip_by_name or isinstance(names, Mapping):
        return as_they_are
    flip = LabelAwareFlip(names, part.flip)
    if flip.without_twin:
        return f"never: no class is the mirror image of {_some([repr(name) for name in flip.without_twin])}"
    if not flip.pairs:
        return as_they_are
    others = ", others as themselves" if 2 * len(flip.pairs) < len(names) else ""
    return _some([f"{here} ↔ {there}" for here, there in flip.pairs]) + others


def _some(words: list[str]) -> str:
    return ", ".join(words[:MOST]) + (f" and {len(words) - MOST} more" if len(words) > MOST else "")
