"""`.pt2`: the archive of `torch.export`, for PyTorch without this package."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.export import ExportedProgram

from motionformer.export.contract import Format, Run

METADATA = "motionformer.json"
"""The name inside the archive: `torch.export.load(path, extra_files={METADATA: ""})` fills it in."""


class Pt2(Format):
    """`torch.export.load(path).module()(clip)` returns what the model returns."""

    def write(self, program: ExportedProgram, path: Path, metadata: Mapping[str, Any]) -> None:
        torch.export.save(program, path, extra_files={METADATA: json.dumps(metadata)})

    def open(self, path: Path, outputs: tuple[str, ...]) -> Run:
        module = torch.export.load(path).module()

        def run(clip: Tensor) -> dict[str, Tensor]:
            out = module(clip)
            return dict(out) if isinstance(out, dict) else {outputs[0]: out}

        return run
