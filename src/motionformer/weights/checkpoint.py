"""A weights file → named tensors, or an error with the reason. Nothing pickled is ever executed."""

import json
import pickle
import re
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

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
_WRAPPERS = ("module.", "_orig_mod.", "backbone.", "model.")


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
    try:
        return torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        found = re.search(r"Unsupported [\w ]+: (?:GLOBAL )?([\w.]+)|unsupported GLOBAL ([\w.]+)", str(error))
        if found:
            raise CheckpointError(
                f"{path}: holds pickled code or objects ({found[1] or found[2]}), which is not loaded: it could run "
                "anything. Save the weights alone, as a dict of tensors or as safetensors."
            ) from error
        reason = re.search(r"WeightsUnpickler error: *(.*)", str(error))
        raise CheckpointError(f"{path}: not a checkpoint ({reason[1] if reason else _first_line(error)}).") from error
    except (RuntimeError, EOFError, ValueError, KeyError, OSError, zipfile.BadZipFile, AttributeError) as error:
        raise CheckpointError(f"{path}: not a checkpoint, or a damaged one ({_first_line(error)}).") from error


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
    if not tensors:
        keys = ", ".join(map(str, list(state)[:5])) or "nothing"
        raise CheckpointError(f"{path}: holds no tensors (found: {keys}).")
    return _strip_wrappers(tensors)


def _strip_wrappers(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Without the prefixes that DDP, `torch.compile`, transformers and self-supervised codes put before every name."""
    for wrapper in _WRAPPERS:
        inside = {name[len(wrapper) :]: value for name, value in tensors.items() if name.startswith(wrapper)}
        if len(inside) * 2 > len(tensors):
            return _strip_wrappers(inside)
    return tensors


def _parse_cfg(cfg: Any, path: Path) -> dict[str, Any]:
    if not isinstance(cfg, str):
        return {}
    try:
        parsed = yaml.safe_load(cfg)
    except yaml.YAMLError as error:
        raise CheckpointError(f"{path}: its configuration is not YAML ({_first_line(error)}).") from error
    return parsed if isinstance(parsed, dict) else {}


def _sibling_config(path: Path) -> dict[str, Any]:
    config = path.with_name("config.json")
    if not config.is_file():
        return {}
    try:
        parsed = json.loads(config.read_text(encoding="utf-8"))
    except ValueError as error:
        raise CheckpointError(f"{config}: not JSON ({error}).") from error
    return parsed if isinstance(parsed, dict) else {}


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:200]
