"""A weights file → named tensors, or an error with the reason. Nothing pickled is ever executed."""

import io
import json
import pickle
import pickletools
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import torch
import yaml
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from motionformer.errors import CheckpointError

_STATE_KEYS = ("model_state", "state_dict", "model", "teacher", "student", "module")
"""Where training codes put the weights inside their file, most trusted first."""
SUFFIXES = (".safetensors", ".pyth", ".pth", ".pt", ".bin", ".ckpt")
"""Of weights files."""
_MAX_CONFIG = 64 << 20
_MAX_PICKLES = 8
_PLAIN = ("torch.", "collections.OrderedDict", "numpy.", "_codecs.encode")
"""What weights are pickled with."""
_WRAPPERS = ("module.", "_orig_mod.", "backbone.", "model.")
_WHOLE = _WRAPPERS[:2]
"""Those around everything: a tensor outside stays, to be accounted for. Beside the others there are heads."""


@dataclass(frozen=True)
class Checkpoint:
    """Named tensors, and the configuration that came with them, if any (`cfg` of released files, `config.json`)."""

    path: Path
    tensors: dict[str, Tensor]
    cfg: dict[str, Any] = field(default_factory=dict)


def read_checkpoint(path: str | Path) -> Checkpoint:
    """Read a `.safetensors` file or a torch file (`.pyth`, `.pth`, `.pt`, `.bin`, `.ckpt`)."""
    path = Path(path)
    if not path.is_file():
        raise CheckpointError(f"{path}: no such file.")
    if path.stat().st_size == 0:
        raise CheckpointError(f"{path}: the file is empty.")
    if path.suffix == ".safetensors":
        try:
            return Checkpoint(path, _strip_wrappers(load_file(path)), _sibling_config(path))
        except (SafetensorError, OSError) as error:
            raise CheckpointError(f"{path}: not a readable safetensors file ({error}).") from error
    content = _load_without_code(path)
    tensors = _find_tensors(content, path)
    cfg = content.get("cfg") if isinstance(content, Mapping) else None
    beside = _sibling_config(path) if path.suffix == ".bin" else {}  # the older half of a Hugging Face folder
    return Checkpoint(path, tensors, _parse_cfg(cfg, path) or beside)


def _load_without_code(path: Path) -> Any:
    _check_archive(path)
    try:
        return torch.load(path, map_location="cpu", weights_only=True)
    except (pickle.UnpicklingError, RuntimeError) as error:
        code = _find_code(path)
        if code:
            raise CheckpointError(
                f"{path}: this file would run code when it is opened ({code}), so it was not opened. Do not trust it: "
                "ask for the weights alone, as safetensors or as a dict of tensors."
            ) from error
        # torch's own words advise to switch this protection off
        reason = "" if "weights_only" in str(error) else f" ({_first_line(error)})"
        raise CheckpointError(f"{path}: not a checkpoint, or a damaged one{reason}.") from error
    except (EOFError, ValueError, KeyError, OSError, AttributeError, LookupError, OverflowError, MemoryError) as error:
        raise CheckpointError(f"{path}: not a checkpoint, or a damaged one ({_first_line(error)}).") from error


def _check_archive(path: Path) -> None:
    """Torch files are archives without compression: what is larger inside than outside was made to fill the memory."""
    if not zipfile.is_zipfile(path):
        return
    try:
        with zipfile.ZipFile(path) as archive:
            entries = archive.infolist()
    except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError) as error:
        raise CheckpointError(f"{path}: not a checkpoint, or a damaged one ({_first_line(error)}).") from error
    inside, outside = sum(entry.file_size for entry in entries), path.stat().st_size
    if inside > outside:
        raise CheckpointError(
            f"{path}: {inside:,} bytes are packed into {outside:,}: torch does not compress weights, and this file is "
            "not unpacked. Ask for the file as it was saved."
        )


def _find_code(path: Path) -> str:
    """The first function or class that a pickled file names and that is no part of plain weights; nothing is loaded."""
    try:
        if zipfile.is_zipfile(path):
            with zipfile.ZipFile(path) as archive:
                names = archive.namelist()
                if any("/code/" in name for name in names):
                    return "TorchScript"
                pickled = archive.read(next(name for name in names if name.endswith("data.pkl")))
                stream: io.BufferedIOBase = io.BytesIO(pickled)
        else:
            stream = path.open("rb")
        with stream:
            for _ in range(_MAX_PICKLES):  # files of older versions hold several, one after the other
                for name in _globals_of(stream):
                    if not name.startswith(_PLAIN) or name.startswith("torch.nn.modules"):
                        return name
    except (OSError, ValueError, StopIteration, LookupError, zipfile.BadZipFile, NotImplementedError, RuntimeError):
        pass  # what follows is no pickle
    return ""


def _globals_of(stream: io.BufferedIOBase) -> Iterator[str]:
    texts: list[str] = []
    for opcode, value, _ in pickletools.genops(cast(Any, stream)):
        if opcode.name in ("GLOBAL", "INST"):
            yield str(value).replace(" ", ".")
        elif opcode.name == "STACK_GLOBAL":
            yield ".".join(texts[-2:])
        elif isinstance(value, str):
            texts.append(value)


def _find_tensors(content: Any, path: Path) -> dict[str, Tensor]:
    """The dict of tensors inside whatever a training code saved."""
    state = content
    if isinstance(content, Mapping):
        for key in _STATE_KEYS:
            if isinstance(content.get(key), Mapping):
                state = content[key]
                break
    if not isinstance(state, Mapping):
        raise CheckpointError(f"{path}: holds a {type(state).__name__}, not named tensors.")
    tensors = {str(name): value for name, value in state.items() if isinstance(value, Tensor)}
    room = 4 * path.stat().st_size + (1 << 20)  # of weights that share memory, each counts
    for name, value in tensors.items():
        room -= value.numel() * value.itemsize
        if room < 0:
            raise CheckpointError(
                f"{path}: tensor {name!r} is {tuple(value.shape)}, more than the file can hold: the file was made to "
                "fill the memory, or is damaged."
            )
    if not tensors:
        keys = ", ".join(map(str, list(state)[:5])) or "nothing"
        raise CheckpointError(f"{path}: holds no tensors (found: {keys}).")
    return _strip_wrappers(tensors)


def _strip_wrappers(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Without the prefixes that DDP, `torch.compile`, transformers and self-supervised codes put before every name."""
    for wrapper in _WRAPPERS:
        inside = {name[len(wrapper) :]: value for name, value in tensors.items() if name.startswith(wrapper)}
        if len(inside) * 2 > len(tensors):
            if wrapper in _WHOLE:
                inside |= {name: value for name, value in tensors.items() if not name.startswith(wrapper)}
            return _strip_wrappers(inside)
    return tensors


def _parse_cfg(cfg: Any, path: Path) -> dict[str, Any]:
    if not isinstance(cfg, str):
        return {}
    try:
        parsed = yaml.safe_load(cfg)
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        raise CheckpointError(f"{path}: its configuration is not YAML ({_first_line(error)}).") from error
    return parsed if isinstance(parsed, dict) else {}


def _sibling_config(path: Path) -> dict[str, Any]:
    config = path.with_name("config.json")
    if not config.is_file():
        return {}
    try:
        if config.stat().st_size > _MAX_CONFIG:
            raise CheckpointError(f"{config}: more than {_MAX_CONFIG >> 20} MiB is no configuration.")
        parsed = json.loads(config.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{config}: not JSON ({_first_line(error)}).") from error
    return parsed if isinstance(parsed, dict) else {}


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:200]
