"""Draws trace-flat.png from the shipped model and an untrained one, trace-schemes.png and trace-kinds.png from trained
tiny models, which `motionformer reproduce a4` makes.

motionformer reproduce a4
python docs/figures/draw_trace.py runs/reproduce/runs
"""

import sys
from pathlib import Path

import torch

from motionformer import create_model
from motionformer.tracing import Comparison, compare, trace

HERE = Path(__file__).parent
CLIP = "motion:easy/5"  # the first whose disc never leaves the frame
SEED = "seed-1"  # results-a4-maps.png shows seed 0


def main() -> None:
    torch.manual_seed(0)
    pair = {"motion-tiny": "motion-tiny", "untrained": create_model("motionformer-tiny")}
    compare(pair, CLIP, layer="mean", scale="absolute").save(HERE / "trace-flat.png")
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else "runs/reproduce/runs")
    if not (folder / "motion-easy").is_dir():
        print(f"trace pictures are left as they are: no models in {folder} ({__doc__.splitlines()[3]})")
        return
    models = {
        "trajectory": folder / "motion-easy" / SEED / "model",
        "joint": folder / "motion-easy-joint" / SEED / "model",
        "divided": folder / "motion-easy-divided" / SEED / "model",
    }
    compare(models, CLIP, layer="mean").save(HERE / "trace-schemes.png")
    kinds = [
        trace(models["trajectory"], CLIP, what=what, layer=layer, name="trajectory")
        for what, layer in (("class-token", 2), ("rollout", "last"), ("gradcam", 3))
    ]
    Comparison(tuple(kinds)).save(HERE / "trace-kinds.png")


if __name__ == "__main__":
    main()
