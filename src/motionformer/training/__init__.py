"""A recipe becomes a trained model: recipe → plan → Lightning's Trainer, configured and not re-implemented.

    from motionformer.training import load_recipe, train
    finished = train(load_recipe("motion/easy", ["seed=1"]))

Start reading in `run.py`. Lightning is imported when `train` is first used.
"""

from typing import TYPE_CHECKING, Any

from motionformer.training.recipe import Recipe, load_recipe, make_recipe, write_recipe

if TYPE_CHECKING:
    from motionformer.training.run import FinishedRun as FinishedRun
    from motionformer.training.run import train as train

__all__ = ["FinishedRun", "Recipe", "load_recipe", "make_recipe", "train", "write_recipe"]


def __getattr__(name: str) -> Any:
    if name not in ("FinishedRun", "train"):
        raise AttributeError(f"module 'motionformer.training' has no attribute {name!r}")
    from motionformer.training import run

    return getattr(run, name)
