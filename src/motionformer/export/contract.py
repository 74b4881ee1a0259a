"""What a file format promises: write a traced model, and run what was written."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from torch import Tensor
from torch.export import ExportedProgram

Run = Callable[[Tensor], dict[str, Tensor]]
"""Clips `[b 3 t H W]` → logits by the name of their head."""


class Format(ABC):
    """One kind of file, named by its suffix."""

    @abstractmethod
    def write(self, program: ExportedProgram, path: Path, metadata: Mapping[str, Any]) -> None:
        """Write the program and its metadata as one file."""

    @abstractmethod
    def open(self, path: Path, outputs: tuple[str, ...]) -> Run:
        """The written file, ready to run by the means of whoever will use it."""
