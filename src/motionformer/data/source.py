"""A path becomes annotations: what kind of data set it is, and how that was decided."""

from dataclasses import replace
from pathlib import Path
from typing import Literal, get_args

from motionformer.data.folders import (
    find_videos,
    is_frame_folder,
    is_video,
    note_left_out,
    read_class_folders,
    split_folders,
    visible_folders,
)
from motionformer.data.plain_list import read_plain_list
from motionformer.data.published import (
    SOMETHING_LABELS,
    UCF101_CLASSES,
    check_no_pickle,
    read_epic,
    read_hmdb51,
    read_kinetics,
    read_something,
    read_ucf101,
    something_list,
    ucf101_list,
)
from motionformer.data.record import Annotations, Missing, Record
from motionformer.data.table import ClassSource, read_lines
from motionformer.errors import AnnotationError, MissingVideosError

Kind = Literal["auto", "kinetics", "something", "epic", "ucf101", "hmdb51", "folders", "list", "files"]
EPIC_LISTS = {"train": "EPIC_100_train.csv", "val": "EPIC_100_validation.csv", "test": "EPIC_100_test_timestamps.csv"}
UCF_FOLDER, HMDB_FOLDER = "ucfTrainTestlist", "testTrainMulti_7030_splits"


def open_dataset(
    path: str | Path,
    kind: Kind = "auto",
    *,
    split: str | None = None,
    root: str | Path | None = None,
    class_names: ClassSource | None = None,
    missing: Missing = "error",
    fold: int = 1,
    seed: int = 0,
) -> Annotations:
    """Read the data set at `path`: a list, the folder of a published data set, class folders, or videos alone.

    `root` is where the videos are (default: where the list is); `split` chooses train, val or test where the path
    holds several; `how` of the result says what was recognised.
    """
    path = Path(path)
    if not path.exists():
        raise MissingVideosError("no such file or folder.", path)
    if kind not in get_args(Kind):
        raise AnnotationError(f"kind is one of {', '.join(get_args(Kind))}; not {kind!r}.", path)
    place = None if root is None else Path(root)
    found = recognise(path) if kind == "auto" else kind
    annotations = _read(found, path, split, place, class_names, fold, seed)
    return replace(annotations, how=f"{path}: {annotations.how}").handle_missing(missing)


def recognise(path: Path) -> Kind:
    """What kind of data set lies at `path`, by names of files and the first line of a list."""
    return _recognise_folder(path) if path.is_dir() else _recognise_file(path)


def read_files(path: Path) -> Annotations:
    """Videos without labels: one file, one folder of frames, or everything below a folder."""
    alone = is_video(path) or (path.is_dir() and is_frame_folder(path))
    videos = [path] if alone else find_videos(path)
    how = "one video, no label" if alone else f"{len(videos)} videos, no labels"
    if not videos:
        raise AnnotationError("no video in this folder (they are known by their endings: mp4, avi, mkv, webm …).", path)
    mixed = not alone and visible_folders(path) and any(video.parent == path for video in videos)
    notes = ("videos lie beside folders, so the folders were not taken for classes (kind: folders)",) if mixed else ()
    strays = () if alone else note_left_out(path)
    records = tuple(Record(video) for video in videos)
    return Annotations(records, (), path.resolve().name, how=how, notes=(*notes, *strays))


def _recognise_folder(path: Path) -> Kind:
    if any((path / name).exists() or (path / "labels" / name).exists() for name in SOMETHING_LABELS):
        return "something"
    if any((path / name).exists() for name in EPIC_LISTS.values()):
        return "epic"
    if (path / UCF101_CLASSES).exists() or (path / UCF_FOLDER).is_dir():
        return "ucf101"
    if (path / HMDB_FOLDER).is_dir() or any(path.glob("*_test_split1.txt")):
        return "hmdb51"
    if any((path / f"{split}.csv").exists() for split in ("train", "val", "test")):
        return "list"
    folders = visible_folders(path)
    has_loose_videos = any(is_video(entry) for entry in path.iterdir()) or is_frame_folder(path)
    if folders and not has_loose_videos and (split_folders(path) or not all(map(is_frame_folder, folders))):
        return "folders"
    return "files"


def _recognise_file(path: Path) -> Kind:
    check_no_pickle(path)
    if is_video(path):
        return "files"
    if path.suffix.lower() == ".json":
        return "something"
    if path.suffix.lower() == ".tar":
        raise AnnotationError("a tar shard is read by motionformer.data.ShardDataset, not as a list.", path)
    if path.name.startswith(("trainlist", "testlist")) and (path.parent / UCF101_CLASSES).exists():
        return "ucf101"
    first = read_lines(path)[0][1].lower()
    if "narration_id" in first:
        return "epic"
    return "kinetics" if "youtube_id" in first else "list"


def _read(
    kind: Kind, path: Path, split: str | None, root: Path | None, classes: ClassSource | None, fold: int, seed: int
) -> Annotations:
    folder = path.is_dir()
    if kind == "folders":
        return read_class_folders(path, split, seed=seed, class_names=classes)
    if kind == "files":
        return read_files(path)
    if kind == "hmdb51":
        return read_hmdb51(path / HMDB_FOLDER if (path / HMDB_FOLDER).is_dir() else path, root, split or "train", fold)
    if kind == "ucf101":
        lists = path / UCF_FOLDER if (path / UCF_FOLDER).is_dir() else path
        return read_ucf101(ucf101_list(lists, split or "train", fold) if folder else path, root)
    split = split or "train"
    if split not in EPIC_LISTS:
        raise AnnotationError(f"no split {split!r}; there are {', '.join(EPIC_LISTS)}.", path)
    if kind == "something":
        return read_something(something_list(path, split) if folder else path, root, classes)
    if kind == "epic":
        return read_epic(path / EPIC_LISTS[split] if folder else path, root)
    file = path / f"{split}.csv" if folder else path
    if kind == "kinetics" or (folder and _recognise_file(file) == "kinetics"):
        return read_kinetics(file, root, classes)
    return read_plain_list(file, root, classes)
