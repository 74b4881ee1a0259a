"""What the contestants cost: multiply-adds of the ListOps encoder by the paper's convention, and measured memory.

Convention: multiply-adds, LayerNorm 5 an element, softmax nothing, batch 1, 2,048 tokens. The figures count the methods
as published: Nyström multiplies its inverse into the long n × r matrix and has a convolution of 35 taps beside it (ours
does neither), and Orthoformer searches among queries *and* keys (docs/lra.md, "costs").
"""

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from motionformer.errors import MotionformerError
from motionformer.lra.model import DEPTH, DIM, HIDDEN, NUM_HEADS

LENGTH = 2048
INVERSE_STEPS = 6
CONVOLUTION = 35
PUBLISHED = {"exact": 1.21, "performer-256": 0.49, "nystrom-128": 0.62, "orthoformer-64": 0.24}
"""GFLOPs of the paper's table for the ListOps encoder."""

PEAK_RESET = Path("/proc/self/clear_refs")
"""Where a process of Linux makes its peak of memory count from now."""


@dataclass(frozen=True)
class Cost:
    """One contestant: billions of multiply-adds here, in the paper (if it is there), and bytes of a training step."""

    attend: str
    gmacs: float
    published: float | None
    training_bytes: int | None


def encoder_macs(attend: str, n: int = LENGTH) -> int:
    """Multiply-adds of one sequence of n tokens through the encoder."""
    projections = 4 * n * DIM * DIM
    mlp = 2 * n * DIM * HIDDEN
    norm = 5 * n * DIM
    return DEPTH * (projections + mlp + 2 * norm + attention_macs(attend, n)) + norm


def attention_macs(attend: str, n: int) -> int:
    """Multiply-adds between the projections, all heads together."""
    kind, _, rest = attend.partition("-")
    if kind == "exact":
        return 2 * n * n * DIM
    r = int(rest.partition("-")[0])
    if kind == "performer":  # features of queries and keys; what features read and give; the normaliser
        return 4 * n * r * DIM + n * r * NUM_HEADS
    between = r * r * DIM  # landmarks with landmarks
    ends = 4 * n * r * DIM  # queries with prototypes, prototypes with keys, and values through both
    if kind == "nystrom":
        inverse = INVERSE_STEPS * 4 * NUM_HEADS * r**3
        return ends + between + inverse + n * r * r * NUM_HEADS + CONVOLUTION * n * DIM
    search = 2 * n * r * DIM
    if rest.endswith("-improved"):  # one Lloyd step (nearest, then mean), the overlap, and its solution
        return ends + search + 2 * n * r * DIM + between + NUM_HEADS * r**3 // 3 + between
    return ends + search


def compare_costs(attends: tuple[str, ...], *, memory_batch: int | None = 4) -> list[Cost]:
    """A cost for each contestant; memory is left out when `memory_batch` is None (it takes seconds each)."""
    return [
        Cost(
            attend,
            encoder_macs(attend) / 1e9,
            PUBLISHED.get(attend),
            None if memory_batch is None else training_bytes(attend, memory_batch),
        )
        for attend in attends
    ]


def training_bytes(attend: str, batch: int = 4, n: int = LENGTH) -> int:
    """Peak resident memory of one training step of the encoder beyond its weights, in a process of its own (Linux)."""
    if not PEAK_RESET.exists():
        raise MotionformerError(
            f"memory is measured on Linux only ({PEAK_RESET} is not here); `motionformer lra costs --no-memory` gives "
            "the rest."
        )
    # small blocks go back to the system at once, so that the peak is that of live tensors
    environment = {**os.environ, "MALLOC_MMAP_THRESHOLD_": "65536", "MALLOC_TRIM_THRESHOLD_": "65536"}
    words = [sys.executable, "-c", _STEP, attend, str(batch), str(n), str(DIM), str(PEAK_RESET)]
    done = subprocess.run(words, capture_output=True, text=True, env=environment)
    if done.returncode:
        raise RuntimeError(f"the training step of {attend} failed:\n{done.stderr}")
    return int(done.stdout)


_STEP = """
import sys, torch
from motionformer.lra.model import Encoder
torch.set_num_threads(1)
attend, batch, n, dim, peak_reset = sys.argv[1], *map(int, sys.argv[2:5]), sys.argv[5]
torch.manual_seed(0)
encoder = Encoder(attend)
def step(n):
    encoder(torch.randn(batch, n, dim), torch.ones(batch, n, dtype=torch.bool)).square().mean().backward()
def status(key):
    return 1024 * int(next(line for line in open("/proc/self/status") if line.startswith(key)).split()[1])
step(256)  # libraries load their code on first use
before = status("VmRSS:")
open(peak_reset, "w").write("5")  # the peak counts from here
step(n)
print(status("VmHWM:") - before)
"""
