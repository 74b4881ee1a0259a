"""Metrics of a run (`metrics.csv` and TensorBoard, optionally Weights & Biases), and its progress on the terminal.

A resumed run continues the same files: rows of steps after the checkpoint belong to steps that will be repeated, and
are dropped. Lightning's own CSV logger deletes the file of a run that resumes, so this one is ours.
"""

import csv
import importlib.util
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.loggers import Logger, TensorBoardLogger, WandbLogger
from lightning.pytorch.utilities import rank_zero_only
from rich.progress import BarColumn, TextColumn
from rich.progress import Progress as ProgressBar

from motionformer.distributed import is_rank_zero
from motionformer.errors import TrainingError
from motionformer.inference.metrics import wilson
from motionformer.logging import console
from motionformer.logging import logger as log
from motionformer.runs import write_csv
from motionformer.training.recipe import Recipe
from motionformer.training.run_folder import METRICS
from motionformer.training.trainer import Plan

_SECONDS_BETWEEN_WRITES = 5.0
_SECONDS_BETWEEN_MESSAGES = 30.0
_SECONDS_BETWEEN_REFRESHES = 0.2


def make_loggers(recipe: Recipe, steps_done: int) -> list[Logger]:
    """The loggers of a run that has done `steps_done` steps."""
    folder = recipe.folder
    loggers: list[Logger] = [
        _CsvLogger(folder / METRICS, steps_done),
        TensorBoardLogger(folder, name="", version="tensorboard", purge_step=steps_done + 1 if steps_done else None),
    ]
    if recipe.engine.wandb:
        if importlib.util.find_spec("wandb") is None:
            raise TrainingError(
                f"engine.wandb={recipe.engine.wandb} needs the package wandb (pip install wandb); leave the key empty "
                "to log to TensorBoard and CSV only."
            )
        loggers.append(WandbLogger(name=recipe.name, project=recipe.engine.wandb, save_dir=folder, resume="allow"))
    return loggers


class Progress(Callback):
    """Time used, resumed runs included, and progress: a bar on a terminal, a message now and then in a log file."""

    def __init__(self, recipe: Recipe, plan: Plan, *, quiet: bool = False) -> None:
        self.recipe, self.plan = recipe, plan
        self._before, self._started = 0.0, time.monotonic()
        self._first_step, self._train_started = 0, self._started
        self._validations, self._validation_seconds, self._validation_started = 0, 0.0, 0.0
        self._shown = self._started
        shows_bar = not quiet and is_rank_zero() and console.file.isatty() and not console.is_dumb_terminal
        self._bar = _make_bar() if shows_bar else None

    @property
    def state_key(self) -> str:
        return "Clock"  # its name in the checkpoints of version 0.1

    @property
    def seconds(self) -> float:
        """Training and validation, up to the last checkpoint of an interrupted run included."""
        return self._before + time.monotonic() - self._started

    def state_dict(self) -> dict[str, Any]:
        return {"seconds": self.seconds}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self._before = float(state_dict["seconds"])

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._first_step, self._train_started = trainer.global_step, time.monotonic()
        if self._bar is not None:
            self._bar.add_task("", total=self.plan.total_steps, completed=self._first_step, loss="", left="")
            self._bar.start()
            self._update_bar(trainer.global_step)

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        if (batch_idx + 1) % self.plan.accumulation:
            return
        step, now = trainer.global_step, time.monotonic()
        if self._bar is not None and (now - self._shown > _SECONDS_BETWEEN_REFRESHES or step == self.plan.total_steps):
            self._shown = now
            self._update_bar(step, loss=f"loss {pl_module.last_loss:.4g}", left=self._left(step))
        elif self._bar is None and now - self._shown > _SECONDS_BETWEEN_MESSAGES:
            self._shown = now
            where = f"epoch {self._epoch(step)} of {self.recipe.epochs}, step {step} of {self.plan.total_steps}"
            log.info("%s: loss %.4g, %s", where, pl_module.last_loss, self._left(step))

    def on_validation_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._validation_started = time.monotonic()
        if self._bar is not None and self._bar.tasks:
            self._update_bar(trainer.global_step, description="validation")

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        now = time.monotonic()
        self._validations += 1
        self._validation_seconds += now - self._validation_started
        self._shown = now
        entry: dict[str, int | float] = pl_module.history[-1]  # type: ignore[assignment,index]
        scores = ", ".join(self._score(name, value) for name, value in entry.items() if name not in ("epoch", "step"))
        where = f"epoch {entry['epoch']:g} of {self.recipe.epochs}, step {entry['step']:g} of {self.plan.total_steps}"
        log.info("%s: %s", where, scores)

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if self._bar is not None:
            self._update_bar(trainer.global_step, left="")
        self._stop()

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        self._stop()

    def _stop(self) -> None:
        if self._bar is not None:
            self._bar.stop()

    def _update_bar(self, step: int, **fields: Any) -> None:
        assert self._bar is not None
        fields = {"description": f"epoch {self._epoch(step)}/{self.recipe.epochs}", **fields}
        self._bar.update(self._bar.task_ids[0], completed=step, **fields)
        self._bar.refresh()

    def _epoch(self, step: int) -> int:
        """Counted from 1; after the last step of an epoch still that epoch."""
        return max(1, -(-step // self.plan.steps_per_epoch))

    def _left(self, step: int) -> str:
        """Of the whole run: steps at their mean time so far, and validations at theirs once one was seen."""
        done = step - self._first_step
        if done < 1:
            return ""
        seconds = time.monotonic() - self._train_started - self._validation_seconds
        left = seconds / done * (self.plan.total_steps - step)
        if self._validations:
            every, epochs = self.recipe.engine.validate_epochs, self.recipe.epochs
            due = sum(e % every == 0 or e == epochs for e in range(step // self.plan.steps_per_epoch + 1, epochs + 1))
            left += self._validation_seconds / self._validations * due
        return f"{timedelta(seconds=round(left))} left"

    def _score(self, name: str, value: float) -> str:
        if name in ("loss", "map"):
            return f"{name} {value:.4g}"
        low, high = wilson(round(value * self.plan.val_clips), self.plan.val_clips)
        return f"{name} {value:.4g} (95 % CI {low:.3g}–{high:.3g})"


def _make_bar() -> ProgressBar:
    """One line of any width. Refreshed by its owner: a thread of its own could hold a lock when workers are forked."""
    return ProgressBar(
        TextColumn("{task.description}"),
        BarColumn(bar_width=None),
        TextColumn("step {task.completed}/{task.total}"),
        TextColumn("{task.fields[loss]}"),
        TextColumn("{task.fields[left]}"),
        console=console,
        auto_refresh=False,
        expand=True,
    )


class _CsvLogger(Logger):
    """A row per step, a column per metric. The file is replaced as a whole, so that it is never half written."""

    def __init__(self, file: Path, steps_done: int) -> None:
        super().__init__()
        self.file = file
        self.rows: dict[int, dict[str, Any]] = {}
        self.columns = ["step"]
        self._written = 0.0
        if steps_done and file.exists():
            self._read(steps_done)

    @property
    def name(self) -> str:
        return self.file.stem

    @property
    def version(self) -> int:
        return 0

    @rank_zero_only
    def log_hyperparams(self, *args: Any, **kwargs: Any) -> None:
        """Nothing: the recipe has a file of its own."""

    @rank_zero_only
    def log_metrics(self, metrics: Any, step: int | None = None) -> None:
        number = len(self.rows) if step is None else step
        self.rows.setdefault(number, {"step": number}).update(metrics)
        self.columns += [name for name in metrics if name not in self.columns]
        if time.monotonic() - self._written > _SECONDS_BETWEEN_WRITES:
            self.save()

    @rank_zero_only
    def save(self) -> None:
        if not self.rows:  # no file: a run has begun once it has metrics
            return
        self.file.parent.mkdir(parents=True, exist_ok=True)
        rows = (self.rows[step] for step in sorted(self.rows))
        write_csv(self.file, [self.columns, *([row.get(name) for name in self.columns] for row in rows)])
        self._written = time.monotonic()

    @rank_zero_only
    def finalize(self, status: str) -> None:
        self.save()

    def _read(self, steps_done: int) -> None:
        with self.file.open(newline="", encoding="utf-8") as stream:
            reader = csv.DictReader(stream)
            self.columns = list(reader.fieldnames or self.columns)
            for row in reader:
                if int(row["step"]) <= steps_done:
                    self.rows[int(row["step"])] = dict(row)
