"""Peak memory of a training step, each model in a process of its own, read from the operating system.

`python -m benchmarks.memory` measures the memory column of the paper's table 3 at base size, by its recipes.
"""

import json
import os
import subprocess
import sys
from dataclasses import replace

from motionformer.models import ModelConfig
from motionformer.training.model import build_config
from motionformer.training.recipe import load_recipe
from motionformer.training.shipped import find_recipe

TABLE = {
    "exact": "base",
    "Performer, 256 features": "t3a-performer",
    "Nyström, 128": "t3a-nystrom",
    "Orthoformer, 128": "t3a-orthoformer",
    "random prototypes, 128": "t3b-random",
    "segment means, 128": "t3b-segments",
    "Orthoformer, 64": "t3c-64",
    "Orthoformer, 16": "t3c-16",
    "Orthoformer, 128 of each frame": "t3d-per-frame",
}
"""Rows of table 3, and the recipe of each."""
CODE = """
import json, sys, torch
from motionformer import ModelConfig, Motionformer
from tests.literal.trajectory import literal_model
torch.set_num_threads(1)
torch.manual_seed(0)
model = Motionformer(ModelConfig.from_dict(json.loads(sys.argv[1]))).train()
model = literal_model(model) if sys.argv[2] == "literal" else model
clip = torch.randn(1, 3, 16, 224, 224)
for parameter in model.parameters():
    parameter.grad = torch.ones_like(parameter)  # gradients are there in any case: what is measured is the rest
def status(key):  # not getrusage, whose peak a process inherits from the one that started it
    return 1024 * int(next(line for line in open("/proc/self/status") if line.startswith(key)).split()[1])
before = status("VmRSS:")
model(clip).square().mean().backward()
print(status("VmHWM:") - before)
"""


def main() -> None:
    print("| | beyond weights and gradients | of exact |\n|---|---:|---:|")
    exact = 0
    for label, recipe in TABLE.items():
        size = training_step_bytes(build_config(load_recipe(find_recipe(f"k400/{recipe}")), 400))
        exact = exact or size
        print(f"| {label} | {size / 1e6:,.0f} MB | {size / exact:.2f}× |", flush=True)


def training_step_bytes(config: ModelConfig, how: str = "ours") -> int:
    """Bytes beyond weights and gradients, one clip of 16 × 224 × 224, no dropped paths; `how` is ours, recompute or
    literal."""
    config = replace(config, drop_path=0.0, recompute=how == "recompute")
    environment = {**os.environ, "MALLOC_MMAP_THRESHOLD_": "65536", "MALLOC_TRIM_THRESHOLD_": "65536"}
    words = [sys.executable, "-c", CODE, json.dumps(config.to_dict()), how]
    done = subprocess.run(words, capture_output=True, text=True, check=True, env=environment)
    return int(json.loads(done.stdout))


if __name__ == "__main__":
    main()
