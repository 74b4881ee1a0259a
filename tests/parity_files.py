"""Where the released figures lie, and how close is close (tests/parity, float32: atol 1e-5, rtol 1e-4)."""

from pathlib import Path

import torch
from torch import Tensor

PARITY = Path(__file__).parent / "parity"


def close(found: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-4)
