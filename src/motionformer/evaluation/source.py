"""What `motionformer evaluate` is given as DATA becomes a source of views."""

from pathlib import Path

from motionformer.data import open_source as data_source
from motionformer.data.folders import split_folders
from motionformer.data.lists import ClassSource
from motionformer.data.source import Kind, MotionClips, parse_motion, recognise
from motionformer.errors import EvaluationError
from motionformer.evaluation.views import FileVideos, MotionVideos, SampleBy, VideoSource
from motionformer.models import InputSpec


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
    """Anything `data.open_source` takes, cut into views as `spec` says.

    Without `split`, a list is taken as it is, class folders that are not split are taken whole, and of a path that
    holds several splits it is the one made for this (val; test for UCF101 and HMDB51). Files that are not there stay
    in the list, to be counted as failed; if none is there, that is an error.
    """
    if parse_motion(data) is None:
        split = split or _evaluation_split(Path(data), kind)
    else:
        _check_made_clips(data, views, crops, sample_by)
        split = "test" if split is None else split
    source = data_source(data, kind, split=split, root=root, class_names=class_names, missing="keep", seed=seed)
    if isinstance(source, MotionClips):
        return MotionVideos(source.benchmark(spec), spec)
    if not any(record.path.exists() for record in source):
        source.handle_missing("error")
    return FileVideos(
        source, spec, views=views, crops=crops, sample_by=sample_by, decoder=decoder, time_limit=time_limit
    )


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
