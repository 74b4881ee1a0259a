"""The peak memory of a training step as the operating system saw it, in a process of its own (Linux).

`measure.py` counts tensors; this also sees what kernels allocate inside. Neither knows the other's figure.
"""

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

from motionformer.errors import MotionformerError
from motionformer.models.config import ModelConfig

PEAK_RESET = Path("/proc/self/clear_refs")
"""Where a process of Linux makes its peak of memory count from now."""


def training_step_peak(config: ModelConfig) -> int:
    """Bytes of one step of one clip beyond weights and gradients, no dropped paths, one thread."""
    return step_peak(MODEL_STEP, json.dumps(replace(config, drop_path=0.0).to_dict()))


def step_peak(source: str, *words: str) -> int:
    """Bytes that `step()` takes beyond what was there before it; `source` is Python that defines it, given `words`."""
    if not PEAK_RESET.exists():
        raise MotionformerError(
            f"memory is measured on Linux only ({PEAK_RESET} is not here). Multiply-adds need none of it: "
            "`motionformer lra costs --no-memory`, `motionformer reproduce a5`."
        )
    # small blocks go back to the system at once, so that the peak is that of live tensors
    environment = {**os.environ, "MALLOC_MMAP_THRESHOLD_": "65536", "MALLOC_TRIM_THRESHOLD_": "65536"}
    command = [sys.executable, "-c", source + _MEASURE, *words, str(PEAK_RESET)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    if done.returncode:
        raise MotionformerError(f"the step whose memory was to be measured failed:\n{done.stderr}")
    return int(done.stdout)


MODEL_STEP = """
import json, sys, torch
from motionformer import ModelConfig, Motionformer
from torch.utils._pytree import tree_leaves
torch.set_num_threads(1)
torch.manual_seed(0)
model = Motionformer(ModelConfig.from_dict(json.loads(sys.argv[1]))).train()
spec = model.config.input
clip = torch.randn(1, 3, spec.frames, spec.height, spec.width)
for parameter in model.parameters():
    parameter.grad = torch.ones_like(parameter)  # gradients are there in any case: what is measured is the rest
def step():
    sum(leaf.square().mean() for leaf in tree_leaves(model(clip))).backward()
"""
_MEASURE = """
def status(key):  # not getrusage, whose peak a process inherits from the one that started it
    return 1024 * int(next(line for line in open("/proc/self/status") if line.startswith(key)).split()[1])
before = status("VmRSS:")
open(sys.argv[-1], "w").write("5")  # the peak counts from here
step()
print(status("VmHWM:") - before)
"""
