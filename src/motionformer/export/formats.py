"""File formats: write a traced model, and run what was written. A new one is a `Format` and an entry in `FORMATS`."""

import json
import logging
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.export import ExportedProgram

from motionformer.errors import ExportError

Run = Callable[[Tensor], dict[str, Tensor]]
"""Clips `[b 3 t H W]` → logits by the name of their head."""
METADATA = "motionformer.json"
"""The name inside a .pt2 archive: `torch.export.load(path, extra_files={METADATA: ""})` fills it in."""
_MAX_ONNX_BYTES = 2_000_000_000  # a protobuf message ends at 2 GiB; the graph needs some of it


class Format(ABC):
    """One kind of file, chosen by its suffix."""

    @abstractmethod
    def write(self, program: ExportedProgram, path: Path, metadata: Mapping[str, Any]) -> None:
        """Write the program and its metadata as one file."""

    @abstractmethod
    def open(self, path: Path, outputs: tuple[str, ...]) -> Run:
        """Load the written file as its users will."""


class _Pt2(Format):
    """The archive of `torch.export`: `torch.export.load(path).module()(clip)` returns what the model returns."""

    def write(self, program: ExportedProgram, path: Path, metadata: Mapping[str, Any]) -> None:
        torch.export.save(program, path, extra_files={METADATA: json.dumps(metadata)})

    def open(self, path: Path, outputs: tuple[str, ...]) -> Run:
        module = torch.export.load(path).module()

        def run(clip: Tensor) -> dict[str, Tensor]:
            out = module(clip)
            return dict(out) if isinstance(out, dict) else {outputs[0]: out}

        return run


class _Onnx(Format):
    """ONNX with the weights inside: input `clip`, outputs by name, metadata as JSON texts in `metadata_props`."""

    def write(self, program: ExportedProgram, path: Path, metadata: Mapping[str, Any]) -> None:
        # the converter would fail too, after a minute and without naming the setting
        if any("linalg_solve" in str(node.target) for node in program.graph.nodes):
            raise ExportError(
                "an Orthoformer with `ridge` solves linear systems, which ONNX has no operator for: export it as .pt2."
            )
        size = sum(x.numel() * x.element_size() for x in program.state_dict.values())
        if size > _MAX_ONNX_BYTES:
            raise ExportError(f"{size / 1e9:.1f} GB of weights do not fit into one .onnx file (2 GB): use .pt2.")
        with warnings.catch_warnings(), _quiet("torch.onnx", "onnxscript"):
            warnings.simplefilter("ignore")  # deprecations inside the exporter; the result is checked
            try:
                made = torch.onnx.export(
                    program,
                    input_names=["clip"],
                    output_names=list(metadata["outputs"]),
                    dynamic_shapes={"clip": {0: "batch"}},
                    dynamo=True,
                    verbose=False,
                )
            except torch.onnx.errors.OnnxExporterError as error:
                raise ExportError("PyTorch could not convert this model to ONNX: export it as .pt2.") from error
        if made is None:
            raise ExportError("torch.onnx.export returned nothing.")
        for key, value in metadata.items():
            made.model.metadata_props[key] = json.dumps(value)
        made.save(path, external_data=False)

    def open(self, path: Path, outputs: tuple[str, ...]) -> Run:
        import onnxruntime

        try:
            session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
        except Exception as error:  # its errors have no common class
            reason = str(error).strip().splitlines()[0]
            raise ExportError(
                f"onnxruntime cannot run the exported model ({reason}). It computes in float32 on a CPU: export "
                "model.float(), or write a .pt2."
            ) from error

        def run(clip: Tensor) -> dict[str, Tensor]:
            found = session.run(list(outputs), {"clip": clip.cpu().numpy()})
            return {name: torch.from_numpy(array) for name, array in zip(outputs, found, strict=True)}

        return run


FORMATS: Mapping[str, Format] = {".pt2": _Pt2(), ".onnx": _Onnx()}


@contextmanager
def _quiet(*loggers: str) -> Iterator[None]:
    """Hide the converter's notes (torchvision is absent, a constant was not folded)."""
    levels = {name: logging.getLogger(name).level for name in loggers}
    for name in loggers:
        logging.getLogger(name).setLevel(logging.ERROR)
    try:
        yield
    finally:
        for name, level in levels.items():
            logging.getLogger(name).setLevel(level)
