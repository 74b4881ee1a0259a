"""A loss that is infinite or not a number ends the run, with the batch's videos written down."""

import json
from pathlib import Path

import torch
from torch import Tensor

from motionformer.errors import NonFiniteLossError
from motionformer.training.clips import Batch


def refuse_nonfinite(loss: Tensor, batch: Batch, step: int, rank: int, folder: Path) -> None:
    """Raise before the weights are touched; the checkpoints that exist stay good."""
    loss = loss.detach()
    if torch.isfinite(loss):
        return
    file = folder / f"nonfinite-step-{step + 1}-rank-{rank}.json"
    found = {
        "loss": str(float(loss)),
        "step": step + 1,
        "rank": rank,
        "clips_finite": bool(torch.isfinite(batch["clip"]).all()),
        "clips": [{"index": int(i), "path": path} for i, path in zip(batch["index"], batch["path"], strict=True)],
    }
    file.write_text(json.dumps(found, indent=2), encoding="utf-8")
    raise NonFiniteLossError(
        f"the loss is {float(loss)} in step {step + 1}. The {len(batch['path'])} clips of the batch are listed in "
        f"{file}. Look at them, or use a smaller optimiser.lr, a longer schedule.warmup, optimiser.clip_norm=1, or "
        f"engine.precision=32-true; the weights were not changed by this step."
    )
