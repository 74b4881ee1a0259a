"""`.onnx`: for onnxruntime and everything else that reads ONNX. The weights are inside the file."""

import json
import logging
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.export import ExportedProgram

from motionformer.errors import ExportError
from motionformer.export.contract import Format, Run

LARGEST = 2_000_000_000
"""A protobuf message ends at 2 GiB; the graph needs some of it."""


class Onnx(Format):
    """Input `clip`, outputs by name, metadata as JSON texts in `metadata_props`."""

    def write(self, program: ExportedProgram, path: Path, metadata: Mapping[str, Any]) -> None:
        _refuse_what_onnx_cannot_say(program)
        size = sum(x.numel() * x.element_size() for x in program.state_dict.values())
        if size > LARGEST:
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


@contextmanager
def _quiet(*loggers: str) -> Iterator[None]:
    """The converter's notes (torchvision is absent, a constant was not folded) are not for whoever exports."""
    levels = {name: logging.getLogger(name).level for name in loggers}
    for name in loggers:
        logging.getLogger(name).setLevel(logging.ERROR)
    try:
        yield
    finally:
        for name, level in levels.items():
            logging.getLogger(name).setLevel(level)


def _refuse_what_onnx_cannot_say(program: ExportedProgram) -> None:
    """The converter would say so too, after a minute and without naming the setting."""
    if any("linalg_solve" in str(node.target) for node in program.graph.nodes):
        raise ExportError(
            "an Orthoformer with `ridge` solves linear systems, which ONNX has no operator for: export it as .pt2."
        )
