"""A loss that is infinite or not a number ends the run, with the batch's videos written down."""

import json
from pathlib import Path

import torch
from torch import Tensor

from motionformer.errors import NonFiniteLossError
from motionformer.training.clips import Batch

REMEDIES = "a smaller optimiser.lr, a longer schedule.warmup, optimiser.clip_norm=1, or engine.precision=32-true"


def refuse_nonfinite(loss: Tensor, batch: Batch, step: int, rank: int, folder: Path) -> None:
    """Raise before the weights are touched; the checkpoints that exist stay good."""
    loss = loss.detach()
    if torch.isfinite(loss):
        return
    file = _write_down(loss, batch, step + 1, rank, folder / f"nonfinite-step-{step + 1}-rank-{rank}.json")
    raise NonFiniteLossError(
        f"the loss is {float(loss)} in step {step + 1}. The {len(batch['path'])} clips of the batch are listed in "
        f"{file}. Look at them, or use {REMEDIES}; the weights were not changed by this step."
    )


def refuse_nonfinite_validation(loss: Tensor, batch: Batch, step: int, rank: int, folder: Path) -> None:
    """Raise before anything is saved: a model that gives no numbers is not the result of a run."""
    loss = loss.detach()
    if torch.isfinite(loss):
        return
    name = f"nonfinite-validation-after-step-{step}-rank-{rank}.json"
    file = _write_down(loss, batch, step, rank, folder / name)
    raise NonFiniteLossError(
        f"the validation loss is {float(loss)} after step {step}. The {len(batch['path'])} clips of the batch are "
        f"listed in {file}. Look at them, or begin again in another output with {REMEDIES}; no model was saved."
    )


def _write_down(loss: Tensor, batch: Batch, step: int, rank: int, file: Path) -> Path:
    found = {
        "loss": str(float(loss)),
        "step": step,
        "rank": rank,
        "clips_finite": bool(torch.isfinite(batch["clip"]).all()),
        "clips": [{"index": int(i), "path": path} for i, path in zip(batch["index"], batch["path"], strict=True)],
    }
    file.write_text(json.dumps(found, indent=2), encoding="utf-8")
    return file
