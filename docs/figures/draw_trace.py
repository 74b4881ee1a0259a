"""Draws trace-schemes.png and trace-kinds.png from trained tiny models, which `benchmarks.path_error` makes.

python -m benchmarks.path_error --save build/trace-models
python docs/figures/draw_trace.py build/trace-models
"""

import sys
from pathlib import Path

from motionformer.trace import Comparison, compare, trace

HERE = Path(__file__).parent
CLIP = "motion:easy/5"  # the first whose disc never leaves the frame
SEED = 0


def main() -> None:
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else "build/trace-models")
    if not folder.is_dir():
        print(f"trace pictures are left as they are: no models in {folder} ({__doc__.splitlines()[2]})")
        return
    models = {
        "trajectory": folder / f"easy-motionformer-tiny-seed{SEED}",
        "joint": folder / f"easy-joint-tiny-seed{SEED}",
        "divided": folder / f"easy-divided-tiny-seed{SEED}",
    }
    compare(models, CLIP, layer="mean").save(HERE / "trace-schemes.png")
    kinds = [
        trace(models["trajectory"], CLIP, what=what, layer=layer, name="trajectory")
        for what, layer in (("class-token", 2), ("rollout", "last"), ("gradcam", 3))
    ]
    Comparison(tuple(kinds)).save(HERE / "trace-kinds.png")


if __name__ == "__main__":
    main()
