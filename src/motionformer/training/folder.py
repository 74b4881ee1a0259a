"""A run's folder belongs to one recipe and its data from its first numbers on, and to one process at a time."""

import fcntl
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from motionformer.errors import TrainingError
from motionformer.runs import write_atomically
from motionformer.training.card import CARD
from motionformer.training.checkpoints import explain_disk, list_checkpoints
from motionformer.training.logs import METRICS
from motionformer.training.recipe import Recipe, load_recipe
from motionformer.training.trainer import is_first_process

RECIPE, CHECKPOINTS = "recipe.yaml", "checkpoints"
MAY_DIFFER = (
    "output",
    "data.root",
    "data.workers",
    "data.max_failed_share",
    "engine.log_steps",
    "engine.checkpoint_steps",
    "engine.keep",
    "engine.wandb",
)
"""Keys that change no weight, nor what a step is: a run may go on with others. `refuse_other_data` looks at what lies
below the root."""


@contextmanager
def claim_folder(recipe: Recipe) -> Iterator[None]:
    """The folder with the recipe in it, for this run alone. Of several processes the first claims it for all."""
    with alone_in(recipe.folder):
        if is_first_process():
            refuse_other_recipe(recipe)
            write_atomically(recipe.folder / RECIPE, recipe.to_yaml())
        yield


@contextmanager
def alone_in(folder: Path) -> Iterator[None]:
    """The folder, made where it is not there, for the processes of one run. Not to be nested: the inner one's end
    would be that of the outer one too."""
    if not is_first_process():
        yield
        return
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = (folder / ".lock").open("w")
    except OSError as error:
        raise explain_disk(error, folder) from error
    with lock as stream:
        try:
            # a lock of the process: gone when it is killed, and not inherited by loader workers that outlive it
            fcntl.lockf(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise TrainingError(
                f"{folder}: another process is training here; wait for it, or use another output."
            ) from error
        yield


def has_begun(folder: Path) -> bool:
    """Whether a run has left anything that was trained here. A recipe alone is that of a run that could not begin."""
    return any((folder / name).exists() for name in (METRICS, CARD)) or bool(list_checkpoints(folder / CHECKPOINTS))


def refuse_other_recipe(recipe: Recipe) -> None:
    """Two recipes in one folder would make a run that is neither."""
    file = recipe.folder / RECIPE
    if not (file.exists() and has_begun(recipe.folder)):
        return
    there, here = _flat(load_recipe(file).to_dict()), _flat(recipe.to_dict())  # an option added since has its default
    differing = [
        f"{key} (there {there.get(key)!r}, now {here.get(key)!r})"
        for key in sorted({*there, *here})
        if there.get(key) != here.get(key) and key not in MAY_DIFFER
    ]
    if differing:
        raise TrainingError(
            f"{recipe.folder} holds a run of another recipe: {'; '.join(differing)}. Use another output, or remove "
            "the folder."
        )


def refuse_other_data(folder: Path, then: Mapping[str, Any], now: Mapping[str, Any]) -> None:
    """With other videos or classes under the same recipe, what was learnt so far would mean something else.

    Both are of `describe_data`. One without classes was not written to be compared, and is taken as it is.
    """
    if "classes" not in then:
        return
    classes = _changed_classes(then["classes"], now["classes"])
    changes = [*classes, *(change for name in ("train", "val") for change in _changed_videos(name, then, now))]
    if changes:
        raise TrainingError(
            f"{folder}: the videos are others than when this run began: {'; '.join(changes)}. Use another output, or "
            "give the run the videos and labels that it began with."
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


def _flat(values: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in values.items():
        flat |= _flat(value, f"{prefix}{key}.") if isinstance(value, dict) and value else {f"{prefix}{key}": value}
    return flat
