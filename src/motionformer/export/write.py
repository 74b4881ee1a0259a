"""`export_model`: a checked file or none."""

import json
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from motionformer.errors import ExportError
from motionformer.export.check import BATCHES, TOLERANCE, Agreement, compare
from motionformer.export.contract import Format
from motionformer.export.metadata import describe
from motionformer.export.onnx import Onnx
from motionformer.export.pt2 import Pt2
from motionformer.export.trace import output_names, trace_program
from motionformer.models import Motionformer
from motionformer.models.motionformer import evaluating

FORMATS: Mapping[str, Format] = {".pt2": Pt2(), ".onnx": Onnx()}


@dataclass(frozen=True)
class ExportReport:
    """What was written, and how far it is from the model."""

    path: Path
    sidecar: Path
    size: int
    agreement: Agreement


def export_model(
    model: Motionformer,
    target: str | Path,
    *,
    batches: tuple[int, ...] = BATCHES,
    tolerance: float = TOLERANCE,
) -> ExportReport:
    """Write `model` as `target` (.pt2 or .onnx) and `target`.json, after checking that the file computes the same.

    The batch size stays open; frames and size are those of `model.config.input`. Files appear only when complete and
    checked; what was at `target` before is replaced then, and not touched otherwise.
    """
    target = Path(target)
    form = find_format(target)
    if not target.parent.is_dir():
        raise ExportError(f"{target}: there is no folder {target.parent}.")
    metadata = describe(model.config)
    sidecar = target.with_name(target.name + ".json")
    # beside the target: a rename is then one step, and a full disc shows before anything is replaced
    with tempfile.TemporaryDirectory(prefix=".export-", dir=target.parent) as folder:
        made, beside = Path(folder) / target.name, Path(folder) / sidecar.name
        with evaluating(model):
            form.write(trace_program(model), made, metadata)
            agreement = compare(
                model, form.open(made, output_names(model.config)), batches=batches, tolerance=tolerance
            )
        beside.write_text(json.dumps(metadata, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
        made.replace(target)
        beside.replace(sidecar)
    return ExportReport(target, sidecar, target.stat().st_size, agreement)


def find_format(target: Path) -> Format:
    """The format that the suffix of `target` names."""
    if target.suffix not in FORMATS:
        raise ExportError(f"{target}: the name of the file says its format; it ends in {' or '.join(FORMATS)}.")
    return FORMATS[target.suffix]
