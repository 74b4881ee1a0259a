"""`train(recipe)`: from a recipe to a folder with a model, its numbers and its card. Start reading here.

runs/NAME/recipe.yaml     the recipe in full; the same one with the same videos goes on here, others are refused
runs/NAME/checkpoints/    the last few, to go on from after a kill
runs/NAME/metrics.csv     and tensorboard/: losses, learning rates, validation
runs/NAME/model/          the trained model, for `load_model`
runs/NAME/card.json, .md  the run card, written last
"""

import logging
import shutil
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch import Callback, Trainer
from rich.console import Console

from motionformer.data.fingerprints import MAX_FILES
from motionformer.errors import MissingVideosError
from motionformer.inference.metrics import wilson
from motionformer.models.config import ModelConfig
from motionformer.models.motionformer import Motionformer
from motionformer.models.training_data import TrainingData, VideoSet
from motionformer.training import card as cards
from motionformer.training.checkpoints import (
    DISK_IS_FULL,
    KeepCheckpoints,
    best_validation,
    checkpoint_file,
    explain_disk,
    find_checkpoint,
    is_whole,
    list_checkpoints,
    read_notes,
    remove_after,
    step_of,
)
from motionformer.training.clips import Clips
from motionformer.training.ema import average_weights
from motionformer.training.folder import CHECKPOINTS, claim_folder, refuse_other_data, refuse_other_recipe
from motionformer.training.logs import flush_loggers, make_loggers
from motionformer.training.model import build_config, start_model
from motionformer.training.module import TrainingModule
from motionformer.training.objectives import scoring_for
from motionformer.training.plan import Plan, make_plan
from motionformer.training.progress import Clock, SayResults
from motionformer.training.recipe import Recipe
from motionformer.training.sources import Source, describe_data, num_classes_of, open_sources
from motionformer.training.trainer import (
    count_processes,
    interruptible,
    is_first_process,
    make_trainer,
    without_chatter,
)

log = logging.getLogger("motionformer")


@dataclass(frozen=True)
class FinishedRun:
    """What a run left behind. `kept` are the validation metrics of the saved model; those of the last epoch, and of the
    best one, are `last` and `best`."""

    folder: Path
    model: Path
    last: dict[str, int | float]
    best: dict[str, int | float]
    seconds: float
    card: dict[str, Any]
    kept: dict[str, int | float]


@dataclass(frozen=True)
class Prepared:
    """Everything that is known before the first step."""

    plan: Plan
    sources: tuple[Source, Source]
    config: ModelConfig


def train(recipe: Recipe, *, quiet: bool = False) -> FinishedRun:
    """Train what `recipe` describes, or go on where a killed run of it stopped. A finished run is not repeated."""
    say = _Voice(quiet)
    finished = find_finished(recipe)
    if finished is not None:
        say(f"{recipe.folder} holds a finished run of this recipe.")
        return finished
    try:
        with without_chatter(), claim_folder(recipe), interruptible():
            return _train(recipe, say)
    except KeyboardInterrupt:
        saved = list_checkpoints(recipe.folder / CHECKPOINTS)
        how = f"goes on after step {step_of(saved[0])}" if saved else "begins again: there is no checkpoint yet"
        say(f"{recipe.folder}: stopped. The same command {how}.")
        raise
    except OSError as error:
        if error.errno not in DISK_IS_FULL:
            raise
        raise explain_disk(error, recipe.folder) from error


def prepare(recipe: Recipe) -> Prepared:
    """Open the data, count the devices, derive the numbers; nothing is built or written."""
    sources = open_sources(recipe)
    names = sources[0].class_names
    config = build_config(recipe, num_classes_of(names), names, scoring_for(sources[0].labels))
    with without_chatter():
        plan = make_plan(recipe, count_processes(recipe), len(sources[0]), len(sources[1]))
    return Prepared(plan, sources, config)


def find_finished(recipe: Recipe) -> FinishedRun | None:
    """The finished run in the recipe's folder, if there is one of this recipe and its data."""
    card = cards.read_card(recipe.folder)
    if card is None:
        return None
    refuse_other_recipe(recipe)
    _refuse_changed_data(recipe, card)
    return _finished(recipe.folder, card)


def _refuse_changed_data(recipe: Recipe, card: dict[str, Any]) -> None:
    """A finished run outlives its videos: where they are gone, there is nothing to compare with."""
    try:
        data = describe_data(open_sources(recipe))
    except MissingVideosError:
        return
    refuse_other_data(recipe.folder, card.get("data", {}), data)


def _train(recipe: Recipe, say: "_Voice") -> FinishedRun:
    prepared = prepare(recipe)
    plan, names = prepared.plan, prepared.sources[0].class_names
    saved = recipe.folder / CHECKPOINTS
    start = find_checkpoint(saved)
    steps_done = 0 if start is None else step_of(start)
    data = describe_data(prepared.sources)
    if start is not None:
        refuse_other_data(recipe.folder, read_notes(start).get("data", {}), data)
    if is_first_process():
        remove_after(saved, start)
    loggers = make_loggers(recipe, steps_done)
    clock, average = Clock(), [average_weights(recipe.ema)] if recipe.ema else []
    checkpoints = KeepCheckpoints(
        saved,
        plan,
        every=recipe.engine.checkpoint_steps,
        keep=recipe.engine.keep,
        keep_best=recipe.keep_epoch == "best",
        flush=lambda: flush_loggers(loggers),
    )
    callbacks: list[Callback] = [clock, *average, SayResults(say, plan.total_steps, plan.val_clips), checkpoints]
    trainer = make_trainer(recipe, plan, loggers, callbacks, quiet=say.is_quiet)
    model, new = start_model(recipe, names, num_classes_of(names), prepared.config.scoring)
    if recipe.engine.compile:
        model.compile()
    module = TrainingModule(model, recipe, plan, new, data)
    clips = Clips(recipe, plan, prepared.sources, prepared.config.input)
    say(f"{start}: going on after step {steps_done}." if start else f"{recipe.folder}: {plan.total_steps} steps.")
    trainer.fit(module, datamodule=clips, ckpt_path=start, weights_only=True)
    if not module.history or module.history[-1]["step"] != plan.total_steps:
        trainer.validate(module, datamodule=clips, verbose=False)
    return _finish(recipe, prepared, module, clock.seconds, trainer, say)


def _finish(
    recipe: Recipe, prepared: Prepared, module: TrainingModule, seconds: float, trainer: Trainer, say: "_Voice"
) -> FinishedRun:
    best = best_validation(module)
    assert best is not None, "a run ends with a validation"
    saved = recipe.folder / CHECKPOINTS
    kept, checkpoint = module.history[-1], None
    if recipe.keep_epoch == "best" and best["step"] != kept["step"]:
        its = checkpoint_file(saved, int(best["step"]))
        if not trainer.is_global_zero or is_whole(its):
            kept, checkpoint = best, its
        else:
            log.warning("%s, of the best epoch, is damaged or gone: the last epoch is kept instead.", its)
    card = {
        "recipe": recipe.to_dict(),
        "plan": prepared.plan.to_dict(),
        "model": cards.describe_model(prepared.config),
        "data": module.data,
        "results": {
            "last": module.history[-1],
            "best": best,
            "kept": kept,
            "confidence": validation_intervals(kept, prepared.plan.val_clips),
            "history": module.history,
        },
        "failed": {
            "train": [asdict(failure) for failure in module.train_failures.failures.values()],
            "val": [asdict(failure) for failure in module.val_failures.failures.values()],
        },
        "seconds": seconds,
        "machine": cards.describe_machine(),
        "software": cards.describe_software(),
    }
    if trainer.is_global_zero:
        learnt = training_data(prepared.sources, module.model.training_data, recipe.keep_epoch == "best")
        card["held_out_overlap"] = overlap = held_out_overlap(prepared.sources, module.model.training_data)
        for which, count in (("of this run", overlap["run"]), ("of the model it started from", overlap["start"])):
            if count:
                say(
                    f"note: {count} of {overlap['videos']} held-out videos are training videos {which}: the figure is "
                    "too good."
                )
        if learnt.left_out:
            why = f"gone, or more than {MAX_FILES:,}"
            say(f"{learnt.left_out} training videos have no fingerprint in the model ({why}).")
        save_model(prepared.config, checkpoint or list_checkpoints(saved)[0], recipe.folder / "model", learnt)
        cards.write_card(recipe.folder, card)
    return _finished(recipe.folder, card)


def training_data(sources: tuple[Source, Source], start: TrainingData | None, chosen: bool) -> TrainingData:
    """What a model of these sources has learnt from, and what it started from had before; with `chosen`, validation
    chose its epoch."""
    train, left_out = sources[0].video_set()
    made = TrainingData(train, sources[1].video_set()[0] if chosen else VideoSet(), left_out)
    return made if start is None else made | start


def held_out_overlap(sources: tuple[Source, Source], start: TrainingData | None) -> dict[str, int]:
    """How many videos of the validation, by their contents, were trained on: in this run, or by its starting model."""
    train, held = sources[0].video_set()[0], sources[1].video_set()[0]
    pieces = [(key, span) for key, spans in held.spans.items() for span in spans]
    before = VideoSet() if start is None else start.train
    count = {"run": train, "start": before}
    return {
        "videos": len(pieces),
        **{name: sum(of.overlap(*piece) == "video" for piece in pieces) for name, of in count.items()},
    }


def validation_intervals(metrics: dict[str, int | float], videos: int) -> dict[str, dict[str, float]]:
    """95 % confidence intervals of the accuracies of a validation."""
    shares = {name: value for name, value in metrics.items() if name not in ("epoch", "step", "loss", "map")}
    counts = {name: round(value * videos) for name, value in shares.items()}
    bounds = {name: wilson(count, videos) for name, count in counts.items()}
    return {
        name: {"low": low, "high": high, "correct": counts[name], "videos": videos}
        for name, (low, high) in bounds.items()
    }


def save_model(config: ModelConfig, checkpoint: Path, folder: Path, learnt: TrainingData | None = None) -> None:
    """The model of a checkpoint: whole where the run's own is in shards, averaged where weights are averaged.

    Written aside and renamed, so that a killed run leaves no half a model.
    """
    weights = torch.load(checkpoint, map_location="cpu", weights_only=True)["state_dict"]
    model = Motionformer(config)
    model.load_state_dict({name.removeprefix("model."): weight for name, weight in weights.items()})
    model.training_data = learnt
    aside = folder.with_name(f".{folder.name}.part")
    shutil.rmtree(aside, ignore_errors=True)
    model.eval().save_pretrained(aside)
    shutil.rmtree(folder, ignore_errors=True)
    aside.rename(folder)


def _finished(folder: Path, card: dict[str, Any]) -> FinishedRun:
    results = card["results"]
    kept = results.get("kept", results["last"])
    return FinishedRun(folder, folder / "model", results["last"], results["best"], card["seconds"], card, kept)


class _Voice:
    """Tells people what happens, on stderr and from one process only."""

    def __init__(self, quiet: bool) -> None:
        self.is_quiet = quiet
        self.console = Console(stderr=True)

    def __call__(self, line: str) -> None:
        if not self.is_quiet and is_first_process():
            self.console.print(line, highlight=False, markup=False, soft_wrap=True)
