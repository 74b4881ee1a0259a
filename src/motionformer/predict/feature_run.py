"""Features of many videos: a file each, shared among processes, done ones left alone."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from motionformer.errors import EvaluationError, VideoError
from motionformer.evaluation.results import READ
from motionformer.evaluation.several import find_processes
from motionformer.predict.feature_files import Format, read_about, write_features
from motionformer.predict.features import FeatureExtractor
from motionformer.predict.inputs import Input
from motionformer.runs import stamp_video

Entry = dict[str, Any]


def extract_all(
    extractor: FeatureExtractor,
    videos: Sequence[Input],
    out: Path,
    *,
    about: Mapping[str, Any],
    format: Format = "npz",
    dtype: str = "float32",
    resume: bool = False,
    on_entry: Callable[[Entry], None] = lambda entry: None,
) -> list[Entry]:
    """What became of every video, in their order, in every process.

    With `resume`, files that are there are kept, if they say that they are of the same video, model and options.
    """
    processes = find_processes()
    pairs = list(zip(videos, output_files(videos, out, format), strict=True))
    mine: dict[str, Entry] = {}
    for video, file in processes.share(pairs):
        made_of = {
            **about,
            **extractor.describe(),
            "dtype": dtype,
            "video": video.name,
            "stamp": stamp_video(video.path),
        }
        kept = _find_kept(file, made_of) if resume and file.exists() else None
        if kept is not None:
            entry: Entry = {"video": str(video.path), "file": str(file), "kept": True, **kept}
        else:
            entry = _extract(extractor, video.path, file, made_of, dtype)
        mine[str(video.path)] = entry
        on_entry(entry)
    whole: dict[str, Entry] = {}
    for share in processes.gather(mine):
        whole.update(share)
    return [whole[str(video.path)] for video in videos]


def output_files(videos: Sequence[Input], out: Path, format: Format) -> list[Path]:
    """Named after the videos, endings included: a.mp4 and a.avi differ."""
    files = [out / f"{video.name}.{format}" for video in videos]
    taken: dict[Path, Path] = {}
    for file, video in zip(files, videos, strict=True):
        if file in taken:
            raise EvaluationError(
                f"{taken[file]} and {video.path} would both be written to {file}: give the folder that holds both, or"
                " run them into two folders."
            )
        taken[file] = video.path
    return files


def _extract(extractor: FeatureExtractor, video: Path, file: Path, about: Mapping[str, Any], dtype: str) -> Entry:
    try:
        shape, facts = write_features(file, extractor.stream(video), about, dtype)
    except VideoError as error:
        return {"video": str(video), "failed": error.full_reason}
    return {"video": str(video), "file": str(file), "shape": list(shape), **({} if facts is None else facts.to_dict())}


def _find_kept(file: Path, wanted: Mapping[str, Any]) -> Entry | None:
    """What the file says it was made from, if it is of this video as it is now; features of another model or kind are
    never taken for these."""
    found = read_about(file)
    compared = {*wanted, "protocol", "sample_by"} - {"stamp"}  # the two are left out where they have their old value
    options = sorted(key for key in compared if found.get(key) != wanted.get(key))
    if options:
        raise EvaluationError(
            f"{file} holds other features: {', '.join(options)} differ. Give another folder, or leave --resume out to"
            " write over it."
        )
    return {key: found[key] for key in READ if key in found} if found["stamp"] == wanted["stamp"] else None
