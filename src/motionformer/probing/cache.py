"""Frozen features of clips, computed once and kept on the disk.

A cache folder holds *sets*: a folder for each backbone and way of cutting clips, named by a digest of both, with
`about.json` and parts of some clips each, written whole or not at all. A clip is known by its file (size, time of
change, contents) and piece. A killed run has lost at most the part it was filling; a changed file is computed again.

Kept of every clip, in float16: what each readout without parameters makes of its tokens, and the tokens themselves
where those of all clips fit the budget. Sets that were not used for longest make room for a new one.
"""

import errno
import hashlib
import json
import logging
import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from motionformer.data import Failure, Record
from motionformer.data.fingerprints import fingerprint_records
from motionformer.errors import EvaluationError, OutputError, StoppedError
from motionformer.inference.evaluation import consume, load_groups
from motionformer.inference.scorer import Precision, Scorer
from motionformer.inference.views import FileVideos, model_fingerprint
from motionformer.logging import progress_bar, show_count
from motionformer.models import Motionformer
from motionformer.models.config import ReadoutKind
from motionformer.models.head import POOLED, READOUTS
from motionformer.runs import lock_folder, stamp_video, write_atomically
from motionformer.stopping import is_stop_requested, stop_reason

log = logging.getLogger("motionformer")
ABOUT, TOKENS = "about.json", "tokens"
_FORMAT = 1
_PART = 32
"""Clips of a part: what a killed run may compute again."""


class FeatureCache:
    """Features of the clips of `source`, from the disk or computed.

    Args:
        folder: of all sets.
        backbone: the frozen model; its own readout and head are not used.
        source: the videos, cut as the backbone takes them.
        budget: bytes that all sets together may take.
        precision: of the arithmetic.
        device: where to compute [default: where the backbone is].
        name: of the backbone, for messages.

    Raises:
        OutputError: the features do not fit the budget.
    """

    def __init__(
        self,
        folder: Path,
        backbone: Motionformer,
        source: FileVideos,
        *,
        budget: int,
        precision: Precision = "32",
        device: str | torch.device | None = None,
        batch_size: int = 8,
        name: str = "",
    ) -> None:
        self.scorer = Scorer(backbone.eval(), device, batch_size=batch_size, precision=precision)
        self.backbone, self.source, self.root, self.name = backbone, source, folder, name
        self.grid, dim = backbone.config.grid, backbone.config.dim
        self.readouts = {kind: READOUTS[kind].of(backbone.config) for kind in POOLED}
        widths = {kind: one.width(dim, self.grid) for kind, one in self.readouts.items()}
        f, rows, columns = self.grid
        tokens = dim * (backbone.config.num_prefix_tokens + f * rows * columns)
        clips = len(source.entries)
        self.bytes_pooled, self.bytes_tokens = 2 * clips * sum(widths.values()), 2 * clips * tokens
        if self.bytes_pooled > budget:
            raise OutputError(
                f"{folder}: the features of {clips} clips take {show_bytes(self.bytes_pooled)}, the budget is"
                f" {show_bytes(budget)}: allow more (--cache-size), or take fewer frames."
            )
        self.has_tokens = self.bytes_pooled + self.bytes_tokens <= budget
        self.num_bytes = self.bytes_pooled + (self.bytes_tokens if self.has_tokens else 0)
        self.budget = budget
        self.about = {
            "format": _FORMAT,
            "weights": model_fingerprint(backbone),
            "clip": source.protocol(),
            "precision": precision,
            "readouts": widths,
            "tokens": self.has_tokens,
        }
        text = json.dumps(self.about, sort_keys=True)
        self.folder = folder / hashlib.sha256(text.encode()).hexdigest()[:16]
        self.failures: dict[int, str] = {}
        """Why a clip could not be read, by its index."""
        self.computed = 0
        """Clips that were not on the disk."""
        self._where: dict[str, tuple[Path, int]] = {}

    @cached_property
    def keys(self) -> list[str]:
        """Of each clip: changes with its file and its piece."""
        records = self.source.annotations.records
        return [_clip_key(record, found) for record, found in zip(records, fingerprint_records(records), strict=True)]

    def fill(self, num_workers: int = 0, show_progress: bool = True) -> None:
        """Compute what is missing. What is complete stays on the disk, whatever ends the run.

        Raises:
            OutputError: the disk is full, or another process fills the same set.
            EvaluationError: a process that decodes died, or the features are not finite.
        """
        others = self._others()
        self._where = self._find_parts()
        missing = [index for index, key in enumerate(self.keys) if key not in self._where]
        log.info("features of %d of %s are in %s", len(self.keys) - len(missing), self._clips(), self.folder)
        if len(missing) == len(self.keys):
            for about in others:
                log.info("features of %s are there too: of another backbone or other clips, they are not used", about)
        if missing:
            with lock_folder(self.folder, "computing features"):
                self._make_room(others)
                write_atomically(self.folder / ABOUT, json.dumps({**self.about, "name": self.name}, indent=1))
                self._compute(missing, num_workers, show_progress)
            self._where = self._find_parts()
        os.utime(self.folder)  # used now

    def pooled(self, kind: ReadoutKind, indices: Sequence[int]) -> Float[Tensor, "n d"]:
        """What the readout makes of the clips' tokens."""
        return self._read(kind, indices)

    def tokens(self, indices: Sequence[int]) -> Float[Tensor, "n tokens c"]:
        """All tokens of the clips; only where `has_tokens`."""
        return self._read(TOKENS, indices)

    def _read(self, name: str, indices: Sequence[int]) -> Tensor:
        by_part: dict[Path, list[tuple[int, int]]] = {}
        for position, index in enumerate(indices):
            part, row = self._where[self.keys[index]]
            by_part.setdefault(part, []).append((position, row))
        rows: list[Tensor | None] = [None] * len(indices)
        for part, wanted in by_part.items():
            with safe_open(part, framework="pt") as opened:
                if len(wanted) > 1:
                    values = opened.get_tensor(name)
                    found = [values[row] for _, row in wanted]
                else:
                    found = [opened.get_slice(name)[row] for _, row in wanted]
            for (position, _), value in zip(wanted, found, strict=True):
                rows[position] = value
        return torch.stack([row for row in rows if row is not None]).float()

    def _find_parts(self) -> dict[str, tuple[Path, int]]:
        """The part and row of each clip; a damaged part is removed and computed again."""
        found: dict[str, tuple[Path, int]] = {}
        for part in sorted(self.folder.glob("*.safetensors")):
            try:
                with safe_open(part, framework="pt") as opened:
                    keys = json.loads(opened.metadata()["clips"])
            except (OSError, SafetensorError, KeyError, TypeError, ValueError) as error:
                log.warning("%s is damaged (%s); its clips are computed again", part, error)
                part.unlink(missing_ok=True)
                continue
            found |= {key: (part, row) for row, key in enumerate(keys)}
        return found

    def _compute(self, missing: list[int], num_workers: int, show_progress: bool) -> None:
        size = self.scorer.batch_size
        groups = [missing[i : i + size] for i in range(0, len(missing), size)]
        done: list[tuple[int, dict[str, Tensor]]] = []
        with progress_bar(show=show_progress) as progress:
            bar = progress.add_task("features", total=len(self.keys), completed=len(self.keys) - len(missing))

            def keep(items: list[Any]) -> None:
                done.extend(self._encode(items))
                if len(done) >= _PART:
                    self._write(done)
                progress.advance(bar, len(items))

            is_complete = consume(load_groups(self.source, groups, num_workers, self.scorer.device), keep, num_workers)
            if done:
                self._write(done)
        if is_stop_requested():
            raise StoppedError(f"{stop_reason()}. The features so far are in {self.folder}: the same command resumes.")
        if not is_complete:
            raise EvaluationError(
                "a process that decodes videos died. A broken file can cause this (`motionformer data check` finds"
                " it), or too little memory. The features so far are kept: the same command resumes from there."
            )

    @torch.inference_mode()
    def _encode(self, items: list[Any]) -> Iterator[tuple[int, dict[str, Tensor]]]:
        self.failures |= {index: one.reason for index, one in items if isinstance(one, Failure)}
        readable = [(index, one.views) for index, one in items if not isinstance(one, Failure)]
        if not readable:
            return
        with self.scorer.computing(len(readable)):
            tokens = self.backbone.forward_features(torch.cat([views for _, views in readable]).to(self.scorer.device))
        tokens = tokens.float()
        made: dict[str, Tensor] = {kind: readout(tokens, self.grid) for kind, readout in self.readouts.items()}
        if self.has_tokens:
            made[TOKENS] = tokens
        halves = {
            name: self.scorer.check_finite(value.half(), "features in float16").cpu() for name, value in made.items()
        }
        for row, (index, _) in enumerate(readable):
            yield index, {name: value[row] for name, value in halves.items()}

    def _write(self, done: list[tuple[int, dict[str, Tensor]]]) -> None:
        keys = [self.keys[index] for index, _ in done]
        values = {name: torch.stack([one[name] for _, one in done]) for name in done[0][1]}
        part = self.folder / f"{hashlib.sha256(' '.join(keys).encode()).hexdigest()[:16]}.safetensors"
        with self._full_disk():
            write_atomically(part, save(values, metadata={"clips": json.dumps(keys)}))
        self.computed += len(done)
        done.clear()

    @contextmanager
    def _full_disk(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise
            raise OutputError(
                f"{self.folder}: {error.strerror}. {show_count(len(self._where) + self.computed, 'clip')} are kept: the"
                f" same command resumes from there. All {self._clips()} take {show_bytes(self.num_bytes)}: make room,"
                f" another disk (--cache), or keep no tokens (--cache-size {show_bytes(self.bytes_pooled, True)})"
            ) from error

    def _clips(self) -> str:
        return show_count(len(self.keys), "clip")

    def _others(self) -> list[str]:
        """What other sets are of."""
        return [_describe(folder) for folder in self._other_folders()]

    def _other_folders(self) -> list[Path]:
        """Longest unused first."""
        found = [file.parent for file in self.root.glob(f"*/{ABOUT}") if file.parent != self.folder]
        return sorted(found, key=lambda folder: folder.stat().st_mtime)

    def _make_room(self, others: list[str]) -> None:
        """Remove sets that were not used for longest, until this one fits the budget."""
        folders = self._other_folders()
        taken = {folder: sum(file.stat().st_size for file in folder.iterdir()) for folder in folders}
        for folder, about in zip(folders, others, strict=True):
            if self.num_bytes + sum(taken.values()) <= self.budget:
                break
            log.info("%s: removed the features of %s, to stay within %s", folder, about, show_bytes(self.budget))
            shutil.rmtree(folder)
            del taken[folder]


def show_bytes(count: int, up: bool = False) -> str:
    """As `3.1 GB`; rounded up where it is to be enough."""
    unit, name = (1e9, "GB") if count >= 1e9 else (1e6, "MB")
    value = count / unit
    return f"{value + (0.1 if up else 0.0):.1f} {name}".replace(" ", "" if up else " ")


def _clip_key(record: Record, found: Any) -> str:
    stamp = stamp_video(record.path)
    key = f"{stamp}/{None if found is None else found[0]}/{record.start}/{record.end}/{record.fps}"
    return hashlib.sha256(key.encode()).hexdigest()[:24]


def _describe(folder: Path) -> str:
    try:
        about = json.loads((folder / ABOUT).read_text(encoding="utf-8"))
        clip = about["clip"]
        return f"{about['name']} ({clip['frames']} frames of {clip['height']} × {clip['width']})"
    except (OSError, ValueError, KeyError, TypeError):
        return str(folder)
