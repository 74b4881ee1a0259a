"""What exactly is evaluated, and has the model been trained on it? Fingerprints of a model and of a list of videos.

The training data of a model travels with it (`TrainingData`).
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from motionformer.data.fingerprints import fingerprint_records, made_clips
from motionformer.data.record import Record
from motionformer.errors import EvaluationError
from motionformer.inference.views import FileVideos, MotionVideos, VideoSource
from motionformer.models.training_data import Span, TrainingData

_UNKNOWN = "unknown: the model does not carry a list of its training files"
_SHOWN = 10
_ADDED_LATER = {"scoring": "softmax", "readout": "class"}
"""What every model was before there was a choice: results that were written then stay valid."""

_NAMED_BEFORE = {"kernel": "attend"}
"""Keys under the names they had when the first results were written: those stay valid."""

_SAME_FUNCTION = {"input", "labels", "source", "chunk_size", "recompute", "checkpointing", "drop_path_time"}
"""Fields of a configuration that do not change what a model computes in evaluation mode."""


def find_overlap(model: nn.Module, source: VideoSource) -> dict[str, Any]:
    """Which videos of `source` the model was trained on, in plain values, for results and their summary.

    Returns:
        known: whether the model carries a list of its training videos; the rest is only there if it does.
        videos: how many videos of the source were training videos (of pieces: meet a training piece).
        names: of the first ten of them.
        same_file: pieces of files of which other pieces were trained on.
        selection: videos that chose the epoch which was kept.
        unchecked: videos of the source without a file to look at.
        note: a sentence on all this.
    """
    data = getattr(model, "training_data", None)
    if not isinstance(data, TrainingData):
        return {"known": False, "note": _UNKNOWN}
    found = _fingerprints(source)
    kinds = ["none" if one is None else data.train.overlap(*one) for one in found]
    chosen = [one is not None and data.selection.overlap(*one) == "video" for one in found]
    seen = [entry.id for entry, kind in zip(source.entries, kinds, strict=True) if kind == "video"]
    counts = {
        "videos": len(seen),
        "names": seen[:_SHOWN],
        "same_file": kinds.count("file"),
        "selection": sum(is_chosen and kind != "video" for is_chosen, kind in zip(chosen, kinds, strict=True)),
        "unchecked": found.count(None),
    }
    return {"known": True, **counts, "note": _note(counts, data, len(found))}


def check_overlap(overlap: dict[str, Any], source: VideoSource) -> None:
    """Raise `EvaluationError` if the model was trained on any of the videos; without labels no metric is too good."""
    if not overlap.get("videos") or all(entry.label is None for entry in source.entries):
        return
    names = ", ".join(overlap["names"][:3]) + (", …" if overlap["videos"] > 3 else "")
    raise EvaluationError(
        f"{source.name}: {overlap['videos']} of {len(source.entries)} videos are training videos of this model"
        f" ({names}): an accuracy on them tells nothing about new videos. Evaluate on videos it has not seen (a run of"
        " `finetune` lists those it held out in val.csv), or use --allow-overlap (allow_overlap=True in Python)."
    )


def model_fingerprint(model: nn.Module) -> str:
    """Changes with any weight and with anything in the configuration that changes the function."""
    digest = hashlib.sha256()
    config = getattr(model, "config", None)
    if config is not None and hasattr(config, "to_dict"):
        values = config.to_dict().items()
        kept = {_NAMED_BEFORE.get(key, key): value for key, value in values if key not in _SAME_FUNCTION}
        for key, only in _ADDED_LATER.items():
            if kept.get(key) == only:
                del kept[key]
        digest.update(json.dumps(kept, sort_keys=True).encode())
    for name, tensor in sorted(model.state_dict().items()):
        _add_state(digest, name.replace(".kernel.", ".attend."), tensor)
    return digest.hexdigest()[:16]


def data_fingerprint(source: VideoSource) -> str:
    """Changes with the videos' names, their order and their labels; not with the folder they lie in."""
    digest = hashlib.sha256()
    for entry in source.entries:
        digest.update(
            json.dumps(
                [entry.id, dict(entry.label) if isinstance(entry.label, Mapping) else entry.label], sort_keys=True
            ).encode()
        )
    return digest.hexdigest()[:16]


def _fingerprints(source: VideoSource) -> Sequence[tuple[str, Span] | None]:
    if isinstance(source, MotionVideos):
        made = source.benchmark
        key = made_clips(source.level, made.split, made.seed)
        return [(key, (float(i), i + 1.0)) for i in range(len(made))]
    if isinstance(source, FileVideos):
        return fingerprint_records(source.annotations.records)
    # somebody else's source
    found = iter(fingerprint_records([Record(Path(entry.path)) for entry in source.entries if entry.path]))
    return [next(found) if entry.path else None for entry in source.entries]


def _note(counts: dict[str, Any], data: TrainingData, total: int) -> str:
    notes = [f"{counts['videos']} of {total} videos are training videos of this model"]
    if not counts["videos"]:
        notes[0] += " (re-encoded copies are not recognised)"
    else:
        notes[0] += (
            f" ({', '.join(counts['names'][:3])}{', …' if counts['videos'] > 3 else ''}): the metric is too good"
        )
    if counts["same_file"]:
        notes.append(f"{counts['same_file']} are other pieces of files it was trained on")
    if counts["selection"]:
        notes.append(f"{counts['selection']} chose the epoch that was kept: the metric is optimistic")
    if counts["unchecked"]:
        notes.append(f"{counts['unchecked']} have no file to check")
    if data.left_out:
        notes.append(f"the list of its training videos lacks {data.left_out}")
    if data.unknown:
        notes.append(f"it started from {', '.join(data.unknown)}, of unknown training videos")
    return "; ".join(notes)


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
