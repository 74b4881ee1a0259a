"""START HERE: `export_model` writes a checked file or none: trace → write → run the file → compare → keep it.

A new file format is a `Format` and an entry in `FORMATS`.
"""

import importlib
import json
import logging
import sys
import tempfile
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.export import Dim, ExportedProgram

from motionformer.data.motion import MotionBenchmark
from motionformer.errors import ExportError
from motionformer.models import InputSpec, ModelConfig, Motionformer
from motionformer.models.motionformer import evaluating
from motionformer.video.transforms import eval_transform

Run = Callable[[Tensor], dict[str, Tensor]]
"""Clips `[b 3 t H W]` → logits by the name of their head."""
Opened = tuple[dict[str, Any], Run]
"""What a file says about itself (`architecture` at least), and how to run it."""
METADATA = "motionformer.json"
"""The name inside a .pt2 archive: `torch.export.load(path, extra_files={METADATA: ""})` fills it in."""
_RT_INFO = "motionformer"
"""The key in an OpenVINO file."""
_MAX_ONNX_BYTES = 2_000_000_000  # a protobuf message ends at 2 GiB; the graph needs some of it
_BATCH_SIZES = (1, 2, 3)
_TOLERANCE = 1e-4
_MAX_BATCH = 4096  # a program states the range it was traced for; this one is beyond any memory


@dataclass(frozen=True)
class Agreement:
    """Largest absolute differences between file and model.

    Attributes:
        differences: by kind of input and batch size.
        tolerance: that was allowed.
        largest_output: the largest absolute output, for scale.
    """

    differences: dict[str, float]
    tolerance: float
    largest_output: float

    @property
    def largest(self) -> float:
        """The largest of all differences."""
        return max(self.differences.values())

    def __repr__(self) -> str:
        return f"Agreement(largest {self.largest:.1e} of {self.tolerance:g} allowed, {len(self.differences)} checks)"


@dataclass(frozen=True)
class ExportReport:
    """What `export_model` wrote, and how far it is from the model.

    Attributes:
        path: the exported file.
        sidecar: its metadata, as JSON.
        size: of the file, in bytes; of OpenVINO's two, together.
        agreement: its differences from the model.
    """

    path: Path
    sidecar: Path
    size: int
    agreement: Agreement

    def __repr__(self) -> str:
        return f"ExportReport({str(self.path)!r}, {self.size / 1e6:.1f} MB, {self.agreement!r})"


def export_model(
    model: Motionformer,
    output: str | Path,
    *,
    batch_sizes: tuple[int, ...] = _BATCH_SIZES,
    tolerance: float = _TOLERANCE,
) -> ExportReport:
    """Export a model as a file that runs without this package, after checking that it computes the same.

    The batch size stays open; frames and size are those of `model.config.input`. Files appear only when complete and
    checked; what was at `output` before is replaced then, and not touched otherwise.

    Args:
        model: any model; attention kernels without an ONNX operator need .pt2.
        output: the file to write, .pt2 (`torch.export`), .onnx, or .xml (OpenVINO, with its weights in a .bin beside
            it); metadata goes to `output`.json beside it.
        batch_sizes: to compare the file with the model at.
        tolerance: largest absolute difference of any output.

    Returns:
        The files, and the differences that were found.

    Raises:
        ExportError: an unknown suffix, a folder that does not exist, or a file that differs from the model.

    Example:
        ```python
        from motionformer import load_model
        from motionformer.export import export_model

        print(export_model(load_model("motion-tiny"), "tiny.pt2"))
        ```
    """
    output = Path(output)
    form = find_format(output)
    if not output.parent.is_dir():
        raise ExportError(f"{output}: there is no folder {output.parent}.")
    metadata = _describe(model.config)
    sidecar = output.with_name(output.name + ".json")
    # beside the output: a rename is then one step, and a full disc shows before anything is replaced
    with tempfile.TemporaryDirectory(prefix=".export-", dir=output.parent) as folder:
        made, beside = Path(folder) / output.name, Path(folder) / sidecar.name
        with evaluating(model):
            form.write(_trace_program(model), made, metadata)
            _, run = form.open(made)
            agreement = _compare(model, run, batch_sizes=batch_sizes, tolerance=tolerance)
        beside.write_text(json.dumps(metadata, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
        written = [file.replace(output.with_name(file.name)) for file in form.files(made)]
        beside.replace(sidecar)
    return ExportReport(output, sidecar, sum(file.stat().st_size for file in written), agreement)


def find_format(output: Path) -> "Format":
    """The format that the suffix of `output` names."""
    if output.suffix not in FORMATS:
        raise ExportError(f"{output}: the suffix of the file must be {' or '.join(FORMATS)}.")
    return FORMATS[output.suffix]


def _trace_program(model: Motionformer) -> ExportedProgram:
    """The graph of `model` in evaluation, for clips of its `config.input` and any batch size."""
    model.eval()
    spec = model.config.input
    parameter = next(model.parameters())
    clip = torch.zeros(2, 3, spec.frames, spec.height, spec.width, dtype=parameter.dtype, device=parameter.device)
    with torch.no_grad():
        return torch.export.export(model, (clip,), dynamic_shapes={"clip": {0: Dim("batch", min=1, max=_MAX_BATCH)}})


def _output_names(config: ModelConfig) -> tuple[str, ...]:
    """`logits`, or the heads by name, or `features` of a model without classes."""
    if isinstance(config.num_classes, dict):
        return tuple(config.num_classes)
    return ("logits",) if config.num_classes else ("features",)


def _describe(config: ModelConfig) -> dict[str, Any]:
    """How to make a clip, and what the outputs mean: plain values, each also a key of the ONNX metadata."""
    spec = asdict(config.input)
    return {
        "inputs": {"clip": ["batch", 3, config.input.frames, config.input.height, config.input.width]},
        "outputs": list(_output_names(config)),
        "classes": config.num_classes,
        "scoring": config.scoring,
        "labels": None if config.labels is None else list(config.labels),
        "clip": {key: list(value) if isinstance(value, tuple) else value for key, value in spec.items()},
        "attention": config.attention,
        "kernel": config.kernel.kind,
        "source": config.source,
        "architecture": config.to_dict(),
    }


@torch.no_grad()
def _compare(
    model: Motionformer, run: Run, *, batch_sizes: tuple[int, ...] = _BATCH_SIZES, tolerance: float = _TOLERANCE
) -> Agreement:
    """How far `run` is from `model`; an error if it is further than `tolerance` anywhere, or not a number."""
    parameter = next(model.parameters())
    differences: dict[str, float] = {}
    size = 0.0
    names = _output_names(model.config)
    for kind, clips in _make_clips(model.config.input, max(batch_sizes)).items():
        clips = clips.to(parameter)
        out = model(clips)
        expected = out if isinstance(out, dict) else {names[0]: out}
        size = max(size, *(float(x.abs().max()) for x in expected.values()))
        for batch in batch_sizes:
            found = run(clips[:batch])
            by_name = {name: _distance(expected[name][:batch], found[name]) for name in names}
            for name, difference in by_name.items():
                if not difference <= tolerance:  # also when it is not a number
                    raise ExportError(
                        f"the exported model differs from this one by {difference:.2g} ({name}, {kind}, batch of "
                        f"{batch}); {tolerance:g} is allowed. Nothing was written."
                    )
            differences[f"{kind}, batch of {batch}"] = max(by_name.values())
    return Agreement(differences, tolerance, size)


def _distance(expected: Tensor, found: Tensor) -> float:
    if expected.shape != found.shape:
        raise ExportError(f"the exported model returns {tuple(found.shape)}, this one {tuple(expected.shape)}.")
    return float((expected.cpu().double() - found.cpu().double()).abs().max())


def _make_clips(spec: InputSpec, num: int) -> dict[str, Float[Tensor, "b 3 t H W"]]:
    noise = torch.randn(num, 3, spec.frames, spec.height, spec.width, generator=torch.Generator().manual_seed(0))
    side = max(spec.height, spec.width)
    moving = MotionBenchmark("hard", "val", num, frames=spec.frames, size=max(side, 16))
    transform = eval_transform(spec)
    return {"noise": noise, "moving disc": torch.stack([transform(moving[i].frames) for i in range(num)])}


class Format(ABC):
    """One kind of file, chosen by its suffix."""

    @abstractmethod
    def write(self, program: ExportedProgram, path: Path, metadata: Mapping[str, Any]) -> None:
        """Write the program and its metadata as one file."""

    @abstractmethod
    def open(self, path: Path, precision: str = "32") -> Opened:
        """Load the written file as its users will; a `precision` that the runtime does not have is an `ExportError`."""

    def files(self, path: Path) -> list[Path]:
        """All that `write` has written."""
        return [path]


class _Pt2(Format):
    """The archive of `torch.export`: `torch.export.load(path).module()(clip)` returns what the model returns."""

    def write(self, program: ExportedProgram, path: Path, metadata: Mapping[str, Any]) -> None:
        torch.export.save(program, path, extra_files={METADATA: json.dumps(metadata)})

    def open(self, path: Path, precision: str = "32") -> Opened:
        _check_precision(path, precision)
        inside = {METADATA: ""}
        module = torch.export.load(path, extra_files=inside).module()
        metadata = json.loads(inside[METADATA])

        def run(clip: Tensor) -> dict[str, Tensor]:
            out = module(clip)
            return dict(out) if isinstance(out, dict) else {metadata["outputs"][0]: out}

        return metadata, run


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

    def open(self, path: Path, precision: str = "32") -> Opened:
        import onnxruntime

        _check_precision(path, precision)
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = torch.get_num_threads()
        try:
            session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        except Exception as error:  # its errors have no common class
            reason = str(error).strip().splitlines()[0]
            raise ExportError(
                f"onnxruntime cannot run the exported model ({reason}). It computes in float32 on a CPU: export "
                "model.float(), or write a .pt2."
            ) from error
        texts = session.get_modelmeta().custom_metadata_map
        metadata = {key: json.loads(texts[key]) for key in ("architecture",) if key in texts}
        outputs = [one.name for one in session.get_outputs()]

        def run(clip: Tensor) -> dict[str, Tensor]:
            found = session.run(outputs, {"clip": clip.cpu().numpy()})
            return {name: torch.from_numpy(array) for name, array in zip(outputs, found, strict=True)}

        return metadata, run


class _OpenVino(Format):
    """OpenVINO's two files: the graph (.xml, with the metadata as JSON text in `rt_info`) and its weights (.bin)."""

    def write(self, program: ExportedProgram, path: Path, metadata: Mapping[str, Any]) -> None:
        openvino = _import_openvino()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # deprecations inside the converter; the result is checked
            try:
                made = openvino.convert_model(program)
            except Exception as error:  # its errors have no common class
                reason = str(error).strip().splitlines()[0]
                raise ExportError(f"OpenVINO cannot convert this model ({reason}): export it as .pt2.") from error
        made.reshape([-1, *metadata["inputs"]["clip"][1:]])
        for output, name in zip(made.outputs, metadata["outputs"], strict=True):
            output.get_tensor().set_names({name})
        made.set_rt_info(json.dumps(metadata), [_RT_INFO])
        openvino.save_model(made, path, compress_to_fp16=False)

    def open(self, path: Path, precision: str = "32") -> Opened:
        _check_precision(path, precision, ("32", "bf16"))
        openvino = _import_openvino()
        try:
            core = openvino.Core()
            made = core.read_model(path)
            hints = {
                "INFERENCE_PRECISION_HINT": {"32": "f32", "bf16": "bf16"}[precision],  # by itself it takes bf16
                "INFERENCE_NUM_THREADS": torch.get_num_threads(),
            }
            compiled = core.compile_model(made, "CPU", hints)
        except RuntimeError as error:
            raise ExportError(f"{path}: OpenVINO cannot run it ({str(error).strip().splitlines()[-1]}).") from error
        metadata = json.loads(made.get_rt_info([_RT_INFO]).astype(str)) if made.has_rt_info([_RT_INFO]) else {}

        def run(clip: Tensor) -> dict[str, Tensor]:
            found = compiled([clip.cpu().numpy()])
            return {output.get_any_name(): torch.from_numpy(found[output].copy()) for output in compiled.outputs}

        return metadata, run

    def files(self, path: Path) -> list[Path]:
        return [path, path.with_suffix(".bin")]


def _import_openvino() -> Any:
    """The package, without the usage statistics that it sends when it is imported and when it converts."""
    sys.modules.setdefault("openvino_telemetry", None)  # type: ignore[arg-type] # it then uses a stub of its own
    return importlib.import_module("openvino")


def _check_precision(path: Path, precision: str, known: tuple[str, ...] = ("32",)) -> None:
    if precision not in known:
        raise ExportError(f"{path}: `precision` ({precision}) must be {' or '.join(known)} for {path.suffix} files.")


FORMATS: Mapping[str, Format] = {".pt2": _Pt2(), ".onnx": _Onnx(), ".xml": _OpenVino()}


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
