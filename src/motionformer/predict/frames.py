"""Frames in memory, whatever they come as: taken as bytes `[t H W 3]`, or refused with what is accepted."""

from collections.abc import Iterable, Mapping, Sequence
from os import PathLike
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch
from jaxtyping import UInt8
from torch import Tensor

from motionformer.models import InputSpec


@runtime_checkable
class ArrayLike(Protocol):
    """What calls itself an array, as PIL images do."""

    @property
    def __array_interface__(self) -> dict[str, Any]: ...


Frame = Tensor | ArrayLike
Frames = Frame | Sequence[Frame]
"""A tensor or an array `[t H W 3]`, or a list of arrays or PIL images `[H W 3]`: bytes, RGB."""

ACCEPTED = (
    "a video is a path, or frames in memory: bytes (uint8) [t H W 3], RGB, as a tensor, an array, or a list of arrays"
    " or PIL images [H W 3]"
)


def is_frames(video: Any) -> bool:
    """Whether this stands for frames in memory, right or wrong, and not for paths."""
    if isinstance(video, (list, tuple)):
        return bool(video) and not isinstance(video[0], (str, PathLike)) and _is_array(video[0])
    return _is_array(video)


def as_frames(frames: Any) -> UInt8[Tensor, "t H W 3"]:
    """The frames as a tensor. Raises `TypeError` or `ValueError` with what is accepted."""
    if isinstance(frames, (list, tuple)):
        return _stack(frames)
    if not _is_array(frames):
        raise TypeError(f"{ACCEPTED}; not {_kind(frames)}.")
    found = _tensor(frames)
    shape = list(found.shape)
    if found.ndim == 5:
        raise ValueError(f"one video at a time: {ACCEPTED}. {shape} is a batch: call once for each of its {shape[0]}.")
    if found.ndim != 4 or shape[-1] != 3 or 0 in shape:
        hint = ""
        if found.ndim == 4 and shape[1] == 3:
            hint = " Channels come last: frames.permute(0, 2, 3, 1), of an array frames.transpose(0, 2, 3, 1)."
        elif found.ndim == 4 and shape[0] == 3:
            hint = " Channels come last: frames.permute(1, 2, 3, 0), of an array frames.transpose(1, 2, 3, 0)."
        raise ValueError(f"{ACCEPTED}; not {shape}.{hint}")
    if found.dtype != torch.uint8:
        hint = ""
        if found.is_floating_point():
            hint = " Of values from 0 to 1: (frames * 255).round().to(torch.uint8); from 0 to 255: without the factor."
        raise ValueError(f"{ACCEPTED}; not {str(found.dtype).removeprefix('torch.')}.{hint}")
    return found


def check_fps(fps: float | None, spec: InputSpec) -> float:
    """The rate of frames in memory: the model's where none is given."""
    if fps is None:
        return spec.fps or 30.0
    if not 0 < fps < float("inf"):
        raise ValueError(f"`fps` ({fps}) must be a positive number of frames per second.")
    return float(fps)


def check_paths(videos: Any) -> Iterable[Any]:
    """What may be gone through for paths: bytes, open files and mappings can be too, and hold none."""
    if isinstance(videos, (bytes, bytearray, memoryview, Mapping)) or hasattr(videos, "read"):
        raise TypeError(f"{ACCEPTED}; not {_kind(videos)}. Write what it holds to a file, and give its path.")
    if not isinstance(videos, Iterable):
        raise TypeError(f"{ACCEPTED}; not {_kind(videos)}.")
    if isinstance(videos, (list, tuple)):
        for path in videos:
            check_path(path)
    return videos


def check_path(path: Any) -> str | PathLike[str]:
    """One of several videos: a path."""
    if not isinstance(path, (str, PathLike)):
        raise TypeError(f"{ACCEPTED}; of several, each is a path, not {_kind(path)}.")
    return path


def _stack(frames: Any) -> UInt8[Tensor, "t H W 3"]:
    for frame in frames:
        if not _is_array(frame):
            raise TypeError(f"{ACCEPTED}; not a list with {_kind(frame)}.")
    made = [_tensor(frame) for frame in frames]
    shapes = sorted({tuple(frame.shape) for frame in made})
    if len(shapes) > 1:
        raise ValueError(f"frames of one video have one size; not {' and '.join(str(list(s)) for s in shapes[:3])}.")
    if shapes and (len(shapes[0]) != 3 or shapes[0][-1] != 3):
        hint = ' Of a PIL image: image.convert("RGB").' if hasattr(frames[0], "convert") else ""
        raise ValueError(f"{ACCEPTED}; not a list of {list(shapes[0])}.{hint}")
    if not made:
        raise ValueError(f"{ACCEPTED}; the list is empty.")
    return as_frames(torch.stack(made))


def _is_array(value: Any) -> bool:
    """A tensor, an array, or what calls itself one, as PIL images do."""
    return isinstance(value, (Tensor, np.ndarray)) or hasattr(value, "__array_interface__")


def _tensor(value: Any) -> Tensor:
    if isinstance(value, Tensor):
        return value
    array = np.asarray(value)
    if array.dtype.kind not in "buif":
        raise ValueError(f"{ACCEPTED}; not an array of {array.dtype}.")
    return torch.from_numpy(np.array(array))  # a copy that may be written to: torch warns of others


def _kind(value: Any) -> str:
    return f"{type(value).__module__}.{type(value).__name__}".removeprefix("builtins.")
