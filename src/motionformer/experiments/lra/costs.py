"""What the contestants cost: multiply-adds of the ListOps encoder by the paper's convention, and measured memory.

Convention: multiply-adds, LayerNorm 5 an element, softmax nothing, batch 1, 2,048 tokens. The figures count the methods
as published: Nyström multiplies its inverse into the long n × r matrix and has a convolution of 35 taps beside it (ours
does neither), and Orthoformer searches among queries *and* keys (docs/lra.md, "costs").
"""

from dataclasses import dataclass

from motionformer.experiments.lra.model import DEPTH, DIM, HIDDEN, NUM_HEADS
from motionformer.models.costs import step_peak

LENGTH = 2048
INVERSE_STEPS = 6
CONVOLUTION = 35
PUBLISHED = {"exact": 1.21, "performer-256": 0.49, "nystrom-128": 0.62, "orthoformer-64": 0.24}
"""GFLOPs of the paper's table for the ListOps encoder."""


@dataclass(frozen=True)
class Cost:
    """One contestant: billions of multiply-adds here, in the paper (if it is there), and bytes of a training step."""

    kernel: str
    gmacs: float
    published: float | None
    training_bytes: int | None


def encoder_macs(kernel: str, n: int = LENGTH) -> int:
    """Multiply-adds of one sequence of n tokens through the encoder."""
    projections = 4 * n * DIM * DIM
    mlp = 2 * n * DIM * HIDDEN
    norm = 5 * n * DIM
    return DEPTH * (projections + mlp + 2 * norm + attention_macs(kernel, n)) + norm


def attention_macs(kernel: str, n: int) -> int:
    """Multiply-adds between the projections, all heads together."""
    kind, _, rest = kernel.partition("-")
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


def compare_costs(kernels: tuple[str, ...], *, memory_batch: int | None = 4) -> list[Cost]:
    """A cost for each contestant; memory is left out when `memory_batch` is None (it takes seconds each)."""
    return [
        Cost(
            kernel,
            encoder_macs(kernel) / 1e9,
            PUBLISHED.get(kernel),
            None if memory_batch is None else training_bytes(kernel, memory_batch),
        )
        for kernel in kernels
    ]


def training_bytes(kernel: str, batch: int = 4, n: int = LENGTH) -> int:
    """Peak resident memory of one training step of the encoder beyond its weights, in a process of its own (Linux)."""
    return step_peak(_STEP, kernel, str(batch), str(n), str(DIM))


_STEP = """
import sys, torch
from motionformer.experiments.lra.model import Encoder
torch.set_num_threads(1)
kernel, batch, n, dim = sys.argv[1], *map(int, sys.argv[2:5])
torch.manual_seed(0)
encoder = Encoder(kernel)
def step(n=n):
    encoder(torch.randn(batch, n, dim), torch.ones(batch, n, dtype=torch.bool)).square().mean().backward()
step(256)  # libraries load their code on first use
"""
