"""A recipe becomes a trained model: recipe → plan → Lightning's Trainer → run folder.

    from motionformer.training import train
    result = train("motion/easy", ["seed=1"])

Start reading in `run.py`. Lightning is imported when `train` is first used.
"""

from typing import TYPE_CHECKING, Any

from motionformer.training.recipe import Recipe, load_recipe, make_recipe

if TYPE_CHECKING:
    from motionformer.training.run import TrainingResult as TrainingResult
    from motionformer.training.run import train as train

__all__ = ["Recipe", "TrainingResult", "load_recipe", "make_recipe", "train"]


def __getattr__(name: str) -> Any:
    if name not in ("TrainingResult", "train"):
        raise AttributeError(f"module 'motionformer.training' has no attribute {name!r}")
    from motionformer.training import run

    return getattr(run, name)
