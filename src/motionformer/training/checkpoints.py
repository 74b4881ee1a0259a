"""Checkpoints that survive a kill at any moment.

A checkpoint is a file of Lightning's and, beside it, its SHA-256, which is written first: a file without one, or that
does not match, is damaged. They are saved between optimiser steps only, never inside an accumulation.
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
from motionformer.runs import atomic_write, write_atomically
from motionformer.training.plan import Plan

log = logging.getLogger("motionformer")
DISK_IS_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class CheckpointCallback(Checkpoint):
    """Saves at the end of every epoch, and every `every` steps within one; keeps the last `keep`, and with `keep_best`
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
        self.flush()  # these steps will not be logged again
        trainer.save_checkpoint(checkpoint_file(self.folder, trainer.global_step))
        if trainer.is_global_zero:
            best = cast(Any, trainer.lightning_module).best_validation if self.keep_best else None
            for file in list_checkpoints(self.folder)[self.keep :]:
                if best is None or step_of(file) != best["step"]:
                    _remove(file)


class AtomicCheckpointIO(TorchCheckpointIO):
    """Reads and writes Lightning's checkpoints."""

    def save_checkpoint(self, checkpoint: dict[str, Any], path: Any, storage_options: Any = None) -> None:
        _write_checkpoint(checkpoint, Path(path))

    def load_checkpoint(self, path: Any, map_location: Any = None, weights_only: bool | None = None) -> dict[str, Any]:
        """Tensors and plain values only: no code in the file is executed."""
        loaded: dict[str, Any] = torch.load(path, map_location=map_location or "cpu", weights_only=True)
        return loaded


def _write_checkpoint(checkpoint: dict[str, Any], file: Path) -> None:
    """All or nothing; a full disk leaves the older checkpoints as they are."""
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with atomic_write(file) as stream:
            hashed = _Hashed(stream)
            hashed.save(checkpoint)
            write_atomically(file.with_suffix(".sha256"), f"{hashed.sha256.hexdigest()}  {file.name}\n")
        handle = os.open(file.parent, os.O_RDONLY)  # the new name is on the disk too
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
    except OSError as error:
        raise disk_error(error, file) from error


def find_checkpoint(folder: Path) -> Path | None:
    """The last intact checkpoint. Damaged ones after it are named in a warning; `discard_after` removes them."""
    for file in list_checkpoints(folder):
        if is_intact(file):
            return file
        log.warning("%s is damaged (its SHA-256 does not match); using the checkpoint before it.", file)
    return None


def discard_after(folder: Path, last: Path | None) -> None:
    """Remove what a killed run left: damaged checkpoints and unfinished files."""
    for file in list_checkpoints(folder):
        if file == last:
            break
        _remove(file)
    for file in folder.glob(".*.part"):
        file.unlink(missing_ok=True)


def list_checkpoints(folder: Path) -> list[Path]:
    """Newest first."""
    return sorted(folder.glob("step-*.ckpt"), key=step_of, reverse=True)


def checkpoint_file(folder: Path, step: int) -> Path:
    return folder / f"step-{step:08d}.ckpt"


def step_of(file: Path) -> int:
    return int(file.stem.removeprefix("step-"))


def read_notes(file: Path) -> dict[str, Any]:
    """What `TrainingModule` added to a checkpoint; the weights are not read."""
    notes: dict[str, Any] = torch.load(file, map_location="cpu", weights_only=True, mmap=True)["motionformer"]
    return notes


def is_intact(file: Path) -> bool:
    try:
        expected = file.with_suffix(".sha256").read_text(encoding="ascii").split()[0]
        found = hashlib.sha256()
        with file.open("rb") as stream:
            while piece := stream.read(1 << 20):
                found.update(piece)
    except (OSError, IndexError, UnicodeDecodeError):
        return False
    return found.hexdigest() == expected


def _remove(file: Path) -> None:
    file.unlink(missing_ok=True)
    file.with_suffix(".sha256").unlink(missing_ok=True)


def disk_error(error: OSError, file: Path) -> TrainingError:
    if error.errno in DISK_IS_FULL:
        return TrainingError(
            f"{file}: the disk is full ({error.strerror}). Saved checkpoints are intact: free some space and run the "
            "same command again; it resumes from the last checkpoint."
        )
    return TrainingError(f"{file}: cannot be written ({error.strerror or error}).")


class _Hashed:
    """A file whose checksum is computed while it is written."""

    def __init__(self, stream: Any) -> None:
        self.stream, self.sha256 = stream, hashlib.sha256()
        self.error: OSError | None = None

    def save(self, checkpoint: dict[str, Any]) -> None:
        """`torch.save`, with the disk's error: closing its archive raises another one."""
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
