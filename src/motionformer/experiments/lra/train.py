"""Train one model on one task: AdamW, one cycle of the learning rate, the checkpoint that is best on development.

A run is a folder: `log.csv` (a line per evaluation), `last.pt` (everything needed to resume), `best.pt` (the weights
that are tested), `result.json`. Started again with the same settings and data, it resumes; the result is the same as
without the interruption.
"""

import ctypes
import io
import json
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from motionformer.deprecation import rename_deprecated
from motionformer.errors import CheckpointError
from motionformer.experiments.lra.examples import (
    Batch,
    Examples,
    Splits,
    Task,
    every_batch,
    fingerprint,
    spread,
    training_batches,
)
from motionformer.experiments.lra.model import SequenceClassifier
from motionformer.models.motionformer import evaluating
from motionformer.runs import header_differences, lock_folder, write_atomically, write_csv

_Row = dict[str, float | int]
_EPSILON = 1e-6
"""AdamW's, as in the public code of the comparison; that clips no gradients either."""
_GROUP = 64
"""Examples that are sorted by length before they are tested."""
_TOKENS_AT_A_TIME = 8192
"""Of one pass on a CPU: more leave the cache and pad more (docs/decisions.md, "sequences of like length")."""
_TRIM_EVERY = 8
"""Steps after which freed memory goes back to the system."""


RENAMED = {"attend": "kernel"}
"""Settings of 0.1, as stored runs have them, and their names now."""


@dataclass(frozen=True)
class Run:
    """The settings of a run; all but the first two default to the task's own (`complete`)."""

    task: str
    kernel: str
    seed: int = 0
    steps: int = 0
    batch: int = 0
    warmup: int = 0
    lr: float = 1e-4
    evaluate_every: int = 0
    dev_examples: int | None = None
    """Development examples to evaluate on, evenly spread; None is all."""
    at_a_time: int | None = None
    """Sequences of like length per forward pass [default: 8,192 tokens on a CPU, all of them elsewhere].

    The gradient is that of the whole batch in any case; dropout and the starts of prototypes are drawn part by part.
    """

    def complete(self, task: Task) -> "Run":
        steps = self.steps or task.steps
        return replace(
            self,
            steps=steps,
            batch=self.batch or task.batch,
            warmup=self.warmup or task.warmup_of(steps),
            evaluate_every=self.evaluate_every or max(1, steps // 50),
        )


@dataclass(frozen=True)
class Result:
    """Accuracies of the best checkpoint, and what the run took."""

    run: Run
    dev_accuracy: float
    test_accuracy: float
    best_step: int
    seconds: float


def train(
    task: Task,
    splits: Splits,
    run: Run,
    out: Path,
    *,
    device: str = "cpu",
    report: Callable[[int, _Row], None] = lambda step, row: None,
) -> Result:
    """Train in folder `out`, or resume there; `report` is called after each step and each evaluation."""
    with lock_folder(out, "training"):
        return _train(task, splits, run.complete(task), out, device, report)


def _train(task: Task, splits: Splits, run: Run, out: Path, device: str, report: Callable[[int, _Row], None]) -> Result:
    torch.manual_seed(run.seed)  # weights, dropout and the start of the search for prototypes
    state = _State(SequenceClassifier(task, run.kernel).to(device), run, fingerprint(splits))
    if (out / "last.pt").exists():
        state.load(out / "last.pt")
    started = time.monotonic() - state.seconds
    dev = splits.dev if run.dev_examples is None else spread(splits.dev, run.dev_examples)
    for batch in training_batches(splits.train, run.batch, run.seed, state.step, run.steps):
        loss = state.learn(batch.to(torch.device(device)).parts(run.at_a_time or _together(batch, device)))
        report(state.step, {"loss": loss})
        if state.step % _TRIM_EVERY == 0:
            _trim_memory()
        if state.step % run.evaluate_every == 0 or state.step == run.steps:
            state.seconds = time.monotonic() - started
            row = state.judge(_accuracy(state.model, dev, run.at_a_time, device))
            report(state.step, row)
            if state.is_best(row["dev_accuracy"]):
                write_atomically(out / "best.pt", _pack({"step": state.step, "model": state.model.state_dict()}))
            write_csv(out / "log.csv", [list(state.rows[0]), *(row.values() for row in state.rows)])
            state.save(out / "last.pt")
    return _finish(state, splits.test, out, device)


@torch.no_grad()
def _accuracy(model: nn.Module, examples: Examples, at_a_time: int | None = None, device: str = "cpu") -> float:
    """The share of examples that the model classifies correctly; `at_a_time` as in `Run`."""
    right = 0
    with evaluating(model):
        for group in every_batch(examples, _GROUP):
            for part in group.to(torch.device(device)).parts(at_a_time or _together(group, device)):
                right += int((model(part.tokens, part.mask).argmax(dim=-1) == part.labels).sum())
    return right / len(examples)


class _State:
    """Everything that changes during a run."""

    def __init__(self, model: SequenceClassifier, run: Run, data: dict[str, str]) -> None:
        self.model, self.run, self.data = model.train(), run, data
        self.device = next(model.parameters()).device
        self.optimiser = torch.optim.AdamW(model.parameters(), lr=run.lr, eps=_EPSILON, weight_decay=0.0)
        share = min(0.99, max(1.5, run.warmup) / run.steps)  # a cycle that rises in one step is a division by zero
        self.schedule = torch.optim.lr_scheduler.OneCycleLR(
            self.optimiser, run.lr, total_steps=run.steps, pct_start=share, anneal_strategy="linear"
        )
        self.step, self.best, self.best_step, self.seconds = 0, -1.0, 0, 0.0
        self.rows: list[_Row] = []
        self._losses: list[float] = []

    def learn(self, parts: Iterable[Batch]) -> float:
        """One step on a batch that comes in parts; its mean loss."""
        parts = list(parts)
        count = sum(len(part.labels) for part in parts)
        self.optimiser.zero_grad()
        loss = 0.0
        for part in parts:
            logits = self.model(part.tokens, part.mask)
            share = F.cross_entropy(logits, part.labels, reduction="sum") / count
            share.backward()
            loss += share.item()
        self.optimiser.step()
        self.schedule.step()
        self.step += 1
        self._losses.append(loss)
        return loss

    def judge(self, dev_accuracy: float) -> _Row:
        loss = sum(self._losses) / len(self._losses)
        self._losses.clear()
        row = {"step": self.step, "loss": loss, "dev_accuracy": dev_accuracy, "seconds": self.seconds}
        self.rows.append(row)
        return row

    def is_best(self, dev_accuracy: float) -> bool:
        """Whether this evaluation is the best so far; it is remembered if so. The first of equals stays."""
        if dev_accuracy <= self.best:
            return False
        self.best, self.best_step = dev_accuracy, self.step
        return True

    def save(self, file: Path) -> None:
        """Between an evaluation and the next step, where no loss is pending."""
        content = {
            "run": asdict(self.run),
            "data": self.data,
            "step": self.step,
            "best": (self.best, self.best_step),
            "seconds": self.seconds,
            "rows": self.rows,
            "model": self.model.state_dict(),
            "optimiser": self.optimiser.state_dict(),
            "schedule": self.schedule.state_dict(),
            "random": torch.get_rng_state(),
            "random_cuda": torch.cuda.get_rng_state(self.device) if self.device.type == "cuda" else None,
        }
        write_atomically(file, _pack(content))

    def load(self, file: Path) -> None:
        content = _unpack(file)
        data = content.get("data", self.data)  # a run that does not name its data resumes with any
        differ = header_differences(
            {**rename_deprecated(content["run"], RENAMED, file=file), **data}, {**asdict(self.run), **self.data}
        )
        if differ:
            raise CheckpointError(
                f"{file} belongs to another run: {', '.join(differ)}. Choose another --output, or remove it."
            )
        self.model.load_state_dict(content["model"])
        self.optimiser.load_state_dict(content["optimiser"])
        self.schedule.load_state_dict(content["schedule"])
        self.step, self.seconds, self.rows = content["step"], content["seconds"], content["rows"]
        self.best, self.best_step = content["best"]
        torch.set_rng_state(content["random"])
        of_cuda = content.get("random_cuda")  # dropout on CUDA draws from a generator of the device
        if of_cuda is not None and self.device.type == "cuda":
            torch.cuda.set_rng_state(of_cuda, self.device)


def _finish(state: _State, test: Examples, out: Path, device: str) -> Result:
    """The stored result if it is that of this run on these data; else the test is run."""
    untested = Result(state.run, state.best, 0.0, state.best_step, state.seconds)
    tested = _tested(out / "result.json", untested, state.data)
    if tested is not None:
        return tested
    state.model.load_state_dict(_unpack(out / "best.pt")["model"])
    result = replace(untested, test_accuracy=_accuracy(state.model, test, state.run.at_a_time, device))
    write_atomically(out / "result.json", json.dumps({**asdict(result), "data": state.data}, indent=2))
    return result


def _tested(file: Path, untested: Result, data: dict[str, str]) -> Result | None:
    """`untested` with the accuracy of a file that agrees with it in all else, to the second it took."""
    try:
        stored = json.loads(file.read_bytes())
        stored["run"] = rename_deprecated(stored["run"], RENAMED, file=file)
        result = replace(untested, test_accuracy=float(stored["test_accuracy"]))
    except (OSError, ValueError, KeyError, TypeError):  # none, or a damaged one: it is written again
        return None
    return result if stored == {**asdict(result), "data": data} else None


def _together(batch: Batch, device: str) -> int:
    """Sequences per pass by default: such that their tokens stay in a CPU's cache; all of them elsewhere."""
    tokens = batch.tokens[0].numel()  # of the longest example
    return max(1, _TOKENS_AT_A_TIME // tokens) if device == "cpu" else len(batch.labels)


def _trim_memory() -> None:
    """Batches of ever other lengths fragment glibc's heap: without this a run of 2,000 steps grows to gigabytes."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None) if sys.platform == "linux" else None
    if trim is not None:  # musl has none
        trim(0)


def _pack(content: dict[str, Any]) -> bytes:
    buffer = io.BytesIO()
    torch.save(content, buffer)
    return buffer.getvalue()


def _unpack(file: Path) -> dict[str, Any]:
    try:
        content: dict[str, Any] = torch.load(file, weights_only=True, map_location="cpu")
    except Exception as error:  # a truncated or foreign file fails in many ways
        raise CheckpointError(f"{file} cannot be read as a checkpoint: {error}") from error
    return content
