"""The videos of an evaluation: which views of them are scored (v clips along time, each in c crops: method.md §6), what
exactly they are (fingerprints), and whether the model has been trained on them.

A source is a list of videos, each read as all its views at once, so that they stay together whatever process or
worker reads them. A video that cannot be read is a `Failure`, never another video.
"""

import hashlib
import json
import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple, Protocol, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor, nn

from motionformer.data import Annotations, ClipReader, Failure, Record, eval_sampler
from motionformer.data import open_source as open_data
from motionformer.data.clips import check_sampling
from motionformer.data.fingerprints import fingerprint_records, made_clips
from motionformer.data.folders import split_folders
from motionformer.data.lists import ClassSource
from motionformer.data.motion import LEVELS, Level, MotionBenchmark
from motionformer.data.record import ClassNames, Label
from motionformer.data.source import Kind, MotionClips, parse_motion, recognise
from motionformer.deprecation import renamed_arguments
from motionformer.errors import EvaluationError, VideoError
from motionformer.inference.scorer import SampleBy, with_views
from motionformer.models import InputSpec
from motionformer.models.training_data import Span, TrainingData
from motionformer.video import ReadFacts
from motionformer.video.transforms import eval_transform


@dataclass(frozen=True)
class Entry:
    """One video of a source: its name in results, its path, its label."""

    id: str
    path: str
    label: Label = None


class ReadVideo(NamedTuple):
    """All views of a video `[v·c 3 t H W]`, and what they were made from."""

    views: Tensor
    facts: ReadFacts


@runtime_checkable
class VideoSource(Protocol):
    """What can be evaluated."""

    @property
    def name(self) -> str: ...
    @property
    def class_names(self) -> ClassNames: ...
    @property
    def entries(self) -> Sequence[Entry]: ...
    @property
    def num_views(self) -> int:
        """Clips along time."""

    @property
    def num_crops(self) -> int: ...

    def protocol(self) -> dict[str, Any]:
        """How views are cut, in plain values: results are only resumed or compared under the same."""

    def read(self, index: int) -> ReadVideo | Tensor | Failure:
        """All views of a video `[v·c 3 t H W]`, clip by clip, each in all crops; as a `ReadVideo`, results hold how
        many frames differ and whether the video is damaged."""


class FileVideos:
    """The videos of a data set, cut as a model takes them; `views` and `crops` default to the model's own.

    Example:
        ```python
        FileVideos(open_dataset("videos/"), model.config.input, views=3)
        ```
    """

    @renamed_arguments(decoder=None)
    def __init__(
        self,
        annotations: Annotations,
        spec: InputSpec,
        *,
        views: int | None = None,
        crops: int | None = None,
        sample_by: SampleBy | None = None,
        time_limit: float = 30.0,
    ) -> None:
        self.spec = with_views(spec, views, crops, sample_by)
        self.annotations = annotations
        sampler = eval_sampler(self.spec)
        check_sampling(annotations.sampling, sampler, annotations.name)
        self.reader = ClipReader(self.spec, sampler=sampler, time_limit=time_limit)
        self.name = annotations.name + (f" ({annotations.split})" if annotations.split else "")
        self.class_names = annotations.class_names
        self.notes = (annotations.how, *(f"note: {note}" for note in annotations.notes))
        self.num_views, self.num_crops = self.spec.views, self.spec.crops
        self.entries = tuple(
            Entry(name, str(record.path), record.label)
            for name, record in zip(_ids(annotations.records), annotations.records, strict=True)
        )

    def protocol(self) -> dict[str, Any]:
        return self.spec.recorded()

    def read(self, index: int) -> ReadVideo | Failure:
        record = self.annotations.records[index]
        try:
            views = self.reader.read(record)
        except VideoError as error:
            return Failure.of(record, error, index)
        return ReadVideo(torch.stack(list(self.reader.clips(views))), views.facts)


class MotionVideos:
    """The built-in benchmark. A made clip has exactly the model's frames and size, so it is a single view."""

    num_views = num_crops = 1

    def __init__(self, benchmark: MotionBenchmark, spec: InputSpec) -> None:
        made = benchmark.frames, benchmark.stride, benchmark.size, benchmark.size
        if made != (spec.frames, spec.stride, spec.height, spec.width):
            raise EvaluationError(
                f"the motion benchmark makes {benchmark.frames} frames, {benchmark.stride} apart, of {benchmark.size} ×"
                f" {benchmark.size}; the model takes {spec.frames}, {spec.stride} apart, of {spec.height} ×"
                f" {spec.width}."
            )
        self.benchmark, self.spec = benchmark, spec
        self.class_names: tuple[str, ...] = benchmark.classes
        self.level = _level_name(benchmark.level)
        self.name = f"motion:{self.level} ({benchmark.split}, seed {benchmark.seed})"
        self.transform = eval_transform(spec)
        labels = [index % len(benchmark.classes) for index in range(len(benchmark))]
        which = f"{self.level}-{benchmark.split}-{benchmark.seed}"  # the same name is the same clip
        self.entries = tuple(Entry(f"{which}-{i:05d}", "", label) for i, label in enumerate(labels))

    def protocol(self) -> dict[str, Any]:
        level = asdict(self.benchmark.level)
        return {**self.spec.recorded(), "views": 1, "crops": 1, "level": level, "seed": self.benchmark.seed}

    def read(self, index: int) -> Float[Tensor, "v 3 t H W"] | Failure:
        clip = self.benchmark[index]
        view, label = self.transform.with_label(clip.frames, clip.label)
        assert label == self.entries[index].label
        return view[None]


@renamed_arguments(decoder=None)
def open_source(
    data: str | Path,
    spec: InputSpec,
    *,
    views: int | None = None,
    crops: int | None = None,
    kind: Kind = "auto",
    split: str | None = None,
    root: str | Path | None = None,
    class_names: ClassSource | None = None,
    seed: int = 0,
    time_limit: float = 30.0,
    sample_by: SampleBy | None = None,
) -> VideoSource:
    """Open a data set for `evaluate`, its videos cut into views as a model takes them.

    Args:
        data: a list, a folder, or `motion:LEVEL[:CLIPS]`, as `motionformer.data.open_source` takes it. Files that are
            not there stay in the list and count as failed; if none is there, that is an error.
        spec: the model's input, `model.config.input`.
        views: clips along time. [default: the model's own]
        crops: crops of each clip, 1 or 3. [default: the model's own]
        kind, root, class_names, seed: as in `motionformer.data.open_source`.
        split: "train", "val" or "test". [default: all of a list or of class folders; of a path with several splits
            val, and test for UCF101 and HMDB51]
        time_limit: seconds for opening a video, and for reading it.
        sample_by: "time" or "frames", what a clip's stride counts. [default: the model's own]

    Raises:
        AnnotationError: data that cannot be understood.
        EvaluationError: views that the model or the data cannot have.

    Example:
        ```python
        source = open_source("k400/val.csv", model.config.input, views=10, crops=3)
        ```
    """
    if parse_motion(data) is None:
        split = split or _evaluation_split(Path(data), kind)
    else:
        _check_made_clips(data, views, crops, sample_by)
        split = "test" if split is None else split
    source = open_data(data, kind, split=split, root=root, class_names=class_names, missing="keep", seed=seed)
    if isinstance(source, MotionClips):
        return MotionVideos(source.benchmark(spec), spec)
    if not any(record.path.exists() for record in source):
        source.handle_missing("error")
    return FileVideos(source, spec, views=views, crops=crops, sample_by=sample_by, time_limit=time_limit)


def _level_name(level: Level) -> str:
    """A level of one's own is called by its values, so that two of them are told apart."""
    values = hashlib.sha256(repr(level).encode()).hexdigest()[:6]
    return next((name for name, one in LEVELS.items() if one == level), f"custom-{values}")


def _ids(records: Sequence[Record]) -> list[str]:
    """The list's own names, or paths below the folder that holds all of them: the same on every machine."""
    base = Path(os.path.commonpath({record.path.parent.absolute() for record in records}))
    names = [record.id or _name(record, base) for record in records]
    times = Counter(names)  # a piece listed with two labels
    seen: Counter[str] = Counter()
    for i, name in enumerate(names):
        if times[name] > 1:
            seen[name] += 1
            names[i] = f"{name}#{seen[name]}"
    return names


def _name(record: Record, base: Path) -> str:
    name = Path(os.path.relpath(record.path, base)).as_posix()
    if record.start is None and record.end is None:
        return name
    return f"{name}@{record.start or 0:g}-" + ("" if record.end is None else f"{record.end:g}")


def _check_made_clips(data: str | Path, views: int | None, crops: int | None, sample_by: SampleBy | None) -> None:
    if sample_by is not None:
        raise EvaluationError(f"{data}: clips of the motion benchmark are made, not sampled; leave sample_by out.")
    if (views or 1) != 1 or (crops or 1) != 1:
        raise EvaluationError(f"{data}: a clip of the motion benchmark is one view; leave views and crops out.")


def _evaluation_split(path: Path, kind: Kind) -> str | None:
    if not path.is_dir():
        return None
    found = recognise(path) if kind == "auto" else kind
    if found == "folders":
        return "val" if split_folders(path) else None
    return {"ucf101": "test", "hmdb51": "test", "files": None}.get(found, "val")


_UNKNOWN = "unknown: the model does not carry a list of its training files"
_SHOWN = 10
_ADDED_LATER = {
    "scoring": "softmax",
    "readout": "class",
    "readout_depth": 0,
    "readout_positions": False,
    "activation": "gelu",
    "norm_eps": 1e-6,
    "rotary": "none",
}
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
