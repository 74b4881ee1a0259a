"""How many queries to process at once: a matter of memory and cache, never of the result.

The intermediate of trajectory attention is h · c numbers a query, 37 kB at base size. Processed all at once it leaves
every cache and, on a CPU, is fetched from the operating system page by page: 1.3 to 1.7 times slower.
"""

from torch import Tensor

CPU_BUDGET = 4 << 20
"""Elements of the [b n h c] intermediate held at once on a CPU: 16 MB of float32, about one last-level cache."""
ACCELERATOR_BUDGET = 128 << 20
"""The same elsewhere, where few large kernels win: 256 MB of bfloat16."""


def automatic_chunk(q: Tensor) -> int:
    """Queries a chunk for queries `[b h n d]`, from the budget of their device."""
    b, h, _, d = q.shape
    budget = CPU_BUDGET if q.device.type == "cpu" else ACCELERATOR_BUDGET
    return max(32, budget // (b * h * h * d))
