"""Algorithm 1 of the paper as a plain loop."""

import torch
from torch import Tensor


def literal_selection(candidates: Tensor, num: int, start: Tensor) -> Tensor:
    """`[rows n d]` → indices `[rows num]`: again and again the candidate least aligned with all those taken."""
    rows, n, _ = candidates.shape
    unit = torch.nn.functional.normalize(candidates, dim=-1)
    every = torch.arange(rows)
    chosen = [start]
    taken = torch.zeros(rows, n, dtype=torch.bool)
    cosines = []
    for _ in range(1, num):
        newest = unit[every, chosen[-1]]
        taken[every, chosen[-1]] = True
        cosines.append(torch.einsum("rnd,rd->rn", unit, newest).abs())
        largest = torch.stack(cosines, dim=-1).amax(dim=-1)
        chosen.append(largest.masked_fill(taken, 10.0).argmin(dim=-1))
    return torch.stack(chosen, dim=1)
