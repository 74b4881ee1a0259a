"""A folder of videos becomes a trained model: look, split, decide, train.

`finetune` splits, writes the two lists and the recipe into the run's folder, and trains; `motionformer train` on that
recipe is the same run. `advice.py` decides what to train.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

import torch

from motionformer.data import open_dataset
from motionformer.data.class_folders import split_folders
from motionformer.data.recognise import recognise
from motionformer.data.record import Annotations, Record
from motionformer.errors import RecipeError, VideoError
from motionformer.models.config import ScoringKind
from motionformer.training.advice import TRAIN_LIST, VAL_LIST, Hardware, VideoFacts, Wishes, finetune_recipe
from motionformer.training.recipe import Recipe, make_recipe
from motionformer.training.splits import split_by_class, split_multi_label, write_list
from motionformer.video import open_video
from motionformer.video.metadata import VideoMetadata

if TYPE_CHECKING:
    from motionformer.training.run import FinishedRun

PLACES = ("name=", "output=", "data.train=", "data.val=")
"""What an override may not begin with."""
PROBED = 12
"""Videos that are looked at to learn their length and size."""


@dataclass(frozen=True)
class FineTuning:
    """Everything decided, nothing yet written."""

    recipe: Recipe
    train: Annotations
    val: Annotations
    facts: VideoFacts
    hardware: Hardware


def finetune(folder: str | Path, wishes: Wishes | None = None, overrides: Sequence[str] = ()) -> "FinishedRun":
    """Train a model on a folder of class folders or a list; the run's folder holds what is needed to repeat it."""
    from motionformer.training.run import train

    planned = plan_finetune(folder, wishes or Wishes(), overrides)
    write_lists(planned)
    return train(planned.recipe)


def plan_finetune(
    folder: str | Path,
    wishes: Wishes,
    overrides: Sequence[str] = (),
    hardware: Hardware | None = None,
) -> FineTuning:
    """Look at the videos and the machine, and decide. `overrides` change any key of the recipe but where it lies."""
    placed = [override for override in overrides if override.startswith(PLACES)]
    if placed:
        raise RecipeError(f"{placed[0]}: the lists lie in the run's folder; choose it with --name or --output.")
    path = Path(folder)
    train, val = open_splits(path, wishes.held_out, wishes.seed)
    facts = look_at(train)
    hardware = hardware or find_hardware()
    name = wishes.name or path.resolve().stem
    wishes = replace(wishes, name=name)
    scoring: ScoringKind = "sigmoid" if train.is_multi_label else "softmax"
    recipe = finetune_recipe(wishes, facts, hardware, num_train=len(train), scoring=scoring)
    return FineTuning(make_recipe(recipe.to_dict(), overrides), train, val, facts, hardware)


def write_lists(planned: FineTuning) -> None:
    """The two lists, as plain csv, where the recipe says. Lists of a run that has begun are never changed."""
    from motionformer.training.folder import alone_in, has_begun

    folder = planned.recipe.folder
    folder.mkdir(parents=True, exist_ok=True)
    for annotations, name in ((planned.train, TRAIN_LIST), (planned.val, VAL_LIST)):
        new, there = folder / f".{name}.{os.getpid()}.new", folder / name
        write_list(annotations, new)
        try:
            if there.exists() and new.read_bytes() == there.read_bytes():
                continue
            with alone_in(folder):
                if there.exists() and has_begun(folder):
                    raise RecipeError("the videos are others than when this run began; use another --output.", there)
                new.replace(there)
        finally:
            new.unlink(missing_ok=True)


def open_splits(path: Path, held_out: float, seed: int) -> tuple[Annotations, Annotations]:
    """Training and validation videos: as the folders `train` and `val` say, or split here, class by class."""
    if not path.exists():
        raise RecipeError("no such file or folder.", path)
    kind = recognise(path)
    ready = split_folders(path) if kind == "folders" else {}
    held = next((split for split in ("val", "test") if split in ready), None)
    if held is not None:
        return open_dataset(path, kind, split="train"), open_dataset(path, kind, split=held)
    if path.is_dir() and kind not in ("folders", "files"):
        return open_dataset(path, kind, split="train"), open_dataset(path, kind, split="val")
    everything = open_dataset(path, kind)
    if not everything.class_names or not isinstance(everything.class_names, tuple):
        raise RecipeError(
            "needs videos with one label each (class folders, or a csv of path,label) or several (path,labels).", path
        )
    split = split_multi_label if everything.is_multi_label else split_by_class
    return split(everything, held_out, seed, path if path.is_dir() else path.parent)


def look_at(annotations: Annotations) -> VideoFacts:
    """Medians over a few videos, spread over the list. Unreadable ones are left to the run, which counts them."""
    looks = [_look(record) for record in annotations.records[:: max(1, len(annotations) // PROBED)]]
    found = [look for look in looks if isinstance(look, VideoMetadata)]
    if not found:
        raise next(look for look in looks if isinstance(look, VideoError))
    return VideoFacts(
        frames=int(median(facts.num_frames for facts in found)),
        seconds=float(median(facts.duration for facts in found)),
        short_side=int(median(min(facts.height, facts.width) for facts in found)),
    )


def find_hardware() -> Hardware:
    """The devices of this machine."""
    if torch.cuda.is_available():
        memory = min(torch.cuda.get_device_properties(i).total_memory for i in range(torch.cuda.device_count()))
        return Hardware(True, memory, os.cpu_count() or 1)
    return Hardware(False, os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"), os.cpu_count() or 1)


def _look(record: Record) -> VideoMetadata | VideoError:
    try:
        with open_video(record.path) as video:
            return video.metadata
    except VideoError as error:
        return error
