"""A run folder: the recipe and data that it belongs to, its checkpoints, and its card.

It belongs to one recipe and its data from its first metrics on, and to one process at a time. Checkpoints survive a
kill at any moment. The card (recipe, data, hardware, software, results; `card.json` for scripts, `card.md` to read) is
written last: a folder with a card holds a finished run. Does not import Lightning.
"""

import errno
import hashlib
import importlib.metadata
import json
import logging
import os
import platform
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, cast

import torch

import motionformer
from motionformer.data import Failure, FailurePolicy
from motionformer.distributed import is_rank_zero
from motionformer.errors import TrainingError
from motionformer.inference.metrics import show_share
from motionformer.logging import show_count, show_some
from motionformer.models.config import ModelConfig
from motionformer.models.costs import measure
from motionformer.runs import atomic_write, header_differences, lock_folder, write_atomically
from motionformer.training.recipe import Recipe, load_recipe

log = logging.getLogger("motionformer")
METRICS = "metrics.csv"
_DISK_IS_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_PACKAGES = ("torch", "lightning", "torchmetrics", "omegaconf", "numpy", "av", "safetensors")
_MAY_DIFFER = (
    "output",
    "data.root",  # `check_same_data` compares the paths below it
    "data.workers",
    "data.max_failed_share",
    "engine.log_steps",
    "engine.checkpoint_steps",
    "engine.keep",
    "engine.wandb",
)
"""Keys that change neither weights nor steps: a run may resume with other values."""


@dataclass(frozen=True)
class RunFolder:
    """The folder of a run; `path` need not exist."""

    path: Path

    @contextmanager
    def claim(self, recipe: Recipe) -> Iterator[None]:
        """Write the recipe and lock the folder for the processes of this run; a full disk becomes our error."""
        try:
            with lock_folder(self.path, "training"):
                if is_rank_zero():
                    self.check_same_recipe(recipe)
                    write_atomically(self.path / "recipe.yaml", recipe.to_yaml())
                yield
        except OSError as error:
            if error.errno not in _DISK_IS_FULL:
                raise
            raise _disk_error(error, self.path) from error

    def has_begun(self) -> bool:
        """Whether the folder holds anything trained. A recipe alone is that of a run that could not begin."""
        return any((self.path / name).exists() for name in (METRICS, "card.json")) or bool(self.checkpoints())

    def check_same_recipe(self, recipe: Recipe) -> None:
        """Two recipes in one folder would make a run that is neither."""
        file = self.path / "recipe.yaml"
        if not (file.exists() and self.has_begun()):
            return
        there = load_recipe(file).to_dict()  # keys added since have their defaults
        if differing := header_differences(there, recipe.to_dict(), _MAY_DIFFER):
            raise TrainingError(
                f"{self.path} holds a run of another recipe: {'; '.join(differing)}. Use another output, or remove "
                "the folder."
            )

    def check_same_data(self, then: Mapping[str, Any], now: Mapping[str, Any]) -> None:
        """A run cannot resume with other videos or classes. Both arguments are of `describe_data`."""
        if "classes" not in then:  # written before it was compared
            return
        changes = _changed_classes(then["classes"], now["classes"])
        for name in ("train", "val"):
            before, after = then[name], now[name]
            if before["clips"] != after["clips"]:
                changes.append(f"data.{name} had {before['clips']}, now {after['clips']}")
            elif before["fingerprint"] != after["fingerprint"] and then["classes"] == now["classes"]:
                changes.append(f"data.{name} has as many, but with other paths, labels or times")
        if changes:
            raise TrainingError(
                f"{self.path}: the videos have changed since this run began: {'; '.join(changes)}. Use another output, "
                "or restore the videos and labels that it began with."
            )

    def checkpoints(self) -> list["Checkpoint"]:
        """Newest first."""
        files = (Checkpoint(file) for file in (self.path / "checkpoints").glob("step-*.ckpt"))
        return sorted(files, key=lambda checkpoint: checkpoint.step, reverse=True)

    def checkpoint_after(self, step: int) -> "Checkpoint":
        return Checkpoint(self.path / "checkpoints" / f"step-{step:08d}.ckpt")

    def find_checkpoint(self) -> "Checkpoint | None":
        """The last intact checkpoint. Damaged ones after it are named in a warning; `discard_after` removes them."""
        for checkpoint in self.checkpoints():
            if checkpoint.is_intact():
                return checkpoint
            log.warning("%s is damaged (its SHA-256 does not match); using the checkpoint before it.", checkpoint.file)
        return None

    def discard_after(self, last: "Checkpoint | None") -> None:
        """Remove what a killed run left: damaged checkpoints and unfinished files."""
        for checkpoint in self.checkpoints():
            if checkpoint == last:
                break
            checkpoint.remove()
        for file in (self.path / "checkpoints").glob(".*.part"):
            file.unlink(missing_ok=True)

    def read_card(self) -> dict[str, Any] | None:
        """The card of a finished run, or None."""
        file = self.path / "card.json"
        if not file.exists():
            return None
        card: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
        return card

    def write_card(self, card: dict[str, Any]) -> None:
        write_atomically(self.path / "card.md", _to_markdown(card))
        write_atomically(self.path / "card.json", json.dumps(card, indent=2) + "\n")


@dataclass(frozen=True)
class Checkpoint:
    """A file of Lightning's and, beside it, its SHA-256, which is written first: a file without one, or that does not
    match, is damaged."""

    file: Path

    @property
    def step(self) -> int:
        return int(self.file.stem.removeprefix("step-"))

    def write(self, content: dict[str, Any]) -> None:
        """All or nothing; a full disk leaves the older checkpoints as they are."""
        try:
            self.file.parent.mkdir(parents=True, exist_ok=True)
            with atomic_write(self.file) as stream:
                hashed = _Hashed(stream)
                hashed.save(content)
                write_atomically(self._checksum, f"{hashed.sha256.hexdigest()}  {self.file.name}\n")
            handle = os.open(self.file.parent, os.O_RDONLY)  # the new name is on the disk too
            try:
                os.fsync(handle)
            finally:
                os.close(handle)
        except OSError as error:
            raise _disk_error(error, self.file) from error

    def read(self, *, mmap: bool = False) -> dict[str, Any]:
        """Tensors and plain values only: no code in the file is executed."""
        content: dict[str, Any] = torch.load(self.file, map_location="cpu", weights_only=True, mmap=mmap)
        return content

    def read_notes(self) -> dict[str, Any]:
        """What `TrainingModule` added; the weights are not read."""
        notes: dict[str, Any] = self.read(mmap=True)["motionformer"]
        return notes

    def is_intact(self) -> bool:
        try:
            expected = self._checksum.read_text(encoding="ascii").split()[0]
            with self.file.open("rb") as stream:
                return hashlib.file_digest(stream, "sha256").hexdigest() == expected
        except (OSError, IndexError, UnicodeDecodeError):
            return False

    def identity(self) -> tuple[int, str] | None:
        """Its size and checksum as they stand there; None where it is not there."""
        try:
            return self.file.stat().st_size, self._checksum.read_text(encoding="ascii")
        except (OSError, UnicodeDecodeError):
            return None

    def remove(self) -> None:
        self.file.unlink(missing_ok=True)
        self._checksum.unlink(missing_ok=True)

    @property
    def _checksum(self) -> Path:
        return self.file.with_suffix(".sha256")


def _disk_error(error: OSError, file: Path) -> TrainingError:
    if error.errno in _DISK_IS_FULL:
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


def describe_environment() -> dict[str, Any]:
    """Devices, peak memory of this process (of the GPU where there is one), versions and commit."""
    if torch.cuda.is_available():
        names = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
        machine = {"devices": names, "peak_memory_bytes": torch.cuda.max_memory_allocated(), "memory": "GPU"}
    else:
        import resource  # not on every system

        unit = 1 if sys.platform == "darwin" else 1024
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
        device = f"CPU, {torch.get_num_threads()} threads"
        machine = {"devices": [device], "peak_memory_bytes": peak, "memory": "resident"}
    versions = {"motionformer": motionformer.__version__, "python": platform.python_version()}
    versions |= {name: importlib.metadata.version(name) for name in _PACKAGES}
    software = {"versions": versions, "commit": _git_commit(), "platform": platform.platform()}
    return {"machine": machine, "software": software}


def describe_model(config: ModelConfig) -> dict[str, Any]:
    cost = measure(config)
    return {
        "what": describe_shape(config),
        "parameters": cost.parameters,
        "multiply_adds": cost.macs,
        "input": config.to_dict()["input"],
    }


def describe_shape(config: ModelConfig) -> str:
    """Such as `trajectory attention, orthoformer kernel, 96 wide, 4 layers`."""
    kernel = "" if config.kernel.kind == "exact" else f"{config.kernel.kind} kernel, "
    return f"{config.attention} attention, {kernel}{config.dim} wide, {show_count(config.depth, 'layer')}"


def _git_commit() -> str | None:
    """The commit of this package's checkout, marked where files were changed; None if installed, also inside another
    repository."""
    here = Path(motionformer.__file__).parent
    try:
        _git(here, "ls-files", "--error-unmatch", Path(motionformer.__file__).name)
        commit = _git(here, "rev-parse", "HEAD")
        changed = _git(here, "status", "--porcelain", "--untracked-files=no", "--", ".")
    except (OSError, subprocess.CalledProcessError):
        return None
    return f"{commit} (changed)" if changed else commit


def _to_markdown(card: dict[str, Any]) -> str:
    plan, model, results = card["plan"], card["model"], card["results"]
    rows = {
        "model": f"{model['what']}, {model['parameters'] / 1e6:.2f} M parameters, "
        f"{model['multiply_adds'] / 1e9:.3f} G multiply-adds per clip",
        "data": f"{card['data']['train']['how']}; validation: {card['data']['val']['how']}",
        "steps": f"{plan['total_steps']} of {show_count(card['recipe']['global_batch'], 'clip')}, "
        f"{plan['steps_per_epoch']} per epoch",
        "batch": f"{show_count(plan['processes'], 'process')} × {show_count(plan['clips_at_once'], 'clip')} × "
        f"{plan['accumulation']} accumulated",
        "learning rate": f"{plan['lr']:.3g} ({card['recipe']['optimiser']['lr']:g} for "
        f"{card['recipe']['optimiser']['lr_batch']} clips)",
        "seed": card["recipe"]["seed"],
        "failed videos": f"{len(card['failed']['train'])} in training, {len(card['failed']['val'])} in validation",
        "time": f"{card['seconds']:.0f} s",
        "peak memory": f"{card['machine']['peak_memory_bytes'] / 1e6:.0f} MB ({card['machine']['memory']})",
        "devices": ", ".join(card["machine"]["devices"]),
        "commit": card["software"]["commit"] or "not a checkout",
        "versions": ", ".join(f"{name} {version}" for name, version in card["software"]["versions"].items()),
    }
    lines = [f"# {card['recipe']['name']}", "", "| | |", "|---|---|"]
    lines += [f"| {name} | {value} |" for name, value in rows.items()]
    lines += ["", "| validation | " + " | ".join(results["last"]) + " |", "|---" * (len(results["last"]) + 1) + "|"]
    for which in ("last", "best"):
        lines.append(f"| {which} | " + " | ".join(f"{value:.4g}" for value in results[which].values()) + " |")
    for name, sure in results.get("confidence", {}).items():
        lines += ["", f"{name} of the saved model: {show_share(sure['correct'], sure['videos'])}."]
    lines += ["", f"The saved model is {describe_kept_epoch(card)}. `recipe.yaml` repeats the run."]
    return "\n".join(lines) + "\n"


def describe_kept_epoch(card: dict[str, Any]) -> str:
    """The epoch of the saved model, and what that means for its metrics on the validation videos."""
    results = card["results"]
    kept = results.get("kept", results["last"])
    if card["recipe"].get("keep_epoch", "last") == "best" and kept["step"] == results["best"]["step"]:
        chosen = "chosen on these validation videos: its metrics are optimistic"
        return f"of epoch {kept['epoch']:g} of {card['recipe']['epochs']}, the best, {chosen}"
    return f"of the last epoch ({kept['epoch']:g}), not the best"


def describe_failures(card: dict[str, Any]) -> list[str]:
    """A sentence for training and one for validation, where videos could not be read."""
    lines = []
    for part, name, effect in (("train", "training", "skipped"), ("val", "validation", "counted as wrong")):
        policy = FailurePolicy.evaluation(card["data"][part]["clips"])
        policy.count(Failure(**values) for values in card["failed"][part])
        if policy.failures:
            lines.append(f"{name}: {policy.summary()}; {effect}")
    return lines


def _git(folder: Path, *words: str) -> str:
    done = subprocess.run(["git", "-C", str(folder), *words], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def _changed_classes(then: Any, now: Any) -> list[str]:
    if then == now:
        return []
    before, after = (
        [f"{task} {name}" for task, names in classes.items() for name in names]
        if isinstance(classes, Mapping)
        else classes
        for classes in (then, now)
    )
    gone, new = [name for name in before if name not in after], [name for name in after if name not in before]
    found = [f"{what} {show_some(names)}" for what, names in (("without", gone), ("new", new)) if names]
    return [f"other classes ({', '.join(found) or 'in another order'})"]
