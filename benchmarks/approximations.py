"""CPU time of the base model's attention layer with each approximation, beside exact attention, forward and backward.

python -m benchmarks.approximations               # half a minute on one core
"""

import argparse
import time

import torch

from motionformer.attention import (
    ExactAttention,
    NystromAttention,
    OrthoformerAttention,
    PerformerAttention,
    TrajectoryAttention,
)

DIM, HEADS, FRAMES, PATCHES = 768, 12, 8, 196
WAYS = {
    "exact": ExactAttention,
    "Performer, 256 features": lambda: PerformerAttention(DIM // HEADS, 256),
    "Nyström, 128": lambda: NystromAttention(128),
    "Orthoformer, 128": lambda: OrthoformerAttention(128),
    "Orthoformer, 128, improved": lambda: OrthoformerAttention.improved(128),
    "Orthoformer, 128 of each frame": lambda: OrthoformerAttention(128, shared=False),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=4)
    rounds = parser.parse_args().rounds
    torch.set_num_threads(1)
    torch.manual_seed(0)
    tokens = torch.randn(1, 1 + FRAMES * PATCHES, DIM, requires_grad=True)
    layers = {name: TrajectoryAttention(DIM, HEADS, kernel=make()) for name, make in WAYS.items()}
    best = dict.fromkeys(layers, float("inf"))
    for _ in range(rounds):  # contestants take turns, the best of each counts
        for name, layer in layers.items():
            started = time.process_time()
            layer(tokens, FRAMES).square().mean().backward()
            best[name] = min(best[name], time.process_time() - started)
    print("| | forward + backward | of exact |\n|---|---:|---:|")
    for name, seconds in best.items():
        print(f"| {name} | {seconds:.2f} s | {seconds / best['exact']:.2f}× |")


if __name__ == "__main__":
    main()
