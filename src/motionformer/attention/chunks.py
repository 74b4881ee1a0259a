"""How many queries to process at once: a matter of memory and cache, never of the result.

The trajectory of a query is f · c numbers, 25 kB at base size. All at once they leave every cache and, on a CPU, are
fetched from the operating system page by page; too few at once, and the fused kernel works on small blocks.
"""

import torch
from torch import Tensor

CPU_BUDGET = 6 << 20
"""Elements of the trajectories `[b f n c]` held at once on a CPU: 24 MB of float32, about one last-level cache."""
ACCELERATOR_BUDGET = 128 << 20
"""The same elsewhere, where few large kernels win: 256 MB of bfloat16."""


def automatic_chunk(q: Tensor, frames: int) -> int:
    """Queries a chunk for queries `[b h n d]`: even pieces that fit the budget of their device."""
    b, h, n, d = q.shape
    if torch.compiler.is_exporting():  # a number of pieces that depends on the batch would fix the batch
        return n
    budget = CPU_BUDGET if q.device.type == "cpu" else ACCELERATOR_BUDGET
    pieces = max(1, round(b * n * frames * h * d / budget))
    return max(32, -(-n // pieces))
