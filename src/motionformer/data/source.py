"""START HERE: an address becomes data. A path holds a list, a published data set, class folders or videos alone, and is
recognised by names of files; `motion:LEVEL[:CLIPS]` is the built-in benchmark."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, cast, get_args

from motionformer.data.folders import (
    find_videos,
    is_frame_folder,
    is_video,
    note_left_out,
    read_class_folders,
    split_folders,
    visible_folders,
)
from motionformer.data.lists import ClassSource, read_lines, read_plain_list
from motionformer.data.motion import CLASSES, LEVELS, MotionBenchmark, Split
from motionformer.data.published import (
    SOMETHING_LABELS,
    UCF101_CLASSES,
    check_no_pickle,
    read_epic,
    read_hmdb51,
    read_kinetics,
    read_something,
    read_ucf101,
)
from motionformer.data.record import Annotations, ClassNames, Missing, Record
from motionformer.data.shards import INDEX_NAME
from motionformer.errors import AnnotationError, MissingVideosError
from motionformer.logging import show_count
from motionformer.video.spec import InputSpec

Kind = Literal["auto", "kinetics", "something", "epic", "ucf101", "hmdb51", "folders", "list", "files"]
_EPIC_LISTS = {"train": "EPIC_100_train.csv", "val": "EPIC_100_validation.csv", "test": "EPIC_100_test_timestamps.csv"}
_UCF_FOLDER, _HMDB_FOLDER = "ucfTrainTestlist", "testTrainMulti_7030_splits"

MOTION = "motion:"
_MOTION_CLIPS = 512


def open_source(
    address: str | Path,
    kind: Kind = "auto",
    *,
    split: str | None = None,
    root: str | Path | None = None,
    class_names: ClassSource | None = None,
    missing: Missing = "error",
    fold: int = 1,
    seed: int = 0,
    num_clips: int = _MOTION_CLIPS,
) -> "Annotations | MotionClips":
    """Anything that training and evaluation read clips from.

    Args:
        address: what `open_dataset` takes, or `motion:LEVEL[:CLIPS]`.
        split, seed: of either; `train` and 0 by default.
        kind, root, class_names, missing, fold: of a path, as in `open_dataset`.
        num_clips: of the benchmark, where the address has none.

    Raises:
        AnnotationError: it is not there or cannot be understood; tar shards (`ShardDataset` reads them).

    Example:
        >>> open_source("motion:easy:64", split="val").how
        'the built-in motion benchmark, level easy, 64 val clips'
    """
    motion = parse_motion(address)
    if motion is None:
        return open_dataset(
            address, kind, split=split, root=root, class_names=class_names, missing=missing, fold=fold, seed=seed
        )
    if motion.number is not None:
        reason = f"is one clip, to be traced; a data set is {MOTION}{motion.level} or {MOTION}{motion.level}:1000."
        raise AnnotationError(reason, address)
    split = "train" if split is None else split
    if split not in get_args(Split):
        raise AnnotationError(f"no split {split!r}; there are {', '.join(get_args(Split))}.", address)
    return MotionClips(motion.level, cast(Split, split), motion.num_clips or num_clips, seed)


@dataclass(frozen=True)
class MotionAddress:
    """`motion:LEVEL`, with a number of clips (`motion:LEVEL:CLIPS`), or one of its clips (`motion:LEVEL/NUMBER`)."""

    level: str
    num_clips: int | None = None
    number: int | None = None


def parse_motion(address: str | Path) -> MotionAddress | None:
    """The parts of an address of the motion benchmark; None for any other. Raises `AnnotationError` for a wrong one."""
    text = str(address)
    if not text.startswith(MOTION):
        return None
    rest = text.removeprefix(MOTION)
    level, separator, count = rest.partition("/" if "/" in rest else ":")
    if level not in LEVELS:
        raise AnnotationError(f"there is no level {level!r}; there are {', '.join(LEVELS)}.", text)
    if separator == "/":
        if not count.isdecimal():
            raise AnnotationError(f"{count!r} is not the number of a clip; write {MOTION}{level}/3.", text)
        return MotionAddress(level, number=int(count))
    if count and not (count.isdecimal() and int(count)):
        raise AnnotationError(f"{count!r} is not a number of clips; write {MOTION}{level}:1000.", text)
    return MotionAddress(level, num_clips=int(count) if count else None)


@dataclass(frozen=True)
class MotionClips:
    """Clips of the built-in benchmark, before it is known which a model takes."""

    level: str
    split: Split
    num_clips: int
    seed: int = 0
    class_names: ClassNames = CLASSES

    @property
    def how(self) -> str:
        return f"the built-in motion benchmark, level {self.level}, {show_count(self.num_clips, f'{self.split} clip')}"

    def __len__(self) -> int:
        return self.num_clips

    def benchmark(self, spec: InputSpec) -> MotionBenchmark:
        """The clips that a model of this input takes. Raises `AnnotationError` where they are not square."""
        if spec.height != spec.width:
            reason = f"the motion benchmark makes square clips; the model takes {spec.height} × {spec.width}."
            raise AnnotationError(reason, MOTION + self.level)
        shape = {"frames": spec.frames, "stride": spec.stride, "size": spec.height}
        return MotionBenchmark(self.level, self.split, self.num_clips, seed=self.seed, **shape)


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

    Args:
        path: a file or a folder.
        kind: its layout; "auto" recognises it by names of files.
        split: train, val or test, where the path holds several.
        root: folder of the videos [default: where the list is].
        class_names: the classes in their order, or a file that holds them.
        missing: listed videos that are not there are an error, dropped, or kept.
        fold: of UCF101 and HMDB51.
        seed: of the split of class folders that are not split.

    Returns:
        The records and their classes; `how` describes what was recognised, `notes` what was odd.

    Raises:
        AnnotationError: the data set cannot be understood, with the file and line.
        MissingVideosError: nothing is there, or listed videos are not.

    Example:
        ```python
        train = open_dataset("videos/", split="train")
        print(train.how, train.counts())
        ```
    """
    path = Path(path)
    if not path.exists():
        raise MissingVideosError("no such file or folder.", path)
    if kind not in get_args(Kind):
        raise AnnotationError(f"kind is one of {', '.join(get_args(Kind))}; not {kind!r}.", path)
    found = recognise(path) if kind == "auto" else kind
    annotations = _read(found, path, split, None if root is None else Path(root), class_names, fold, seed)
    return replace(annotations, how=f"{path}: {annotations.how}").handle_missing(missing)


def recognise(path: Path) -> Kind:
    """What kind of data set lies at `path`, by names of files and the first line of a list."""
    return _recognise_folder(path) if path.is_dir() else _recognise_file(path)


def _read_files(path: Path) -> Annotations:
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
    _check_no_shards(path)
    if any((path / name).exists() or (path / "labels" / name).exists() for name in SOMETHING_LABELS):
        return "something"
    if any((path / name).exists() for name in _EPIC_LISTS.values()):
        return "epic"
    if (path / UCF101_CLASSES).exists() or (path / _UCF_FOLDER).is_dir():
        return "ucf101"
    if (path / _HMDB_FOLDER).is_dir() or any(path.glob("*_test_split1.txt")):
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
    _check_no_shards(path)
    if path.name.startswith(("trainlist", "testlist")) and (path.parent / UCF101_CLASSES).exists():
        return "ucf101"
    first = read_lines(path)[0][1].lower()
    if "narration_id" in first:
        return "epic"
    return "kinetics" if "youtube_id" in first else "list"


def _check_no_shards(path: Path) -> None:
    if path.suffix.lower() == ".tar" or ((path / INDEX_NAME).is_file() and any(path.glob("*.tar"))):
        raise AnnotationError(
            "tar shards are read by motionformer.data.ShardDataset, for training in Python; give the list or folder"
            " they were written from.",
            path,
        )


def _read(
    kind: Kind, path: Path, split: str | None, root: Path | None, classes: ClassSource | None, fold: int, seed: int
) -> Annotations:
    folder = path.is_dir()
    if kind == "folders":
        return read_class_folders(path, split, seed=seed, class_names=classes)
    if kind == "files":
        return _read_files(path)
    if kind == "hmdb51":
        return read_hmdb51(
            path / _HMDB_FOLDER if (path / _HMDB_FOLDER).is_dir() else path, root, split or "train", fold
        )
    if kind == "ucf101":
        return read_ucf101(path / _UCF_FOLDER if (path / _UCF_FOLDER).is_dir() else path, root, split or "train", fold)
    split = split or "train"
    if split not in _EPIC_LISTS:
        raise AnnotationError(f"no split {split!r}; there are {', '.join(_EPIC_LISTS)}.", path)
    if kind == "something":
        return read_something(path, root, classes, split)
    if kind == "epic":
        return read_epic(path / _EPIC_LISTS[split] if folder else path, root)
    file = path / f"{split}.csv" if folder else path
    if kind == "kinetics" or (folder and _recognise_file(file) == "kinetics"):
        return read_kinetics(file, root, classes)
    return read_plain_list(file, root, classes)
