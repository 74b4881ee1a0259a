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

from motionformer.data.clips import frame_span, record_clock
from motionformer.data.lists import read_plain_list
from motionformer.data.record import Annotations, Record
from motionformer.errors import AnnotationError, RecipeError, VideoError
from motionformer.models.config import ScoringKind
from motionformer.training.advice import MIN_STEPS, TRAIN_LIST, VAL_LIST, Hardware, VideoFacts, Wishes, finetune_recipe
from motionformer.training.mirroring import describe_mirroring
from motionformer.training.opening import open_splits
from motionformer.training.recipe import Recipe, make_recipe
from motionformer.training.sources import VideoSource
from motionformer.training.splits import note_shared_files, write_list
from motionformer.video import open_video

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

    @property
    def class_names(self) -> tuple[str, ...]:
        """Of the classes that some video to learn from shows; the model will know these."""
        return tuple(name for name, count in self.train.counts().items() if count)

    @property
    def mirrored(self) -> str:
        """What mirroring does to the classes."""
        return describe_mirroring(self.recipe.augmentation, self.class_names)

    @property
    def doubts(self) -> tuple[str, ...]:
        """Why the figure of this run will not be what it seems."""
        return note_shared_files(self.train, self.val)

    @property
    def steps(self) -> int:
        """Optimiser steps of the run."""
        recipe = self.recipe
        return len(self.train) * recipe.augmentation.repeats // recipe.global_batch * recipe.epochs

    @property
    def notes(self) -> tuple[str, ...]:
        """What was odd about the videos."""
        advice = f"(the default is {MIN_STEPS} or more): more epochs, or a smaller batch"
        steps = (f"{self.steps} optimiser steps are few {advice}",) if self.steps < MIN_STEPS else ()
        return tuple(dict.fromkeys((*self.train.notes, *self.val.notes, *self.doubts, *steps)))


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
    train, val = open_splits(path, wishes.held_out, wishes.seed, wishes.missing)
    facts = look_at(train)
    hardware = hardware or find_hardware()
    name = wishes.name or path.resolve().stem
    wishes = replace(wishes, name=name)
    scoring: ScoringKind = "sigmoid" if train.is_multi_label else "softmax"
    recipe = finetune_recipe(wishes, facts, hardware, num_train=len(train), scoring=scoring)
    return FineTuning(make_recipe(recipe.to_dict(), overrides), train, val, facts, hardware)


def write_lists(planned: FineTuning) -> None:
    """The two lists, as plain csv, where the recipe says. Those of a run that has begun change if its videos moved."""
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
                if there.exists() and has_begun(folder) and not _lists_the_same(there, annotations):
                    raise RecipeError("the videos are others than when this run began; use another --output.", there)
                new.replace(there)
        finally:
            new.unlink(missing_ok=True)


def _lists_the_same(file: Path, annotations: Annotations) -> bool:
    """Whether a list is of these videos and labels, wherever all of the videos lay when it was written."""
    try:
        assert isinstance(annotations.class_names, tuple)
        then = read_plain_list(file, class_names=annotations.class_names)
    except AnnotationError:  # of other classes
        return False
    return VideoSource(then).fingerprint() == VideoSource(annotations).fingerprint()


def look_at(annotations: Annotations) -> VideoFacts:
    """Medians over a few videos, spread over the list. Unreadable ones are left to the run, which counts them."""
    looks = [_look(record) for record in annotations.records[:: max(1, len(annotations) // PROBED)]]
    found = [look for look in looks if isinstance(look, VideoFacts)]
    if not found:
        raise next(look for look in looks if isinstance(look, VideoError))
    return VideoFacts(
        frames=int(median(facts.frames for facts in found)),
        seconds=float(median(facts.seconds for facts in found)),
        short_side=int(median(facts.short_side for facts in found)),
    )


def find_hardware() -> Hardware:
    """The devices of this machine."""
    if torch.cuda.is_available():
        memory = min(torch.cuda.get_device_properties(i).total_memory for i in range(torch.cuda.device_count()))
        return Hardware(True, memory, os.cpu_count() or 1)
    return Hardware(False, os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"), os.cpu_count() or 1)


def _look(record: Record) -> VideoFacts | VideoError:
    """Of a piece of a video: of the piece."""
    try:
        with open_video(record.path) as video:
            clock, span = record_clock(record, video.clock), frame_span(record, video.clock)
            side = min(video.metadata.height, video.metadata.width)
            return VideoFacts(len(span), clock.seconds(span.stop) - clock.seconds(span.start), side)
    except VideoError as error:
        return error
