"""`train(recipe)`: from a recipe to a run folder with a model, its metrics and its card. Start reading here.

runs/NAME/recipe.yaml     the recipe in full; a run resumes with the same recipe and videos only
runs/NAME/checkpoints/    the last few, to resume from
runs/NAME/metrics.csv     and tensorboard/: losses, learning rates, validation
runs/NAME/model/          the trained model, for `load_model`; with `lora` the adapters are merged into it
runs/NAME/lora/           its adapters, where it was trained with `lora`, in peft's format
runs/NAME/card.json, .md  the run card, written last
"""

import shutil
import signal
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from lightning.pytorch import Trainer
from lightning.pytorch.callbacks import EMAWeightAveraging
from torch import Tensor

from motionformer.data.fingerprints import MAX_FILES
from motionformer.distributed import Launcher, Rank
from motionformer.errors import MissingVideosError, StoppedError, TrainingError
from motionformer.inference.metrics import wilson
from motionformer.logging import logger as log
from motionformer.logging import show_count, show_messages
from motionformer.models.config import ModelConfig
from motionformer.models.motionformer import Motionformer
from motionformer.models.training_data import TrainingData, VideoSet
from motionformer.stopping import stop_on_signals, stop_reason
from motionformer.training.datamodule import VideoDataModule
from motionformer.training.logs import Progress, make_loggers
from motionformer.training.model import build_config, build_model
from motionformer.training.module import TrainingModule
from motionformer.training.objectives import scoring_for
from motionformer.training.recipe import Recipe, load_recipe, make_recipe
from motionformer.training.run_folder import (
    Checkpoint,
    RunFolder,
    describe_environment,
    describe_model,
)
from motionformer.training.sources import Source, describe_data, open_sources
from motionformer.training.trainer import Plan, join_processes, make_plan, make_trainer, quiet_lightning
from motionformer.weights.lora import LoraSpec, describe_idle, merge_lora, plain_state, save_lora


@dataclass(frozen=True)
class TrainingResult:
    """A finished run.

    Attributes:
        folder: the run folder.
        model: the folder of the saved model, for `load_model`.
        kept: validation metrics of the saved model.
        last: those of the last epoch.
        best: those of the best epoch.
        seconds: time used, resumed runs included.
        card: the run card, as in `card.json`.
    """

    folder: Path
    model: Path
    kept: dict[str, int | float]
    last: dict[str, int | float] = field(repr=False)
    best: dict[str, int | float] = field(repr=False)
    seconds: float
    card: dict[str, Any] = field(repr=False)

    @property
    def intervals(self) -> dict[str, dict[str, float]]:
        """95 % confidence intervals of the accuracies in `kept`."""
        return _intervals(self.kept, self.card["plan"]["val_clips"])


@dataclass(frozen=True)
class Prepared:
    """Everything that is known before the first step."""

    plan: Plan
    sources: tuple[Source, Source]
    config: ModelConfig


def train(
    recipe: Recipe | str | Path,
    overrides: Sequence[str] = (),
    *,
    output: str | Path | None = None,
    batch_size: int | None = None,
    num_workers: int | None = None,
    device: str | None = None,
    precision: str | None = None,
    quiet: bool = False,
) -> TrainingResult:
    """Train the model of a recipe, or resume an interrupted run of it. A finished run is not repeated.

    Args:
        recipe: name of a recipe of the package (`k400/base`), a YAML file, or a `Recipe`.
        overrides: `key=value` changes to the recipe.
        output: run folder [default: the recipe's, or `runs/NAME`].
        batch_size: clips per optimiser step, all devices together [default: the recipe's].
        num_workers: loader processes per device [default: the recipe's].
        device: `auto`, `cpu`, `cuda`, `cuda:1`, `mps` [default: the recipe's].
        precision: `32`, `bf16`, `16` [default: the recipe's].
        quiet: no progress bar and no messages.

    Returns:
        Folders, validation metrics and run card.

    Raises:
        RecipeError: the recipe is invalid, or does not fit its data or the number of processes.
        TrainingError: the folder holds another run, the disk is full, or too many videos cannot be read.
        NonFiniteLossError: the loss became infinite or NaN.
        StoppedError: SIGTERM or SIGUSR1 stopped the run, after a checkpoint; the same call resumes.

    Example:
        ```python
        from motionformer.training import train

        result = train("motion/easy", ["seed=1"], output="runs/easy-1", device="cpu")
        result.kept["top1"]
        ```
    """
    if not isinstance(recipe, Recipe):
        recipe = load_recipe(recipe, overrides)
    elif overrides:
        recipe = make_recipe(recipe.to_dict(), overrides)
    recipe = recipe.with_options(
        output=output, batch_size=batch_size, num_workers=num_workers, device=device, precision=precision
    )
    with ExitStack() as stack:
        if not quiet and not log.hasHandlers():
            stack.enter_context(show_messages())
        stack.enter_context(stop_on_signals())
        stack.enter_context(quiet_lightning())
        launcher = Launcher.find()
        try:
            finished = find_finished(recipe) if launcher is None else None  # before other processes are started
            if finished is None:
                rank = stack.enter_context(join_processes(recipe))
                rank.check_shared(recipe.folder)
                finished = rank.on_zero(lambda: find_finished(recipe))
            if finished is not None:
                log.info("%s holds a finished run of this recipe.", recipe.folder)
                return finished
            with RunFolder(recipe.folder).claim(recipe), _interruptible():
                return _train(recipe, quiet, rank)
        except StoppedError as error:
            if launcher is not None and launcher.name == "Lightning":
                raise SystemExit(0) from error  # any other code, and Lightning kills the process that started this one
            raise
        except KeyboardInterrupt:
            saved = RunFolder(recipe.folder).checkpoints()
            how = f"resumes after step {saved[0].step}" if saved else "starts again: there is no checkpoint yet"
            log.warning("%s: interrupted. The same command %s.", recipe.folder, how)
            raise


def prepare(recipe: Recipe) -> Prepared:
    """Open the data, count the devices, derive the numbers; nothing is built or written."""
    sources = open_sources(recipe)
    names = sources[0].class_names
    count = {task: len(of_task) for task, of_task in names.items()} if isinstance(names, Mapping) else len(names)
    config = build_config(recipe, count, names, scoring_for(sources[0].labels))
    with quiet_lightning():
        plan = make_plan(recipe, len(sources[0]), len(sources[1]))
    return Prepared(plan, sources, config)


def find_finished(recipe: Recipe) -> TrainingResult | None:
    """The finished run in the recipe's folder, if there is one of this recipe and its data."""
    folder = RunFolder(recipe.folder)
    card = folder.read_card()
    if card is None:
        return None
    folder.check_same_recipe(recipe)
    try:
        data = describe_data(open_sources(recipe))
    except MissingVideosError:  # a finished run outlives its videos
        data = None
    if data is not None:
        folder.check_same_data(card.get("data", {}), data)
    return _result(recipe.folder, card)


@contextmanager
def _interruptible() -> Iterator[None]:
    """Ctrl-C stays a KeyboardInterrupt: Lightning cleans up, but then exits with code 1 and leaves Ctrl-C ignored."""
    before = signal.getsignal(signal.SIGINT)
    try:
        yield
    except SystemExit as error:
        if not isinstance(error.__context__, KeyboardInterrupt):
            raise
        signal.signal(signal.SIGINT, before)
        raise KeyboardInterrupt from error


def _train(recipe: Recipe, quiet: bool, rank: Rank) -> TrainingResult:
    prepared = prepare(recipe)
    plan, folder = prepared.plan, RunFolder(recipe.folder)
    checkpoint = rank.on_zero(folder.find_checkpoint)
    data = describe_data(prepared.sources)
    if checkpoint is not None:
        _check_all_see(checkpoint, rank)
        folder.check_same_data(checkpoint.read_notes().get("data", {}), data)
    if rank.is_zero:
        folder.discard_after(checkpoint)
    progress = Progress(recipe, plan, quiet=quiet)
    # buffers are copied, not averaged: the random features of a Performer are constants
    average = [EMAWeightAveraging(decay=recipe.ema, use_buffers=False)] if recipe.ema else []
    loggers = make_loggers(recipe, steps_done=checkpoint.step if checkpoint else 0)
    trainer = make_trainer(recipe, plan, loggers, [progress, *average])
    model, new = build_model(recipe, prepared.config)
    if recipe.engine.compile:
        model.compile()
    module = TrainingModule(model, recipe, plan, new, data)
    clips = VideoDataModule(recipe, plan, prepared.sources, prepared.config.input)
    resumed = f", resuming after step {checkpoint.step} from {checkpoint.file}" if checkpoint else ""
    log.info("%s: %s%s.", recipe.folder, show_count(plan.total_steps, "step"), resumed)
    if rank.any_stopped():
        how = f"after step {checkpoint.step}" if checkpoint else "from its beginning"
        raise StoppedError(f"{recipe.folder}: {stop_reason()}, before the first step. The same command resumes {how}.")
    trainer.fit(module, datamodule=clips, ckpt_path=checkpoint.file if checkpoint else None, weights_only=True)
    if not module.history or module.history[-1]["step"] != plan.total_steps:
        trainer.validate(module, datamodule=clips, verbose=False)
    return _finish(recipe, prepared, module, progress.seconds, trainer)


def _check_all_see(checkpoint: Checkpoint, rank: Rank) -> None:
    """Rank zero has chosen, and read it whole; the others have to see the same file."""
    seen = rank.gather(checkpoint.identity())

    def check() -> None:
        others = [str(number) for number, found in enumerate(seen) if found != seen[0]]
        if others:
            raise TrainingError(
                f"{checkpoint.file}: rank {', '.join(others)} sees another file there than rank 0; use a folder that"
                " all nodes of the job share."
            )

    rank.on_zero(check)


def _finish(
    recipe: Recipe, prepared: Prepared, module: TrainingModule, seconds: float, trainer: Trainer
) -> TrainingResult:
    best = module.best_validation
    assert best is not None, "a run ends with a validation"
    folder = RunFolder(recipe.folder)
    kept, checkpoint = module.history[-1], None
    if recipe.keep_epoch == "best" and best["step"] != kept["step"]:
        of_best = folder.checkpoint_after(int(best["step"]))
        if not trainer.is_global_zero or of_best.is_intact():
            kept, checkpoint = best, of_best
        else:
            log.warning("%s, of the best epoch, is damaged or missing: the last epoch is kept instead.", of_best.file)
    card = {
        "recipe": recipe.to_dict(),
        "plan": prepared.plan.to_dict(),
        "model": {**describe_model(prepared.config), "trainable": sum(p.numel() for p in module.trainable.values())},
        "data": module.data,
        "results": {
            "last": module.history[-1],
            "best": best,
            "kept": kept,
            "confidence": _intervals(kept, prepared.plan.val_clips),
            "history": module.history,
        },
        "failed": {
            "train": [asdict(failure) for failure in module.train_failures.failures.values()],
            "val": [asdict(failure) for failure in module.val_failures.failures.values()],
        },
        "seconds": seconds,
        **describe_environment(),
    }
    if trainer.is_global_zero:
        start = module.model.training_data
        learnt = _training_data(prepared.sources, start, recipe.keep_epoch == "best")
        card["held_out_overlap"] = overlap = _held_out_overlap(prepared.sources, start)
        for which, count in (("this run", overlap["run"]), ("the model in init_from", overlap["start"])):
            if count:
                log.warning(
                    "%d of %d held-out videos are training videos of %s: their metrics are too good.",
                    *(count, overlap["videos"], which),
                )
        if learnt.left_out:
            log.warning(
                "no fingerprint in the model of %s (missing, or more than %s).",
                *(show_count(learnt.left_out, "training video"), f"{MAX_FILES:,}"),
            )
        state = _read_state(checkpoint or folder.checkpoints()[0], frozenset(module.trainable))
        model = Motionformer(prepared.config)
        model.load_state_dict(plain_state(state))
        model.training_data = learnt
        if lora := LoraSpec.parse(recipe.model.train):
            card["lora"] = _save_lora(recipe, model, state, lora, module.trainable)
        _save_model(model, recipe.folder / "model")
        folder.write_card(card)
    return _result(recipe.folder, card)


def _intervals(metrics: dict[str, int | float], videos: int) -> dict[str, dict[str, float]]:
    """95 % confidence intervals of the accuracies among the metrics."""
    intervals = {}
    for name in (name for name in metrics if name not in ("epoch", "step", "loss", "map")):
        correct = round(metrics[name] * videos)
        low, high = wilson(correct, videos)
        intervals[name] = {"low": low, "high": high, "correct": correct, "videos": videos}
    return intervals


def _training_data(sources: tuple[Source, Source], start: TrainingData | None, chosen: bool) -> TrainingData:
    """The training data of a model and of its initial weights; `chosen`: validation selected the epoch."""
    train, left_out = sources[0].video_set()
    made = TrainingData(train, sources[1].video_set()[0] if chosen else VideoSet(), left_out)
    return made if start is None else made | start


def _held_out_overlap(sources: tuple[Source, Source], start: TrainingData | None) -> dict[str, int]:
    """How many validation videos, by their contents, were trained on: in this run, or by the model in `init_from`."""
    train, held = sources[0].video_set()[0], sources[1].video_set()[0]
    pieces = [(key, span) for key, spans in held.spans.items() for span in spans]
    before = VideoSet() if start is None else start.train
    count = {"run": train, "start": before}
    return {
        "videos": len(pieces),
        **{name: sum(of.overlap(*piece) == "video" for piece in pieces) for name, of in count.items()},
    }


def _read_state(checkpoint: Checkpoint, trainable: frozenset[str]) -> dict[str, Tensor]:
    """The weights of a checkpoint: whole where the run's own are sharded, averaged where weights are averaged.

    Frozen ones are never averaged: the average of equal numbers is another number in the last bit.
    """
    content = checkpoint.read()
    state = {name.removeprefix("model."): weight for name, weight in content["state_dict"].items()}
    exact = {name.removeprefix("model."): weight for name, weight in content.get("current_model_state", {}).items()}
    return state | {name: exact[name] for name in state.keys() & exact.keys() - trainable}


def _save_model(model: Motionformer, folder: Path) -> None:
    """Written aside and renamed, so that a killed run leaves no partial model."""
    with _written_aside(folder) as aside:
        model.eval().save_pretrained(aside)


def _save_lora(
    recipe: Recipe, model: Motionformer, state: dict[str, Tensor], lora: LoraSpec, trainable: Iterable[str]
) -> dict[str, Any]:
    """Save the adapters beside the model, and merge them into it: the saved model needs no peft."""
    folder = recipe.folder / "lora"
    with _written_aside(folder) as aside:
        idle = save_lora(aside, model.config, state, lora, trainable, recipe.model.init_from)
        if model.training_data is not None:
            model.training_data.save(aside)
        merge_lora(model, aside)
    names = [name for name in state if ".lora_" in name]
    layers = len(names) // 2
    if idle:
        log.warning("%s: %s", folder, describe_idle(idle, layers))
    parameters = sum(state[name].numel() for name in names)
    return {"rank": lora.rank, "layers": layers, "parameters": parameters, "idle": idle}


@contextmanager
def _written_aside(folder: Path) -> Iterator[Path]:
    aside = folder.with_name(f".{folder.name}.part")
    shutil.rmtree(aside, ignore_errors=True)
    yield aside
    shutil.rmtree(folder, ignore_errors=True)
    aside.rename(folder)


def _result(folder: Path, card: dict[str, Any]) -> TrainingResult:
    results = card["results"]
    return TrainingResult(
        folder=folder,
        model=folder / "model",
        kept=results.get("kept", results["last"]),
        last=results["last"],
        best=results["best"],
        seconds=card["seconds"],
        card=card,
    )
