"""Lightning's Trainer as the recipe's `engine` part describes it."""

import logging
import signal
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, cast

from lightning.fabric.plugins.environments.slurm import SLURMEnvironment
from lightning.fabric.utilities.exceptions import MisconfigurationException
from lightning.pytorch import Callback, Trainer
from lightning.pytorch.loggers import Logger
from lightning.pytorch.strategies import ModelParallelStrategy

from motionformer.distributed import Launcher, find_launcher
from motionformer.errors import LaunchError, TrainingError
from motionformer.training.checkpoints import AtomicCheckpointIO
from motionformer.training.plan import Plan
from motionformer.training.recipe import EnginePart, Recipe

_IGNORED_WARNINGS = (
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


def count_processes(recipe: Recipe) -> int:
    """The world size: Lightning looks for devices, launchers and schedulers."""
    return _build(recipe, 1, logger=False, enable_progress_bar=False).world_size


def make_trainer(recipe: Recipe, plan: Plan, loggers: list[Logger], callbacks: list[Callback]) -> Trainer:
    """The Trainer of a run."""
    return _build(
        recipe,
        plan.processes,
        logger=loggers,
        callbacks=callbacks,
        enable_progress_bar=False,  # ours is among the callbacks
        accumulate_grad_batches=plan.accumulation,
    )


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


@contextmanager
def interruptible() -> Iterator[None]:
    """Ctrl-C stays a KeyboardInterrupt: Lightning cleans up, but then exits with code 1 and leaves Ctrl-C ignored."""
    before = signal.getsignal(signal.SIGINT)
    try:
        yield
    except SystemExit as error:
        if not isinstance(error.__context__, KeyboardInterrupt):
            raise
        signal.signal(signal.SIGINT, before)
        raise KeyboardInterrupt from error


def _build(recipe: Recipe, processes: int, **options: Any) -> Trainer:
    engine = recipe.engine
    launcher = find_launcher()
    devices, nodes = _devices_and_nodes(engine, launcher)
    strategy: Any = engine.strategy
    if strategy == "fsdp":  # `fully_shard`, which also runs on CPUs; checkpoints hold whole weights
        strategy = ModelParallelStrategy(
            data_parallel_size=processes, tensor_parallel_size=1, save_distributed_checkpoint=False
        )
    plugins: list[Any] = [AtomicCheckpointIO()]
    try:
        if launcher is not None and launcher.name == "SLURM":
            plugins.append(SLURMEnvironment(auto_requeue=False))  # submitting the same command again resumes
        return Trainer(
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
            default_root_dir=recipe.folder,
            **options,
        )
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
