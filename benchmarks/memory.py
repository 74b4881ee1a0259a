"""Peak memory of a training step, each model in a process of its own, read from the operating system."""

import json
import os
import subprocess
import sys

CODE = """
import sys, torch
from motionformer import create_model
from tests.literal.trajectory import literal_model
torch.set_num_threads(1)
name, literal = sys.argv[1], sys.argv[2] == "literal"
options = {"recompute": True} if sys.argv[2] == "recompute" else {}
model = create_model(name, drop_path=0.0, **options)
model = literal_model(model) if literal else model
clip = torch.randn(1, 3, 16, 224, 224)
for parameter in model.parameters():
    parameter.grad = torch.ones_like(parameter)  # gradients are there in any case: what is measured is the rest
def status(key):  # not getrusage, whose peak a process inherits from the one that started it
    return 1024 * int(next(line for line in open("/proc/self/status") if line.startswith(key)).split()[1])
before = status("VmRSS:")
model(clip).square().mean().backward()
print(status("VmHWM:") - before)
"""


def training_step_bytes(name: str, how: str) -> int:
    """Bytes beyond weights and gradients; `how` is ours, recompute or literal."""
    environment = {**os.environ, "MALLOC_MMAP_THRESHOLD_": "65536", "MALLOC_TRIM_THRESHOLD_": "65536"}
    done = subprocess.run(
        [sys.executable, "-c", CODE, name, how], capture_output=True, text=True, check=True, env=environment
    )
    return int(json.loads(done.stdout))
