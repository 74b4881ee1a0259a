"""Lightning's Trainer as the recipe's `engine` part asks for it: configured, not re-implemented."""

import logging
import signal
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, cast

from lightning.fabric.plugins.environments.slurm import SLURMEnvironment
from lightning.fabric.utilities.exceptions import MisconfigurationException
from lightning.pytorch import Callback, Trainer
from lightning.pytorch.callbacks import RichProgressBar
from lightning.pytorch.loggers import Logger
from lightning.pytorch.utilities import rank_zero_only

from motionformer.errors import TrainingError
from motionformer.training.checkpoints import AtomicCheckpointIO
from motionformer.training.launch import SLURM, devices_and_nodes, find_launch
from motionformer.training.plan import Plan
from motionformer.training.recipe import Recipe
from motionformer.training.sharding import sharded_strategy

NOT_USEFUL = (
    r".*does not have many workers.*",  # the recipe says how many; on small machines none is fastest
    r".*smaller than the logging interval.*",  # we log by ourselves
    r".*ended before the epoch ended and your dataloader is not resumable.*",  # ours is: training/order.py
    r".*Checkpoint directory .* exists and is not empty.*",  # it is the run that goes on
    r".*Grad strides do not match bucket view strides.*",  # the class token's, of a batch of one clip
    r".*`isinstance\(treespec, LeafSpec\)` is deprecated.*",  # inside Lightning
    r".*lr_scheduler\.step\(\)` before `optimizer\.step\(\)`.*",  # a step that the fp16 scaler skipped
    r".*recommended to use `self\.log\(.*sync_dist=True\)`.*",  # torchmetrics has put all processes together already
)


def count_processes(recipe: Recipe) -> int:
    """How many processes will train, all nodes together: Lightning looks for devices, launchers and schedulers."""
    return _build(recipe, 1, logger=False, enable_progress_bar=False).world_size


def make_trainer(
    recipe: Recipe, plan: Plan, loggers: list[Logger], callbacks: list[Callback], *, quiet: bool
) -> Trainer:
    """The Trainer of a run."""
    shows_progress = sys.stderr.isatty() and not quiet
    bar = [RichProgressBar(console_kwargs={"stderr": True})] if shows_progress else []
    return _build(
        recipe,
        plan.processes,
        logger=loggers,
        callbacks=[*callbacks, *bar],
        enable_progress_bar=shows_progress,
        accumulate_grad_batches=plan.accumulation,
    )


def _build(recipe: Recipe, processes: int, **options: Any) -> Trainer:
    engine = recipe.engine
    launch = find_launch()
    devices, nodes = devices_and_nodes(engine, launch)
    plugins: list[Any] = [AtomicCheckpointIO()]
    try:
        if launch is not None and launch.by == SLURM:
            plugins.append(SLURMEnvironment(auto_requeue=False))  # submit the same command again: it goes on by itself
        return Trainer(
            accelerator=engine.accelerator,
            devices=devices,
            num_nodes=nodes,
            strategy=sharded_strategy(processes) if engine.strategy == "fsdp" else engine.strategy,
            precision=cast(Any, engine.precision),  # Lightning knows which there are
            max_epochs=recipe.epochs,
            gradient_clip_val=recipe.optimiser.clip_norm or None,
            check_val_every_n_epoch=engine.validate_epochs,
            num_sanity_val_steps=0,  # would be a validation before the first step
            use_distributed_sampler=False,  # training/order.py
            plugins=plugins,
            enable_checkpointing="callbacks" in options,  # else Lightning adds one of its own
            enable_model_summary=False,
            default_root_dir=recipe.folder,
            **options,
        )
    except (MisconfigurationException, ValueError, RuntimeError) as error:
        raise TrainingError(f"recipe {recipe.name!r}: the engine cannot be set up: {error}") from error


def is_first_process() -> bool:
    """Whether this process is the one that writes and speaks, as far as launcher and scheduler told it so far."""
    return getattr(rank_zero_only, "rank", 0) in (0, None)


@contextmanager
def without_chatter() -> Iterator[None]:
    """Leave out what Lightning tells about itself, and warnings that do not hold here. Others get through."""
    loggers = [logging.getLogger(name) for name in ("lightning.pytorch", "lightning.fabric")]
    levels = [logger.level for logger in loggers]
    with warnings.catch_warnings():
        for message in NOT_USEFUL:
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
