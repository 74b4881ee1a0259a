"""Weights that come with the package, so that everything can be tried without a network.

`motion-tiny` is the recipe `motion/easy`. To make it anew: `motionformer train motion/easy`, then `ship("RUN/model")`.
"""

import shutil
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

MOTION_TINY = "motion-tiny"
SHIPPED = {MOTION_TINY: Path(__file__).parent / MOTION_TINY}
"""Folders of `config.json` and `model.safetensors`, by the name that `load_model` takes."""


def ship(trained: str | Path, name: str = MOTION_TINY) -> Path:
    """Store a trained folder under a name: float16, which is half the size."""
    trained, there = Path(trained), SHIPPED[name]
    there.mkdir(parents=True, exist_ok=True)
    tensors = load_file(trained / "model.safetensors")
    save_file({key: value.to(torch.float16) for key, value in tensors.items()}, there / "model.safetensors")
    shutil.copyfile(trained / "config.json", there / "config.json")
    return there
