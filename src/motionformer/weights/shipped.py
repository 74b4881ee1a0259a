"""Weights that come with the package, so that everything can be tried without a network.

`motion-tiny` is the recipe `motion/easy`. To make it anew: `motionformer train motion/easy`, then `ship("RUN/model")`.
"""

import shutil
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

from motionformer.models.training_data import TRAINING_DATA

MOTION_TINY = "motion-tiny"
SHIPPED = {MOTION_TINY: Path(__file__).parent / MOTION_TINY}
"""Folders of `config.json`, `model.safetensors` and `training_data.json`, by the name that `load_model` takes."""


def ship(trained: str | Path, name: str = MOTION_TINY) -> Path:
    """Store a trained folder under a name: float16, which is half the size."""
    trained, there = Path(trained), SHIPPED[name]
    there.mkdir(parents=True, exist_ok=True)
    tensors = load_file(trained / "model.safetensors")
    save_file({key: value.to(torch.float16) for key, value in tensors.items()}, there / "model.safetensors")
    for name in ("config.json", TRAINING_DATA):
        if (trained / name).exists():
            shutil.copyfile(trained / name, there / name)
    return there
