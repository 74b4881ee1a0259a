"""What follows from a recipe and the devices: the plan of a run, and Lightning's Trainer for it.

`lr = optimiser.lr × global_batch / optimiser.lr_batch`: the learning rate scales with the batch.
"""

import logging
import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, cast

import torch
from lightning.fabric.plugins.environments.lightning import LightningEnvironment
from lightning.fabric.utilities.exceptions import MisconfigurationException
from lightning.pytorch import Callback, LightningModule, Trainer, callbacks
from lightning.pytorch.loggers import Logger, TensorBoardLogger
from lightning.pytorch.plugins.io import TorchCheckpointIO
from lightning.pytorch.strategies import ModelParallelStrategy

from motionformer.distributed import Launcher, Rank, current_rank, process_group
from motionformer.errors import LaunchError, RecipeError, StoppedError, TrainingError
from motionformer.logging import show_count
from motionformer.stopping import stop_reason
from motionformer.training.recipe import EnginePart, Recipe
from motionformer.training.run_folder import Checkpoint, RunFolder

_IGNORED_WARNINGS = (
    r".*`srun` command is available on your system but is not used.*",  # torchrun, or one process: `process_group`
    r".*does not have many workers.*",  # the recipe has the number; on small machines 0 is fastest
    r".*smaller than the logging interval.*",  # we log by ourselves
    r".*ended before the epoch ended and your dataloader is not resumable.*",  # ours is: datamodule.py
    r".*Checkpoint directory .* exists and is not empty.*",  # a resumed run
    r".*Grad strides do not match bucket view strides.*",  # the class token's, with a batch of one clip
    r".*`isinstance\(treespec, LeafSpec\)` is deprecated.*",  # inside Lightning
    r".*lr_scheduler\.step\(\)` before `optimizer\.step\(\)`.*",  # a step that the fp16 scaler skipped
    r".*recommended to use `self\.log\(.*sync_dist=True\)`.*",  # torchmetrics has reduced over processes already
    r".*WeightAveraging callback with a model that overrides the configure_model.*",  # ours shards with fsdp only
)


@dataclass(frozen=True)
class Plan:
    """The derived numbers of a run; the run card records them."""

    processes: int
    clips_at_once: int  # per process
    accumulation: int  # batches per optimiser step
    lr: float
    train_clips: int
    val_clips: int
    steps_per_epoch: int
    total_steps: int
    warmup_steps: int

    def position(self, step: int) -> tuple[int, int]:
        """The epoch that follows `step` optimiser steps, and how many of its own steps are done."""
        return divmod(step, self.steps_per_epoch)

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def make_plan(recipe: Recipe, train_clips: int, val_clips: int, processes: int | None = None) -> Plan:
    """Divide the global batch among the processes, and count steps. An incomplete last batch of an epoch is dropped.

    `processes` is the world size that Lightning finds (devices, launchers, schedulers) [default].
    """
    processes = processes or _build(recipe, 1, logger=False).world_size
    share, rest = divmod(recipe.global_batch, processes)
    if rest:
        near = [n * processes for n in (share, share + 1) if n]
        raise RecipeError(
            f"recipe {recipe.name!r}: `global_batch` ({recipe.global_batch}) must be divisible by the number of "
            f"processes ({processes}). Use global_batch={' or '.join(map(str, near))}, or another number of devices "
            "(engine.devices, engine.nodes)."
        )
    limit = min(share, recipe.engine.max_clips or share)
    clips_at_once = max(part for part in range(1, limit + 1) if share % part == 0)
    visits = train_clips * recipe.augmentation.repeats
    steps = visits // recipe.global_batch
    if steps == 0:
        raise RecipeError(
            f"recipe {recipe.name!r}: an epoch ({show_count(visits, 'training clip')}) is less than one global batch "
            f"of {recipe.global_batch}. Use global_batch={visits} or less, or more clips."
        )
    return Plan(
        processes=processes,
        clips_at_once=clips_at_once,
        accumulation=share // clips_at_once,
        lr=recipe.optimiser.lr * recipe.global_batch / recipe.optimiser.lr_batch,
        train_clips=train_clips,
        val_clips=val_clips,
        steps_per_epoch=steps,
        total_steps=steps * recipe.epochs,
        warmup_steps=round(recipe.schedule.warmup * steps),
    )


def make_trainer(recipe: Recipe, plan: Plan, loggers: list[Logger], others: list[Callback]) -> Trainer:
    """The Trainer of a run, with its checkpoints and `others` as callbacks."""
    called = [*others, _SaveCheckpoints(recipe, plan)]
    return _build(recipe, plan.processes, logger=loggers, callbacks=called, accumulate_grad_batches=plan.accumulation)


@contextmanager
def join_processes(recipe: Recipe) -> Iterator[Rank]:
    """Start the processes of a run, where the recipe has several devices and no launcher did, and join them all."""
    if Launcher.find() is None:
        starter = _build(recipe, 1, logger=False)
        if starter.strategy.launcher is not None and starter.world_size > 1:
            os.environ["LOCAL_WORLD_SIZE"] = str(starter.world_size // starter.num_nodes)
            starter.strategy.launcher.launch(lambda: None)
    with process_group(of_lightning=True) as rank:
        yield rank


@contextmanager
def quiet_lightning() -> Iterator[None]:
    """Hide Lightning's own messages, and warnings that do not apply here."""
    loggers = [logging.getLogger(name) for name in ("lightning.pytorch", "lightning.fabric")]
    levels = [logger.level for logger in loggers]
    with warnings.catch_warnings():
        for message in _IGNORED_WARNINGS:
            warnings.filterwarnings("ignore", message)
        for logger in loggers:
            logger.setLevel(logging.WARNING)
        try:
            yield
        finally:
            for logger, level in zip(loggers, levels, strict=True):
                logger.setLevel(level)


class _SaveCheckpoints(callbacks.Checkpoint):
    """At the end of every epoch, and every `checkpoint_steps` within one, between optimiser steps only; the last `keep`
    stay, and that of the best validation where it is the one to keep.

    Once a signal has asked any process to stop, a checkpoint is saved and the run ends: after the step, or, where the
    step ends an epoch, after its validation. Lightning calls checkpoint callbacks after all others, so averaged weights
    are those of this step.
    """

    def __init__(self, recipe: Recipe, plan: Plan) -> None:
        self.recipe, self.plan, self.folder = recipe, plan, RunFolder(recipe.folder)

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        step, every = trainer.global_step, self.recipe.engine.checkpoint_steps
        stepped = (batch_idx + 1) % self.plan.accumulation == 0
        ends_epoch = step % self.plan.steps_per_epoch == 0  # saved after its validation, below
        if not stepped or ends_epoch:
            return
        stops = current_rank().any_stopped()
        if stops or (every and step % every == 0):
            self._save(trainer, pl_module)
        if stops:
            self._stop(step)

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._save(trainer, pl_module)
        step = trainer.global_step
        if current_rank().any_stopped() and step < self.plan.total_steps:
            self._stop(step)

    def _stop(self, step: int) -> None:
        raise StoppedError(
            f"{self.recipe.folder}: {stop_reason()}. Saved a checkpoint after step {step} of {self.plan.total_steps};"
            " the same command resumes from it."
        )

    def _save(self, trainer: Trainer, pl_module: LightningModule) -> None:
        for logger in trainer.loggers:  # these steps will not be logged again
            logger.save()
            if isinstance(logger, TensorBoardLogger):
                logger.experiment.flush()
        trainer.save_checkpoint(self.folder.checkpoint_after(trainer.global_step).file)
        if trainer.is_global_zero:
            best = cast(Any, pl_module).best_validation if self.recipe.keep_epoch == "best" else None
            for checkpoint in self.folder.checkpoints()[self.recipe.engine.keep :]:
                if best is None or checkpoint.step != best["step"]:
                    checkpoint.remove()


class _Environment(LightningEnvironment):
    """Tells Lightning what `Launcher` found. Its own ways to find a launcher miss srun in interactive allocations."""

    def __init__(self, launcher: Launcher) -> None:
        super().__init__()
        self.launcher = launcher

    @property
    def creates_processes_externally(self) -> bool:
        return True

    @property
    def main_address(self) -> str:
        return self.launcher.address

    @property
    def main_port(self) -> int:
        return self.launcher.port

    def local_rank(self) -> int:
        return self.launcher.local_rank

    def node_rank(self) -> int:
        return self.launcher.rank // self.launcher.processes_per_node

    def teardown(self) -> None:
        """The variables stay: a program may train once more."""


class _CheckpointIO(TorchCheckpointIO):
    """Reads and writes Lightning's checkpoints."""

    def save_checkpoint(self, checkpoint: dict[str, Any], path: Any, storage_options: Any = None) -> None:
        Checkpoint(Path(path)).write(checkpoint)

    def load_checkpoint(self, path: Any, map_location: Any = None, weights_only: bool | None = None) -> dict[str, Any]:
        """Tensors and plain values only: no code in the file is executed."""
        loaded: dict[str, Any] = torch.load(path, map_location=map_location or "cpu", weights_only=True)
        return loaded


def _build(recipe: Recipe, processes: int, **options: Any) -> Trainer:
    engine = recipe.engine
    launcher = Launcher.find()
    devices, nodes = _devices_and_nodes(engine, launcher)
    strategy: Any = engine.strategy
    if strategy == "fsdp":  # `fully_shard`, which also runs on CPUs; checkpoints hold whole weights
        strategy = ModelParallelStrategy(
            data_parallel_size=processes, tensor_parallel_size=1, save_distributed_checkpoint=False
        )
    plugins: list[Any] = [_CheckpointIO()]
    plugins.append(LightningEnvironment() if launcher is None else _Environment(launcher))
    try:
        trainer = Trainer(
            accelerator=engine.accelerator,
            devices=devices,
            num_nodes=nodes,
            strategy=strategy,
            precision=cast(Any, engine.precision),  # Lightning checks it
            max_epochs=recipe.epochs,
            gradient_clip_val=recipe.optimiser.clip_norm or None,
            check_val_every_n_epoch=engine.validate_epochs,
            num_sanity_val_steps=0,  # would be a validation before the first step
            use_distributed_sampler=False,  # datamodule.py
            plugins=plugins,
            enable_checkpointing="callbacks" in options,  # else Lightning adds one of its own
            enable_model_summary=False,
            enable_progress_bar=False,  # ours is among the callbacks
            default_root_dir=recipe.folder,
            **options,
        )
        # its handler of SIGTERM communicates, which deadlocks, and ends with exit code 0: `stopping.py` has ours
        trainer._signal_connector.register_signal_handlers = lambda: None  # type: ignore[method-assign]
        return trainer
    except (MisconfigurationException, ValueError, RuntimeError) as error:
        raise TrainingError(f"recipe {recipe.name!r}: the engine cannot be set up: {error}") from error


def _devices_and_nodes(engine: EnginePart, launcher: Launcher | None) -> tuple[int | str | list[int], int]:
    """The recipe's devices and nodes; the launcher's where the recipe leaves them open: on a CPU Lightning would train
    alone in every process otherwise, and on several nodes it has to be told how many."""
    devices: int | str | list[int] = engine.devices
    if engine.devices != "auto":
        try:
            numbers = [int(part) for part in engine.devices.split(",") if part]
            devices = numbers if "," in engine.devices else numbers[0]
        except (ValueError, IndexError) as error:
            raise TrainingError(f"engine.devices={devices}: write auto, a number, or a list such as 0,1.") from error
    if launcher is None:
        return devices, engine.nodes
    per_node = launcher.processes_per_node
    asked = per_node if devices == "auto" else len(devices) if isinstance(devices, list) else devices
    if asked != per_node or engine.nodes not in (1, launcher.num_nodes):
        raise LaunchError(
            f"{launcher.name} started {per_node} processes on each of {launcher.num_nodes} nodes, but "
            f"engine.devices={engine.devices} and engine.nodes={engine.nodes}. Leave both out of the recipe, or start "
            "as many processes."
        )
    return per_node if devices == "auto" else devices, launcher.num_nodes
