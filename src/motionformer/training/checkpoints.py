"""Checkpoints that survive a kill at any moment: written aside, flushed to the disk, then renamed into place.

A checkpoint is a file of Lightning's and, beside it, its SHA-256, which is there first: a file without one, or that
does not match, is not a checkpoint. They are written between optimiser steps only, never inside an accumulation.
"""

import errno
import hashlib
import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any, cast

import torch
from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.callbacks import Checkpoint
from lightning.pytorch.plugins.io import TorchCheckpointIO

from motionformer.errors import TrainingError
from motionformer.runs import write_atomically
from motionformer.training.plan import Plan

log = logging.getLogger("motionformer")
SUFFIX, SUM = ".ckpt", ".sha256"
DISK_IS_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class KeepCheckpoints(Checkpoint):
    """Saves at the end of every epoch, and every `every` steps within one; the last `keep` stay, and with `keep_best`
    that of the best validation.

    Lightning calls checkpoint callbacks after all others, so averaged weights are those of this step.
    """

    def __init__(
        self, folder: Path, plan: Plan, *, every: int, keep: int, flush: Callable[[], None], keep_best: bool = False
    ) -> None:
        self.folder, self.plan, self.every, self.keep, self.flush = folder, plan, every, keep, flush
        self.keep_best = keep_best

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        step = trainer.global_step
        stepped = (batch_idx + 1) % self.plan.accumulation == 0
        ends_epoch = step % self.plan.steps_per_epoch == 0  # saved after its validation, below
        if self.every and stepped and step % self.every == 0 and not ends_epoch:
            self._save(trainer)

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._save(trainer)

    def _save(self, trainer: Trainer) -> None:
        self.flush()  # what the loggers hold of these steps would not be logged again
        trainer.save_checkpoint(checkpoint_file(self.folder, trainer.global_step))
        if trainer.is_global_zero:
            best = best_validation(cast(Any, trainer.lightning_module)) if self.keep_best else None
            for file in list_checkpoints(self.folder)[self.keep :]:
                if best is None or step_of(file) != best["step"]:
                    remove_checkpoint(file)


def best_validation(module: Any) -> dict[str, int | float] | None:
    """The entry of a `TrainingModule`'s history with the best metric; of equal ones, the lower loss."""
    return max(module.history, key=lambda entry: (entry[module.objective.best], -entry["loss"]), default=None)


class AtomicCheckpointIO(TorchCheckpointIO):
    """How Lightning's checkpoints get to the disk and back."""

    def save_checkpoint(self, checkpoint: dict[str, Any], path: Any, storage_options: Any = None) -> None:
        write_checkpoint(checkpoint, Path(path))

    def load_checkpoint(self, path: Any, map_location: Any = None, weights_only: bool | None = None) -> dict[str, Any]:
        """Tensors and plain values only: nothing in the file is executed."""
        loaded: dict[str, Any] = torch.load(path, map_location=map_location or "cpu", weights_only=True)
        return loaded


def write_checkpoint(checkpoint: dict[str, Any], file: Path) -> None:
    """All or nothing; a full disk is an error of ours that leaves the older checkpoints as they are."""
    file.parent.mkdir(parents=True, exist_ok=True)
    aside = file.with_name(f".{file.name}.part")
    try:
        with aside.open("wb") as stream:
            hashed = _Hashed(stream)
            hashed.save(checkpoint)
            stream.flush()
            os.fsync(stream.fileno())
        write_atomically(file.with_suffix(SUM), f"{hashed.sha256.hexdigest()}  {file.name}\n")
        aside.replace(file)
        _sync_folder(file.parent)
    except OSError as error:
        aside.unlink(missing_ok=True)
        raise explain_disk(error, file) from error


def find_checkpoint(folder: Path) -> Path | None:
    """The last whole checkpoint. Broken ones after it are named in a warning; the caller may remove them."""
    for file in list_checkpoints(folder):
        if is_whole(file):
            return file
        log.warning("%s is damaged (its SHA-256 does not match); going back to the checkpoint before it.", file)
    return None


def remove_after(folder: Path, last: Path | None) -> None:
    """Remove what a killed run left behind: damaged checkpoints, and files never finished."""
    for file in list_checkpoints(folder):
        if file == last:
            break
        remove_checkpoint(file)
    for file in folder.glob(".*.part"):
        file.unlink(missing_ok=True)


def list_checkpoints(folder: Path) -> list[Path]:
    """Newest first."""
    return sorted(folder.glob(f"step-*{SUFFIX}"), key=step_of, reverse=True)


def checkpoint_file(folder: Path, step: int) -> Path:
    return folder / f"step-{step:08d}{SUFFIX}"


def step_of(file: Path) -> int:
    return int(file.stem.removeprefix("step-"))


def read_notes(file: Path) -> dict[str, Any]:
    """What `TrainingModule` wrote into a checkpoint beside the weights, which are not read."""
    notes: dict[str, Any] = torch.load(file, map_location="cpu", weights_only=True, mmap=True)["motionformer"]
    return notes


def is_whole(file: Path) -> bool:
    try:
        expected = file.with_suffix(SUM).read_text(encoding="ascii").split()[0]
        found = hashlib.sha256()
        with file.open("rb") as stream:
            while piece := stream.read(1 << 20):
                found.update(piece)
    except (OSError, IndexError, UnicodeDecodeError):
        return False
    return found.hexdigest() == expected


def remove_checkpoint(file: Path) -> None:
    file.unlink(missing_ok=True)
    file.with_suffix(SUM).unlink(missing_ok=True)


def explain_disk(error: OSError, file: Path) -> TrainingError:
    if error.errno in DISK_IS_FULL:
        return TrainingError(
            f"{file}: the disk is full ({error.strerror}). What was saved before is whole: make room and run the same "
            "command again, and the run goes on from the last checkpoint."
        )
    return TrainingError(f"{file}: cannot be written ({error.strerror or error}).")


class _Hashed:
    """A file that counts its checksum while it is written."""

    def __init__(self, stream: Any) -> None:
        self.stream, self.sha256 = stream, hashlib.sha256()
        self.error: OSError | None = None

    def save(self, checkpoint: dict[str, Any]) -> None:
        """`torch.save`, which turns an error of the disk into another one while it closes its archive."""
        try:
            torch.save(checkpoint, cast(IO[bytes], self))
        except (OSError, RuntimeError):
            if self.error is not None:
                raise self.error from None
            raise

    def write(self, data: Any) -> int:
        try:
            written: int = self.stream.write(data)
        except OSError as error:
            self.error = error
            raise
        self.sha256.update(data)
        return written

    def flush(self) -> None:
        self.stream.flush()


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
