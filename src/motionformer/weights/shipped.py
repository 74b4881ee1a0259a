"""Weights that come with the package, so that everything can be tried without a network.

`motion-tiny` is the recipe `motion/easy`: `motionformer train motion/easy`, then `python -m motionformer.weights.shipped
RUN/model` stores what it made here, in half precision.
"""

import shutil
import sys
from pathlib import Path

MOTION_TINY = "motion-tiny"
SHIPPED = {MOTION_TINY: Path(__file__).parent / MOTION_TINY}
"""Folders of `config.json` and `model.safetensors`, by the name that `load_model` takes."""


def ship(trained: Path, name: str = MOTION_TINY) -> Path:
    """Store a trained folder under a name: float16, which is half the size."""
    import torch
    from safetensors.torch import load_file, save_file

    there = SHIPPED[name]
    there.mkdir(parents=True, exist_ok=True)
    tensors = load_file(trained / "model.safetensors")
    save_file({key: value.to(torch.float16) for key, value in tensors.items()}, there / "model.safetensors")
    shutil.copyfile(trained / "config.json", there / "config.json")
    return there


if __name__ == "__main__":
    print(ship(Path(sys.argv[1])))
