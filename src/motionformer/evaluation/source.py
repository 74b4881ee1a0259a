"""What `motionformer evaluate` is given as DATA becomes a source of views."""

from pathlib import Path
from typing import get_args

from motionformer.data import open_dataset
from motionformer.data.folders import split_folders
from motionformer.data.motion import LEVELS, MotionBenchmark
from motionformer.data.motion.dataset import Split
from motionformer.data.source import Kind, recognise
from motionformer.data.table import ClassSource
from motionformer.errors import EvaluationError
from motionformer.evaluation.views import FileVideos, MotionVideos, SampleBy, VideoSource
from motionformer.models import InputSpec

MOTION = "motion:"
MOTION_CLIPS = 512


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
    decoder: str = "pyav",
    time_limit: float = 30.0,
    sample_by: SampleBy | None = None,
) -> VideoSource:
    """Anything `open_dataset` takes, or `motion:LEVEL[:CLIPS]` for the built-in benchmark, cut as `spec` says.

    Without `split`, a list is taken as it is, class folders that are not split are taken whole, and of a path that
    holds several splits it is the one made for this (val; test for UCF101 and HMDB51). Files that are not there stay
    in the list, to be counted as failed; if none is there, that is an error.
    """
    if str(data).startswith(MOTION):
        if sample_by is not None:
            raise EvaluationError(f"{data}: clips of the motion benchmark are made, not sampled; leave sample_by out.")
        return _open_motion(str(data), spec, views, crops, split, seed)
    path = Path(data)
    split = split or _evaluation_split(path, kind)
    annotations = open_dataset(path, kind, split=split, root=root, class_names=class_names, missing="keep", seed=seed)
    if not any(record.path.exists() for record in annotations):
        annotations.handle_missing("error")
    return FileVideos(
        annotations, spec, views=views, crops=crops, sample_by=sample_by, decoder=decoder, time_limit=time_limit
    )


def _open_motion(
    data: str, spec: InputSpec, views: int | None, crops: int | None, split: str | None, seed: int
) -> MotionVideos:
    level, _, count = data.removeprefix(MOTION).partition(":")
    if level not in LEVELS:
        raise EvaluationError(f"{data}: there is no level {level!r}; there are {', '.join(LEVELS)}.")
    if count and not (count.isdecimal() and int(count)):
        raise EvaluationError(f"{data}: {count!r} is not a number of clips; write {MOTION}{level}:1000.")
    if split is not None and split not in get_args(Split):
        raise EvaluationError(f"{data}: no split {split!r}; there are {', '.join(get_args(Split))}.")
    if (views or 1) != 1 or (crops or 1) != 1:
        raise EvaluationError(f"{data}: a clip of the motion benchmark is one view; leave views and crops out.")
    if spec.height != spec.width:
        raise EvaluationError(f"{data}: makes square clips; the model takes {spec.height} × {spec.width}.")
    chosen: Split = "train" if split == "train" else "val" if split == "val" else "test"
    clips = int(count or MOTION_CLIPS)
    shape = {"frames": spec.frames, "stride": spec.stride, "size": spec.height}
    return MotionVideos(MotionBenchmark(level, chosen, clips, seed=seed, **shape), spec)


def _evaluation_split(path: Path, kind: Kind) -> str | None:
    if not path.is_dir():
        return None
    found = recognise(path) if kind == "auto" else kind
    if found == "folders":
        return "val" if split_folders(path) else None
    return {"ucf101": "test", "hmdb51": "test", "files": None}.get(found, "val")
