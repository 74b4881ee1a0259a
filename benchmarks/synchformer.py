"""Synchformer's visual half as computed here, beside the plain class that computes every row: CPU time and memory.

    OMP_NUM_THREADS=1 python -m benchmarks.synchformer --rounds 5

Same weights and segments, both in one process, taking turns; processor time, of which the best counts. The memory that
a forward pass takes beyond weights and input is measured in a process of its own for each.
"""

import argparse
import time

import torch
from tests.literal.synchformer import LiteralVisual, randomise

from motionformer.compat.mmaudio import Synchformer
from motionformer.models.costs import step_peak

STEP = """
import sys, torch
from benchmarks.synchformer import build
torch.set_num_threads(1)
models, segments = build(int(sys.argv[2]))
model = models[sys.argv[1]]
for name in [name for name in models if name != sys.argv[1]]:
    del models[name]
def step():
    with torch.inference_mode():
        model(segments)
"""


def build(num_segments: int) -> tuple[dict[str, torch.nn.Module], torch.Tensor]:
    """Both with the same weights, and segments for them."""
    plain = randomise(LiteralVisual())
    ours = Synchformer().eval()
    ours.load_state_dict({f"vfeat_extractor.{name}": value for name, value in plain.state_dict().items()})
    generator = torch.Generator().manual_seed(0)
    return {"plain": plain, "ours": ours}, torch.randn(1, num_segments, 16, 3, 224, 224, generator=generator)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--segments", type=int, default=2)
    words = parser.parse_args()
    torch.set_num_threads(1)
    models, segments = build(words.segments)
    best = dict.fromkeys(models, float("inf"))
    with torch.inference_mode():
        outputs = {name: model(segments) for name, model in models.items()}
        for _ in range(words.rounds):
            for name, model in models.items():
                start = time.process_time()
                model(segments)
                best[name] = min(best[name], time.process_time() - start)
    apart = (outputs["plain"] - outputs["ours"]).abs().max().item()
    size = outputs["plain"].std().item()
    memory = {name: step_peak(STEP, name, str(words.segments)) for name in models}
    print(f"torch {torch.__version__}, 1 thread, {words.segments} segments, best of {words.rounds}")
    for name in models:
        print(f"{name:6} {best[name]:7.2f} s of processor time {memory[name] / 1e6:8.0f} MB")
    print(f"ratio  {best['plain'] / best['ours']:7.2f} × {memory['ours'] / memory['plain']:28.2f} ×")
    print(f"largest difference of the outputs: {apart:.1e} (their std {size:.2f})")


if __name__ == "__main__":
    main()
