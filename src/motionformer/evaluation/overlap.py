"""Has the model learnt from the videos it is tested on? Its training data travels with it (`TrainingData`)."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from torch import nn

from motionformer.data.fingerprints import fingerprint_records, made_clips
from motionformer.data.record import Record
from motionformer.errors import EvaluationError
from motionformer.evaluation.views import FileVideos, MotionVideos, VideoSource, level_name
from motionformer.models.training_data import Span, TrainingData

UNKNOWN_OVERLAP = "unknown: the model does not carry a list of its training files"
SHOWN = 10


def find_overlap(model: nn.Module, source: VideoSource) -> dict[str, Any]:
    """Which videos of `source` the model has learnt from, in plain values, for results and their summary.

    Returns:
        known: whether the model says what it was trained on; the rest is only there if it does.
        videos: how many videos of the source were training videos (of pieces: meet a training piece).
        names: of the first ten of them.
        same_file: pieces of files of which other pieces were trained on.
        selection: videos that chose the epoch which was kept.
        unchecked: videos of the source without a file to look at.
        note: a sentence on all this.
    """
    data = getattr(model, "training_data", None)
    if not isinstance(data, TrainingData):
        return {"known": False, "note": UNKNOWN_OVERLAP}
    found = _fingerprints(source)
    kinds = ["none" if one is None else data.train.overlap(*one) for one in found]
    chosen = [one is not None and data.selection.overlap(*one) == "video" for one in found]
    seen = [entry.id for entry, kind in zip(source.entries, kinds, strict=True) if kind == "video"]
    counts = {
        "videos": len(seen),
        "names": seen[:SHOWN],
        "same_file": kinds.count("file"),
        "selection": sum(is_chosen and kind != "video" for is_chosen, kind in zip(chosen, kinds, strict=True)),
        "unchecked": found.count(None),
    }
    return {"known": True, **counts, "note": _note(counts, data, len(found))}


def refuse_overlap(overlap: dict[str, Any], source: VideoSource) -> None:
    """An error if the model has learnt from any of the videos; without labels there is no figure to be too good."""
    if not overlap.get("videos") or all(entry.label is None for entry in source.entries):
        return
    names = ", ".join(overlap["names"][:3]) + (", …" if overlap["videos"] > 3 else "")
    raise EvaluationError(
        f"{source.name}: {overlap['videos']} of {len(source.entries)} videos are training videos of this model"
        f" ({names}): an accuracy on them says nothing about new videos. Evaluate on videos it has not seen (a run of"
        " `finetune` lists those it held out in val.csv), or ask for it: --allow-overlap, allow_overlap=True in Python."
    )


def _fingerprints(source: VideoSource) -> Sequence[tuple[str, Span] | None]:
    if isinstance(source, MotionVideos):
        made = source.benchmark
        key = made_clips(level_name(made.level), made.split, made.seed)
        return [(key, (float(i), i + 1.0)) for i in range(len(made))]
    if isinstance(source, FileVideos):
        return fingerprint_records(source.annotations.records)
    # somebody else's source
    found = iter(fingerprint_records([Record(Path(entry.path)) for entry in source.entries if entry.path]))
    return [next(found) if entry.path else None for entry in source.entries]


def _note(counts: dict[str, Any], data: TrainingData, total: int) -> str:
    notes = [f"{counts['videos']} of {total} videos are training videos of this model"]
    if counts["videos"]:
        notes[0] += (
            f" ({', '.join(counts['names'][:3])}{', …' if counts['videos'] > 3 else ''}): the figure is too good"
        )
    if counts["same_file"]:
        notes.append(f"{counts['same_file']} are other pieces of files it was trained on")
    if counts["selection"]:
        notes.append(f"{counts['selection']} chose the epoch that was kept: the figure is optimistic")
    if counts["unchecked"]:
        notes.append(f"{counts['unchecked']} have no file to check")
    if data.left_out:
        notes.append(f"the list of its training videos lacks {data.left_out}")
    if data.unknown:
        notes.append(f"it started from {', '.join(data.unknown)}, of unknown training videos")
    return "; ".join(notes)
