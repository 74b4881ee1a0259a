"""What exactly was evaluated: a short name for the contents of a model and of a list of videos."""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from motionformer.evaluation.views import VideoSource
from motionformer.files import stamp_video

CHOSEN_LATER = {"scoring": "softmax", "readout": "class"}
"""What every model was before there was a choice: results that were written then stay valid."""

RENAMED = {"kernel": "attend"}
"""Keys under the names they had when the first results were written: those stay valid."""

SAME_FUNCTION = {"input", "labels", "source", "chunk_size", "recompute", "checkpointing", "drop_path_time"}
"""Fields of a configuration that do not change what a model computes in evaluation mode."""


def model_fingerprint(model: nn.Module) -> str:
    """Changes with any weight and with anything in the configuration that changes the function."""
    digest = hashlib.sha256()
    config = getattr(model, "config", None)
    if config is not None and hasattr(config, "to_dict"):
        values = config.to_dict().items()
        kept = {RENAMED.get(key, key): value for key, value in values if key not in SAME_FUNCTION}
        for key, only in CHOSEN_LATER.items():
            if kept.get(key) == only:
                del kept[key]
        digest.update(json.dumps(kept, sort_keys=True).encode())
    for name, tensor in sorted(model.state_dict().items()):
        _add_state(digest, name.replace(".kernel.", ".attend."), tensor)
    return digest.hexdigest()[:16]


def _add_state(digest: "hashlib._Hash", name: str, value: Any) -> None:
    """A tensor by its bytes; a quantised one, or what a quantised layer packs, by its parts."""
    if isinstance(value, (tuple, list)):
        for number, part in enumerate(value):
            _add_state(digest, f"{name}.{number}", part)
    elif not isinstance(value, Tensor):
        digest.update(f"{name} {value!r}".encode())
    elif hasattr(value, "__tensor_flatten__"):
        for part in value.__tensor_flatten__()[0]:
            _add_state(digest, f"{name}.{part}", getattr(value, part))
    elif value.is_quantized:
        digest.update(f"{name} {value.qscheme()}".encode())
        _add_state(digest, name, value.dequantize())
    else:
        digest.update(f"{name} {value.dtype} {tuple(value.shape)}".encode())
        digest.update(value.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())


def data_fingerprint(source: VideoSource) -> str:
    """Changes with the videos' names, their order and their labels; not with the folder they lie in."""
    digest = hashlib.sha256()
    for entry in source.entries:
        digest.update(json.dumps([entry.id, _plain(entry.label)], sort_keys=True).encode())
    return digest.hexdigest()[:16]


def video_stamps(source: VideoSource) -> tuple[str, ...]:
    """For every video what changes when its file does, whatever its name; nothing where videos have no file."""
    stamps = {path: stamp_video(Path(path)) for path in {entry.path for entry in source.entries} if path}
    return tuple(stamps.get(entry.path, "") for entry in source.entries)


def _plain(label: Any) -> Any:
    return dict(label) if isinstance(label, Mapping) else label
