"""`finetune(folder)`: inspect the videos, split them, decide on a recipe, train. Start reading here.

The run folder holds the two lists and the recipe; `motionformer train` on that recipe is the same run. `options.py`
decides the recipe.
"""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from motionformer.data.lists import read_plain_list, write_list
from motionformer.data.record import Annotations, Missing, Record
from motionformer.distributed import current_rank
from motionformer.errors import AnnotationError, RecipeError, VideoError
from motionformer.finetuning.choice import (
    TrainingChoice,
    candidates_for,
    choose_by_rule,
    choose_by_time,
    parse_time,
)
from motionformer.finetuning.options import (
    MIN_STEPS,
    TRAIN_LIST,
    VAL_LIST,
    FinetuneOptions,
    Hardware,
    VideoFacts,
    finetune_recipe,
    initial_model,
)
from motionformer.finetuning.split import note_shared_files, open_splits
from motionformer.logging import show_count
from motionformer.models.config import ModelConfig, ReadoutKind, ScoringKind
from motionformer.runs import lock_folder, make_folder
from motionformer.training.recipe import Recipe, load_recipe, make_recipe
from motionformer.training.run_folder import RunFolder
from motionformer.training.sources import VideoSource, describe_mirroring
from motionformer.video import open_video
from motionformer.weights.lora import LoraSpec, check_peft

if TYPE_CHECKING:
    from motionformer.training.run import TrainingResult

_FIXED_KEYS = ("name=", "output=", "data.train=", "data.val=")
_INSPECTED = 12
"""Videos that are opened to learn their length and size."""


@dataclass(frozen=True)
class FinetunePlan:
    """Everything decided, nothing written yet.

    Attributes:
        recipe: what will be trained.
        train: training videos.
        val: held-out videos.
        facts: medians of the videos.
        hardware: what the recipe is made for.
        choice: what is trained, and why.
    """

    recipe: Recipe
    train: Annotations
    val: Annotations
    facts: VideoFacts
    hardware: Hardware
    choice: TrainingChoice

    @property
    def class_names(self) -> tuple[str, ...]:
        """Classes with a training video: those of the model."""
        return tuple(name for name, count in self.train.counts().items() if count)

    @property
    def mirrored(self) -> str:
        """What mirroring does to the classes."""
        return describe_mirroring(self.recipe.augmentation, self.class_names)

    @property
    def doubts(self) -> tuple[str, ...]:
        """Why the metrics of this run will be too good."""
        return note_shared_files(self.train, self.val)

    @property
    def can_probe(self) -> bool:
        """Whether a probe of frozen features would be better: it takes weights, and one class per video."""
        return bool(self.choice.probe and self.recipe.model.init_from) and not self.train.is_multi_label

    @property
    def steps(self) -> int:
        """Optimiser steps of the run."""
        recipe = self.recipe
        return len(self.train) * recipe.augmentation.repeats // recipe.global_batch * recipe.epochs

    @property
    def notes(self) -> tuple[str, ...]:
        """Unusual things about the videos and the plan."""
        count = f"only {show_count(self.steps, 'optimiser step')} (the default is {MIN_STEPS} or more)"
        steps = (f"{count}: use more epochs, or a smaller batch",) if self.steps < MIN_STEPS else ()
        probe = (f"{self.choice.probe}: try `motionformer probe` first",) if self.can_probe else ()
        return tuple(dict.fromkeys((*probe, *self.train.notes, *self.val.notes, *self.doubts, *steps)))

    def write_lists(self) -> None:
        """Write the two lists, as plain csv, where the recipe has them. Those of a run that has begun may only change
        if its videos moved."""
        folder = self.recipe.folder
        make_folder(folder)
        for annotations, name in ((self.train, TRAIN_LIST), (self.val, VAL_LIST)):
            new, there = folder / f".{name}.{os.getpid()}.new", folder / name
            write_list(annotations, new)
            try:
                if there.exists() and new.read_bytes() == there.read_bytes():
                    continue
                with lock_folder(folder, "training"):
                    if there.exists() and RunFolder(folder).has_begun() and not _lists_the_same(there, annotations):
                        raise RecipeError("the videos have changed since this run began; use another output.", there)
                    new.replace(there)
            finally:
                new.unlink(missing_ok=True)


def finetune(
    folder: str | Path,
    output: str | Path | None = None,
    *,
    init_from: str | Path = "",
    train: str = "",
    time: str = "",
    attention: str | None = None,
    readout: ReadoutKind | None = None,
    frames: int | None = None,
    size: int | None = None,
    epochs: int | None = None,
    lr: float | None = None,
    batch_size: int | None = None,
    keep_epoch: Literal["last", "best"] = "last",
    held_out: float = 0.2,
    missing: Missing = "error",
    seed: int = 0,
    name: str = "",
    num_workers: int | None = None,
    device: str | None = None,
    precision: str | None = None,
    overrides: Sequence[str] = (),
    quiet: bool = False,
) -> "TrainingResult":
    """Train a model on your own videos, or resume an interrupted run. A finished run is not repeated.

    Whatever is left out is chosen for the videos and the hardware; `plan_finetune` returns the choices without
    training.

    Args:
        folder: class folders, a folder with `train/` and `val/` of them, or a csv of `path,label` or `path,labels`.
        output: run folder [default: `runs/NAME`].
        init_from: initial weights: a released name, a model folder, image weights [default: random].
        train: trainable parameters: `all`, `head`, `last:N` blocks, `lora:RANK` adapters (extra `[peft]`), or
            `adapter`, `adapter:joint`, `adapter:divided`: attention adapters between frozen blocks.
        time: how long the run may take, such as `90s`, `10m` or `2h`: what is trained, and for how long, is then
            chosen by measured steps.
        attention: a registered attention scheme [default: `trajectory`, or that of the weights].
        readout: input of the head: `class` (class token), or `motion` (motion moments beside it).
        frames: frames per clip.
        size: height and width of a clip.
        epochs: passes over the videos.
        lr: learning rate, for the batch size used.
        batch_size: clips per optimiser step.
        keep_epoch: epoch of the saved model: `last`, or `best` on the held-out videos.
        held_out: share of each class held out, where the folder has no split.
        missing: `error`, or `drop` listed videos that do not exist.
        seed: of the split, the weights and the order.
        name: of the run [default: that of the folder or list].
        num_workers: loader processes.
        device: `auto`, `cpu`, `cuda`, `cuda:1`, `mps`.
        precision: `32`, `bf16`, `16`.
        overrides: `key=value` changes to any other key of the recipe.
        quiet: no progress bar and no messages.

    Returns:
        Folders, validation metrics and run card; `result.model` is the path for `load_model` and `Predictor`.

    Raises:
        RecipeError: the videos or options cannot be trained on.
        AnnotationError: the list or a class of it cannot be used.
        TrainingError: the run folder holds another run, or the run failed.

    Example:
        ```python
        from motionformer.finetuning import finetune

        result = finetune("videos/", output="runs/mine", init_from="motion-tiny", epochs=10)
        result.kept["top1"]
        ```
    """
    from motionformer.training.run import train as run_training

    options = FinetuneOptions(
        init_from=str(init_from),
        train=train,
        time=time,
        attention=attention,
        readout=readout,
        frames=frames,
        size=size,
        epochs=epochs,
        lr=lr,
        batch_size=batch_size,
        keep_epoch=keep_epoch,
        held_out=held_out,
        seed=seed,
        name=name,
        output="" if output is None else str(output),
        missing=missing,
    )
    plan = plan_finetune(folder, options, overrides)
    current_rank().on_zero(plan.write_lists)
    return run_training(plan.recipe, num_workers=num_workers, device=device, precision=precision, quiet=quiet)


def plan_finetune(
    folder: str | Path,
    options: FinetuneOptions | None = None,
    overrides: Sequence[str] = (),
    hardware: Hardware | None = None,
) -> FinetunePlan:
    """Inspect the videos and the machine, and decide; nothing is written.

    Args:
        folder: as in `finetune`.
        options: what is already decided.
        overrides: `key=value` changes to the recipe, except its name, output and lists.
        hardware: the machine to plan for [default: this one].

    Returns:
        The recipe, the split and notes on both.

    Raises:
        RecipeError: the videos or options cannot be trained on.

    Example:
        ```python
        plan = plan_finetune("videos/", FinetuneOptions(epochs=10))
        print(plan.recipe.to_yaml(), plan.notes)
        ```
    """
    fixed = [override for override in overrides if override.startswith(_FIXED_KEYS)]
    if fixed:
        raise RecipeError(f"{fixed[0]}: the lists are in the run folder; choose it with --name or --output.")
    path, options = Path(folder), options or FinetuneOptions()
    train, val = open_splits(path, options.held_out, options.seed, options.missing)
    facts = _inspect(train)
    hardware = hardware or Hardware.here()
    scoring: ScoringKind = "sigmoid" if train.is_multi_label else "softmax"
    named = replace(options, name=options.name or path.resolve().stem)
    config = initial_model(named, hardware)
    num_classes = sum(count > 0 for count in train.counts().values())

    def recipe_of(what: str, epochs: int | None = None) -> Recipe:
        made = finetune_recipe(
            replace(named, train=what, epochs=named.epochs or epochs),
            facts,
            hardware,
            num_train=len(train),
            num_classes=num_classes,
            scoring=scoring,
            initial_config=lambda _: config,
        )
        return make_recipe(made.to_dict(), overrides)

    choice = _choose(named, config, hardware, (train, val), num_classes, recipe_of)
    recipe = recipe_of(choice.train, choice.epochs)
    if LoraSpec.parse(recipe.model.train):
        check_peft()
    return FinetunePlan(recipe, train, val, facts, hardware, choice)


def _choose(
    options: FinetuneOptions,
    config: ModelConfig,
    hardware: Hardware,
    videos: tuple[Annotations, Annotations],
    num_classes: int,
    recipe_of: Callable[..., Recipe],
) -> TrainingChoice:
    train, val = videos
    if options.train:
        if options.time:
            raise RecipeError("--time chooses what is trained: leave --train out, or set --epochs instead of --time.")
        return TrainingChoice(options.train, "as asked")
    has_weights = bool(options.init_from)
    if not options.time:
        return choose_by_rule(config, has_weights, hardware.has_gpu, len(train), num_classes)
    seconds = parse_time(options.time)
    folder = recipe_of("all").folder
    if RunFolder(folder).has_begun():  # steps are never measured alike: the run resumes with what was chosen then
        begun = load_recipe(folder / "recipe.yaml")
        return TrainingChoice(begun.model.train, f"as {folder} began", begun.epochs)
    names = candidates_for(config, has_weights, len(train), num_classes)
    return choose_by_time(seconds, recipe_of, train, val, candidates=names)


def _lists_the_same(file: Path, annotations: Annotations) -> bool:
    """Whether a list has these videos and labels, also where the videos have moved since."""
    try:
        assert isinstance(annotations.class_names, tuple)
        then = read_plain_list(file, class_names=annotations.class_names)
    except AnnotationError:  # of other classes
        return False
    return VideoSource(then).fingerprint() == VideoSource(annotations).fingerprint()


def _inspect(annotations: Annotations) -> VideoFacts:
    """Medians over a few videos, spread over the list. Unreadable ones are left to the run, which counts them."""
    looks = [_look(record) for record in annotations.records[:: max(1, len(annotations) // _INSPECTED)]]
    found = [look for look in looks if isinstance(look, VideoFacts)]
    if not found:
        raise next(look for look in looks if isinstance(look, VideoError))
    return VideoFacts.median(found)


def _look(record: Record) -> VideoFacts | VideoError:
    """Of the segment, where the record is one."""
    try:
        with open_video(record.path) as video:
            clock, span = record.clock(video.clock), record.span(video.clock)
            side = min(video.metadata.height, video.metadata.width)
            return VideoFacts(len(span), clock.seconds(span.stop) - clock.seconds(span.start), side)
    except VideoError as error:
        return error
