"""Which views of which videos are scored: v clips along time, each in c crops (method.md §6). Knows no model.

A source is a list of videos, each read as all its views at once, so that they stay together whatever process or
worker reads them. A video that cannot be read is a `Failure`, never another video.
"""

import hashlib
import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal, NamedTuple, Protocol, get_args, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor

from motionformer.data import Annotations, ClipReader, Failure, Record, eval_sampler
from motionformer.data import open_source as open_data
from motionformer.data.clips import check_sampling
from motionformer.data.folders import split_folders
from motionformer.data.lists import ClassSource
from motionformer.data.motion import LEVELS, Level, MotionBenchmark
from motionformer.data.record import ClassNames, Label
from motionformer.data.source import Kind, MotionClips, parse_motion, recognise
from motionformer.deprecation import renamed_arguments
from motionformer.errors import EvaluationError, VideoError
from motionformer.models import InputSpec
from motionformer.video import ReadFacts
from motionformer.video.transforms import eval_transform

SampleBy = Literal["time", "frames"]
"""What a clip's stride counts: frames at the model's rate, or the video's own frames, whatever its rate."""


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


def with_views(spec: InputSpec, views: int | None, crops: int | None, sample_by: SampleBy | None = None) -> InputSpec:
    """`spec` with other numbers of clips and crops, and its stride counted otherwise; None leaves them as they are."""
    if sample_by is not None:
        spec = _sampled_by(spec, sample_by)
    crops = spec.crops if crops is None else crops
    if crops not in (1, 3):
        raise EvaluationError(f"`crops` ({crops}) must be 1 (the centre) or 3 (along the long side).")
    if spec.sampling == "segments":
        if views is not None and views != 1:
            raise EvaluationError(
                f"{views} views were asked for, but this model's clip is made of segments of the whole video: that is"
                " one view. Leave views out, or use 3 crops."
            )
        return replace(spec, views=1, crops=crops)
    views = spec.views if views is None else views
    if views < 1:
        raise EvaluationError(f"`views` ({views}) must be at least 1.")
    return replace(spec, views=views, crops=crops)


def _sampled_by(spec: InputSpec, sample_by: SampleBy) -> InputSpec:
    if sample_by not in get_args(SampleBy):
        raise EvaluationError(f"`sample_by` ({sample_by!r}) must be one of {', '.join(get_args(SampleBy))}.")
    if spec.sampling == "segments":
        raise EvaluationError(
            f"`sample_by` ({sample_by!r}) is what a stride counts, but this model's clip is made of segments of the"
            " whole video, which have none. Leave it out."
        )
    return replace(spec, fps=None if sample_by == "frames" else spec.fps or 30.0)


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
