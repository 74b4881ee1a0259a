"""A model run by another runtime: an exported file, or a model exported on the spot, called as any model.

Predictor("gestures.onnx")                       # a file of `motionformer export`
Predictor(model, backend="openvino")             # exported, checked against PyTorch, and run
"""

import hashlib
import logging
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn

from motionformer.errors import EvaluationError, ExportError
from motionformer.export.write import FORMATS, export_model, find_format
from motionformer.models import ModelConfig, Motionformer
from motionformer.models.config import SamplingProtocol
from motionformer.weights import load_model

log = logging.getLogger("motionformer")
Backend = Literal["torch", "onnx", "openvino"]
_SUFFIX = {"torch": ".pt2", "onnx": ".onnx", "openvino": ".xml"}
_EXTRA = {"torch": "export", "onnx": "export", "openvino": "openvino"}


class ExportedModel(nn.Module):
    """A file of `export_model`, run by its runtime on the CPU: normalised clips `[b 3 t H W]` in, logits out.

    It has no layers: what looks inside a model (features, traces, fine-tuning) needs the weights.

    Args:
        path: the file: .pt2, .onnx or .xml.
        precision: "32"; OpenVINO also has "bf16".

    Raises:
        ExportError: it cannot be run, or does not describe its model.
        EvaluationError: its runtime is not installed.

    Example:
        ```python
        model = ExportedModel("gestures.onnx")
        model(torch.randn(4, 3, 16, 224, 224)).shape
        ```
    """

    def __init__(self, path: str | Path, precision: str = "32") -> None:
        super().__init__()
        path = Path(path)
        form = find_format(path)
        if not path.is_file():
            raise ExportError(f"{path}: no such file.")
        self.backend = _backend_of(path)
        with _naming_the_extra(self.backend):
            metadata, self._run = form.open(path, precision)
        if "architecture" not in metadata:
            raise ExportError(f"{path}: does not describe its model: write it again with `motionformer export`.")
        self.config = ModelConfig.from_dict(metadata["architecture"])
        digest = hashlib.sha256(b"".join(file.read_bytes() for file in form.files(path))).digest()
        self.register_buffer("digest", torch.tensor(list(digest), dtype=torch.uint8))  # results tell two files apart

    def forward(self, clip: Tensor) -> Tensor | dict[str, Tensor]:
        """Logits of the clip; for several heads, by name."""
        found = self._run(clip.float().contiguous())
        return found if isinstance(self.config.num_classes, dict) else next(iter(found.values()))


def open_model(
    source: Any, backend: str | None = None, *, precision: str = "32", protocol: SamplingProtocol | None = None
) -> Motionformer | ExportedModel:
    """The model that computes: PyTorch's, or another runtime's.

    Args:
        source: a model, weights as `load_model` takes them, or an exported file.
        backend: "torch", "onnx" or "openvino". A model or weights are exported for the last two, in a temporary folder,
            and checked against PyTorch. [default: that of an exported file, otherwise "torch"]
        precision: of the runtime.
        protocol: as `load_model` takes it, for weights.

    Raises:
        EvaluationError: an unknown backend, one that is not installed, or not that of the file.
        ExportError: a model that cannot be exported, or whose file does not compute the same.
    """
    if backend is not None and backend not in get_args(Backend):
        raise EvaluationError(f"`backend` ({backend!r}) must be one of {', '.join(get_args(Backend))}.")
    if isinstance(source, (str, Path)) and Path(source).suffix in FORMATS:
        return _open_file(Path(source), backend, precision, protocol)
    model: Any = source if isinstance(source, nn.Module) else load_model(source, protocol=protocol)
    if backend in (None, "torch"):
        return model  # type: ignore[no-any-return]
    if not isinstance(model, Motionformer):
        raise EvaluationError(f"backend {backend!r} exports a `Motionformer`; not {type(model).__name__}.")
    suffix = _SUFFIX[str(backend)]
    with tempfile.TemporaryDirectory() as folder, _naming_the_extra(str(backend)):
        log.info("exporting the model for %s; `motionformer export` keeps the file", backend)
        report = export_model(model.cpu(), Path(folder) / f"model{suffix}")
        return ExportedModel(report.path, precision)


def _open_file(path: Path, backend: str | None, precision: str, protocol: str | None) -> ExportedModel:
    if backend not in (None, _backend_of(path)):
        raise EvaluationError(
            f"{path} is no file of backend {backend!r}, but of {_backend_of(path)!r}: leave `backend` out."
        )
    model = ExportedModel(path, precision)
    if protocol not in (None, model.config.input.protocol):
        own = model.config.input.protocol
        raise EvaluationError(f"{path} was exported with `protocol` {own!r}, not {protocol!r}: export it again.")
    return model


def _backend_of(path: Path) -> str:
    return next(name for name, suffix in _SUFFIX.items() if suffix == path.suffix)


@contextmanager
def _naming_the_extra(backend: str) -> Iterator[None]:
    """A runtime that is missing is an error that names the extra."""
    try:
        yield
    except ModuleNotFoundError as error:
        extra = _EXTRA[backend]
        raise EvaluationError(
            f"backend {backend!r} needs {error.name}: pip install 'motionformer[{extra}]', in a checkout "
            f"pip install -c constraints.txt -e '.[{extra}]'."
        ) from error
