"""Where a run's numbers go: `metrics.csv` and TensorBoard always, Weights & Biases when asked.

A resumed run goes on in the same files: rows of steps after the checkpoint belong to steps that will be done again,
and are dropped. Lightning's own CSV logger deletes the file of a run it continues, so this one is ours.
"""

import csv
import importlib.util
import io
import time
from pathlib import Path
from typing import Any

from lightning.pytorch.loggers import Logger, TensorBoardLogger, WandbLogger
from lightning.pytorch.utilities import rank_zero_only

from motionformer.errors import TrainingError
from motionformer.runs import write_atomically
from motionformer.training.recipe import Recipe

SECONDS_BETWEEN_WRITES = 5.0
METRICS = "metrics.csv"


def make_loggers(recipe: Recipe, steps_done: int) -> list[Logger]:
    """Loggers that continue after `steps_done` steps."""
    folder = recipe.folder
    loggers: list[Logger] = [
        CsvLog(folder / METRICS, steps_done),
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


def flush_loggers(loggers: list[Logger]) -> None:
    for logger in loggers:
        logger.save()
        if isinstance(logger, TensorBoardLogger):
            logger.experiment.flush()


class CsvLog(Logger):
    """A row a step, a column a metric. The file is replaced as a whole, so that it is never half written."""

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
        """The recipe has a file of its own."""

    @rank_zero_only
    def log_metrics(self, metrics: Any, step: int | None = None) -> None:
        number = len(self.rows) if step is None else step
        self.rows.setdefault(number, {"step": number}).update(metrics)
        self.columns += [name for name in metrics if name not in self.columns]
        if time.monotonic() - self._written > SECONDS_BETWEEN_WRITES:
            self.save()

    @rank_zero_only
    def save(self) -> None:
        if not self.rows:  # no file: a run has begun once it has numbers
            return
        text = io.StringIO()
        writer = csv.DictWriter(text, self.columns, lineterminator="\n")
        writer.writeheader()
        writer.writerows(self.rows[step] for step in sorted(self.rows))
        self.file.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(self.file, text.getvalue())
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
