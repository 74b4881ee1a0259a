"""A recipe becomes a trained model: recipe → plan → Lightning's Trainer, configured and not re-implemented."""

from motionformer.training.recipe import Recipe, load_recipe, make_recipe, write_recipe

__all__ = ["Recipe", "load_recipe", "make_recipe", "write_recipe"]
