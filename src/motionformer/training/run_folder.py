"""A run folder belongs to one recipe and its data from its first metrics on, and to one process at a time."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from motionformer.distributed import is_rank_zero
from motionformer.errors import TrainingError
from motionformer.runs import header_differences, lock_folder, write_atomically
from motionformer.training.card import CARD
from motionformer.training.checkpoints import list_checkpoints
from motionformer.training.logs import METRICS
from motionformer.training.recipe import Recipe, load_recipe

CHECKPOINTS = "checkpoints"
_RECIPE = "recipe.yaml"
_MAY_DIFFER = (
    "output",
    "data.root",  # `check_same_data` compares the paths below it
    "data.workers",
    "data.max_failed_share",
    "engine.log_steps",
    "engine.checkpoint_steps",
    "engine.keep",
    "engine.wandb",
)
"""Keys that change neither weights nor steps: a run may resume with other values."""


@contextmanager
def claim_folder(recipe: Recipe) -> Iterator[None]:
    """The run folder with the recipe in it, locked for the processes of this run."""
    with lock_folder(recipe.folder, "training"):
        if is_rank_zero():
            check_same_recipe(recipe)
            write_atomically(recipe.folder / _RECIPE, recipe.to_yaml())
        yield


def has_begun(folder: Path) -> bool:
    """Whether the folder holds anything trained. A recipe alone is that of a run that could not begin."""
    return any((folder / name).exists() for name in (METRICS, CARD)) or bool(list_checkpoints(folder / CHECKPOINTS))


def check_same_recipe(recipe: Recipe) -> None:
    """Two recipes in one folder would make a run that is neither."""
    file = recipe.folder / _RECIPE
    if not (file.exists() and has_begun(recipe.folder)):
        return
    there = load_recipe(file).to_dict()  # keys added since have their defaults
    if differing := header_differences(there, recipe.to_dict(), _MAY_DIFFER):
        raise TrainingError(
            f"{recipe.folder} holds a run of another recipe: {'; '.join(differing)}. Use another output, or remove "
            "the folder."
        )


def check_same_data(folder: Path, then: Mapping[str, Any], now: Mapping[str, Any]) -> None:
    """A run cannot resume with other videos or classes. Both arguments are of `describe_data`."""
    if "classes" not in then:  # written before it was compared
        return
    classes = _changed_classes(then["classes"], now["classes"])
    changes = [*classes, *(change for name in ("train", "val") for change in _changed_videos(name, then, now))]
    if changes:
        raise TrainingError(
            f"{folder}: the videos have changed since this run began: {'; '.join(changes)}. Use another output, or "
            "restore the videos and labels that it began with."
        )


def _changed_videos(name: str, then: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    before, after = then[name], now[name]
    if before["clips"] != after["clips"]:
        return [f"data.{name} had {before['clips']}, now {after['clips']}"]
    if before["fingerprint"] != after["fingerprint"] and then["classes"] == now["classes"]:
        return [f"data.{name} has as many, but with other paths, labels or times"]
    return []


def _changed_classes(then: Any, now: Any) -> list[str]:
    if then == now:
        return []
    before, after = _flat_classes(then), _flat_classes(now)
    gone, new = [name for name in before if name not in after], [name for name in after if name not in before]
    found = [f"{what} {_some(names)}" for what, names in (("without", gone), ("new", new)) if names]
    return [f"other classes ({', '.join(found) or 'in another order'})"]


def _flat_classes(classes: Any) -> list[str]:
    if isinstance(classes, Mapping):
        return [f"{task} {name}" for task, names in classes.items() for name in names]
    return list(classes)


def _some(names: list[str], count: int = 4) -> str:
    return ", ".join(map(repr, names[:count])) + (f" and {len(names) - count} more" if len(names) > count else "")
