"""The published data sets as distributed: Kinetics, Something-Something V2, EPIC-Kitchens-100, UCF101, HMDB51."""

import re
from pathlib import Path

from motionformer.data.folders import find_videos
from motionformer.data.lists import (
    ClassSource,
    Row,
    names_by_index,
    read_class_names,
    read_json,
    read_lines,
    read_plain_list,
    read_rows,
)
from motionformer.data.record import Annotations, Record
from motionformer.errors import AnnotationError

_KINETICS_SIZES = (400, 600, 700)


def read_kinetics(file: Path, root: Path | None = None, class_names: ClassSource | None = None) -> Annotations:
    """Kinetics-400, -600, -700: the csv `label,youtube_id,time_start,time_end,split`, or a list of `path label`.

    Files are named `<youtube_id>_<start>_<end>.mp4`, in one folder, a folder a split, or a folder a class. They are
    already cut, so records have no start and end.

    Classes are numbered in alphabetical order of their names, which is what every published model does. A list
    that does not name every class needs `class_names`; `notes` tell when the number of classes looks wrong.
    """
    if "youtube_id" not in read_lines(file)[0][1].lower():
        return read_plain_list(file, root, class_names, "kinetics")
    rows = list(read_rows(file, ["youtube_id", "time_start", "time_end"]))
    labelled = any(row.cells.get("label") for row in rows)
    given = None if class_names is None else read_class_names(class_names)
    names = given or (tuple(sorted({row.text("label") for row in rows})) if labelled else ())
    numbers = {name: index for index, name in enumerate(names)}
    folder = root or file.parent
    found_at = {path.stem: path for path in find_videos(folder)} if folder.is_dir() else {}  # one walk: quicker
    records = tuple(
        Record(
            path=found_at.get(stem := _kinetics_stem(row), folder / f"{stem}.mp4"),
            label=_kinetics_label(row, numbers) if labelled else None,
            id=stem,
            source=file,
            line=row.line,
        )
        for row in rows
    )
    notes = () if given or not labelled or len(names) in _KINETICS_SIZES else (_odd_number(len(names)),)
    split = rows[0].cells.get("split") or None if rows else None
    how = f"an official Kinetics csv with {len(names)} classes"
    return Annotations(records, names, f"kinetics-{len(names)}", split, how=how, notes=notes)


def _kinetics_stem(row: Row) -> str:
    return f"{row.text('youtube_id')}_{row.integer('time_start'):06d}_{row.integer('time_end'):06d}"


def _kinetics_label(row: Row, numbers: dict[str, int]) -> int:
    label = row.text("label")
    if label not in numbers:
        raise row.error(f"label {label!r} is not among the {len(numbers)} classes.")
    return numbers[label]


def _odd_number(count: int) -> str:
    known = ", ".join(map(str, _KINETICS_SIZES))
    return f"{count} classes, but Kinetics has {known}; pass class_names if this list lacks some"


SOMETHING_LABELS = ("something-something-v2-labels.json", "labels.json")
_SOMETHING_FOLDERS = ("20bn-something-something-v2", "videos", "frames")
_SOMETHING_LISTS = {"train": ("train",), "val": ("validation", "val"), "test": ("test",)}


def read_something(
    path: Path, root: Path | None = None, labels: ClassSource | None = None, split: str = "train"
) -> Annotations:
    """Something-Something V2: a JSON list of `{id, template}`, a JSON object of labels, `<id>.webm` or frames `<id>/`.

    Of a folder, the list of `split` in it or in its `labels` folder, under the names of either release. Entries of a
    test list have no template, so their label is None. Videos run at 12 frames a second: clips at a fixed stride are
    forbidden.
    """
    file = path
    if path.is_dir():
        names = [f"{start}{name}.json" for name in _SOMETHING_LISTS[split] for start in ("something-something-v2-", "")]
        file = _first_existing([base / name for base in (path, path / "labels") for name in names])
    entries = read_json(file)
    if not isinstance(entries, list):
        raise AnnotationError("not a list of videos; the labels file was given where a list belongs?", file)
    for number, entry in enumerate(entries, start=1):
        _check_something_entry(entry, number, file)
    classes = read_class_names(labels or _something_labels(file))
    numbers = {name: index for index, name in enumerate(classes)}
    beside = [base / name for base in (file.parent, file.parent.parent) for name in _SOMETHING_FOLDERS]
    root = root or _first_existing([*beside, file.parent])
    records = tuple(
        _something_record(entry, number, file, root, numbers) for number, entry in enumerate(entries, start=1)
    )
    found = next((key for key, parts in _SOMETHING_LISTS.items() if any(part in file.stem for part in parts)), None)
    how = f"a Something-Something V2 list with {len(classes)} classes; sampling by segments (12 frames a second)"
    return Annotations(records, classes, "something-something-v2", found, "segments", how)


def _check_something_entry(entry: object, number: int, file: Path) -> None:
    if not isinstance(entry, dict) or "id" not in entry:
        reason = f"entry {number} has no 'id': {str(entry)[:80]}. A JSON list is one of Something-Something V2;"
        raise AnnotationError(f"{reason} write others as csv (path,label).", file)


def _something_labels(file: Path) -> Path:
    found = _first_existing([file.parent / name for name in SOMETHING_LABELS])
    if not found.exists():
        reason = (
            f"there is no {' or '.join(SOMETHING_LABELS)} beside this Something-Something V2 list: give the classes."
        )
        raise AnnotationError(reason, file)
    return found


def _something_record(entry: dict[str, object], number: int, file: Path, root: Path, numbers: dict[str, int]) -> Record:
    key = str(entry["id"])
    path = _first_existing([root / f"{key}.webm", root / f"{key}.mp4", root / key])
    template = entry.get("template")
    if template is None:
        return Record(path, id=key, source=file)
    name = str(template).replace("[", "").replace("]", "")
    if name not in numbers:
        reason = f"entry {number} (video {key}): template {template!r} is not among the {len(numbers)} labels."
        raise AnnotationError(reason, file)
    return Record(path, numbers[name], id=key, source=file)


_EPIC_CLASSES = {"verb": 97, "noun": 300}
EPIC_CLASS_FILES = {
    "verb": ("EPIC_100_verb_classes.csv", "EPIC_100_verb_classes_v2.csv"),
    "noun": ("EPIC_100_noun_classes.csv", "EPIC_100_noun_classes_v2.csv"),
}
_EPIC_VIDEO_INFO = "EPIC_100_video_info.csv"
_EPIC_CLOCK = re.compile(r"(\d+):([0-5]?\d):([0-5]?\d)(?:\.(\d+))?")


def read_epic(file: Path, root: Path | None = None, video_info: Path | None = None) -> Annotations:
    """EPIC-Kitchens-100: one record an action of a long video, a verb and a noun each.

    Class names and frame rates come from the files beside the list, where they are there. Rates differ (50 and 59.94,
    but also 29.97, 47.95 and 90), so times are kept in seconds.
    """
    check_no_pickle(file)
    root = root or file.parent
    rows = list(read_rows(file, ["narration_id", "participant_id", "video_id"]))
    rates = _epic_rates(video_info or file.parent / _EPIC_VIDEO_INFO, required=video_info is not None)
    paths = {(row.text("participant_id"), row.text("video_id")) for row in rows}
    found_at = {(participant, video): _epic_path(root, participant, video) for participant, video in paths}
    records = tuple(_epic_record(row, file, found_at, rates) for row in rows)
    names = {task: _epic_class_names(file.parent, task) for task in _EPIC_CLASSES}
    split = next((key for key in ("train", "val", "test") if key in file.stem.lower()), None)
    return Annotations(records, names, "epic-kitchens-100", split, how="an EPIC-Kitchens-100 csv (verb and noun)")


def check_no_pickle(file: Path) -> None:
    """A pickle runs whatever its author put in it; the same list is published as csv."""
    if file.suffix.lower() in (".pkl", ".pickle"):
        reason = (
            f"is a pickle, which can run any code when opened, so it is not read. Use {file.stem}.csv from the same"
            " source, or convert a file you trust: python -c \"import pandas; pandas.read_pickle('IN.pkl')"
            ".reset_index().to_csv('OUT.csv', index=False)\""
        )
        raise AnnotationError(reason, file)


def _epic_record(row: Row, file: Path, found_at: dict[tuple[str, str], Path], rates: dict[str, float]) -> Record:
    video = row.text("video_id")
    path = found_at[row.text("participant_id"), video]
    rate = rates.get(video)
    if rate is None and (path.is_dir() or not row.cells.get("start_timestamp")):
        raise row.error(
            f"the frame rate of {video} is needed; put {_EPIC_VIDEO_INFO} beside the list or pass video_info."
        )
    labelled = bool(row.cells.get("verb_class"))
    return Record(
        path=path,
        label={task: row.integer(f"{task}_class") for task in _EPIC_CLASSES} if labelled else None,
        start=_epic_time(row, "start", rate),
        end=_epic_time(row, "stop", rate),
        fps=rate if path.is_dir() else None,  # a video file knows its own
        assumed_fps=_epic_assumed_rate(video),
        id=row.text("narration_id"),
        source=file,
        line=row.line,
    )


def _epic_time(row: Row, which: str, rate: float | None) -> float:
    text = row.cells.get(f"{which}_timestamp")
    if not text:
        assert rate is not None
        return row.integer(f"{which}_frame") / rate
    found = _EPIC_CLOCK.fullmatch(text)
    if not found:
        raise row.error(f"{which}_timestamp is {text!r}, not hours:minutes:seconds.")
    hours, minutes, seconds, digits = found.groups()
    whole = int(hours) * 3600 + int(minutes) * 60 + int(seconds)
    return whole + int(digits) / 10 ** len(digits) if digits else float(whole)


def _epic_assumed_rate(video: str) -> float:
    """What the released program takes for the rate: 50 for videos of the second recording (P01_101), else 60."""
    return 50.0 if len(video.partition("_")[2]) == 3 else 60.0


def _epic_rates(file: Path, *, required: bool) -> dict[str, float]:
    if not required and not file.exists():
        return {}
    return {row.text("video_id"): row.number("fps") for row in read_rows(file, ["video_id", "fps"])}


def _epic_path(root: Path, participant: str, video: str) -> Path:
    home = root / participant
    folders = [home / "rgb_frames" / video, home / video, root / video]
    files = [base / f"{video}{end}" for base in (home / "videos", home, root) for end in (".MP4", ".mp4")]
    return _first_existing([*folders, *files])


def _epic_class_names(folder: Path, task: str) -> tuple[str, ...]:
    file = _first_existing([folder / name for name in EPIC_CLASS_FILES[task]])
    if not file.exists():
        return tuple(f"{task} {index}" for index in range(_EPIC_CLASSES[task]))
    return names_by_index(((row.text("key"), row.text("id"), row.line) for row in read_rows(file, ["id", "key"])), file)


UCF101_CLASSES = "classInd.txt"


def read_ucf101(path: Path, root: Path | None = None, split: str = "train", fold: int = 1) -> Annotations:
    """UCF101: `classInd.txt` (numbered from 1) and three pairs of `trainlist01.txt` / `testlist01.txt`.

    A list, or that of `split` and `fold` in a folder. One record a line. The class is the folder's name; a number
    beside it must agree.
    """
    if path.is_dir() and split not in ("train", "test"):
        raise AnnotationError(f"UCF101 has the splits train and test, not {split!r}.", path)
    file = path / f"{split}list{fold:02d}.txt" if path.is_dir() else path
    names = _ucf101_class_names(file.parent / UCF101_CLASSES)
    numbers = {name: index for index, name in enumerate(names)}
    root = root or _first_existing([base / "UCF-101" for base in (file.parent, file.parent.parent)])
    records = tuple(_ucf101_record(line, number, file, root, numbers) for number, line in read_lines(file))
    found = "train" if file.stem.startswith("train") else "test"
    return Annotations(records, names, "ucf101", found, how=f"the UCF101 list {file.name} with {UCF101_CLASSES}")


def _ucf101_record(line: str, number: int, file: Path, root: Path, numbers: dict[str, int]) -> Record:
    *path, text = line.rsplit(maxsplit=1)
    video, text = (path[0], text) if path and text.isdecimal() else (line, "")
    name = video.split("/")[0]
    if name not in numbers:
        raise AnnotationError(f"class {name!r} is not in {UCF101_CLASSES}.", file, number)
    if text and int(text) != numbers[name] + 1:
        raise AnnotationError(
            f"{name} has the number {numbers[name] + 1} in {UCF101_CLASSES}, here {text}.", file, number
        )
    return Record(root / video, numbers[name], source=file, line=number)


def _ucf101_class_names(file: Path) -> tuple[str, ...]:
    pairs = []
    for number, line in read_lines(file):
        index, _, name = line.partition(" ")
        if not name.strip():
            raise AnnotationError(f"{line!r} is not `number name`.", file, number)
        pairs.append((name.strip(), index, number))
    return names_by_index(pairs, file, first=1)


_HMDB51_MEMBERSHIP = {"train": "1", "test": "2"}


def read_hmdb51(folder: Path, root: Path | None = None, split: str = "train", fold: int = 1) -> Annotations:
    """HMDB51: a text file a class and fold, `<class>_test_split<fold>.txt`; classes in alphabetical order.

    A line is a file name and 1 (training), 2 (testing) or 0 (neither).
    """
    if split not in _HMDB51_MEMBERSHIP:
        raise AnnotationError(f"HMDB51 has the splits train and test, not {split!r}.", folder)
    ending = f"_test_split{fold}.txt"
    files = sorted(folder.glob(f"*{ending}"))
    if not files:
        raise AnnotationError(f"no file named *{ending} in this folder.", folder)
    names = tuple(file.name.removesuffix(ending) for file in files)
    root = root or _first_existing([folder.parent / "hmdb51_org", folder.parent / "videos", folder.parent])
    records = tuple(
        Record(root / name / video, label, source=file, line=number)
        for label, (name, file) in enumerate(zip(names, files, strict=True))
        for number, video, membership in _hmdb51_lines(file)
        if membership == _HMDB51_MEMBERSHIP[split]
    )
    how = f"HMDB51 split files, fold {fold}, {len(names)} classes"
    return Annotations(records, names, "hmdb51", split, how=how)


def _hmdb51_lines(file: Path) -> list[tuple[int, str, str]]:
    found = []
    for number, line in read_lines(file):
        video, _, membership = line.rpartition(" ")
        if membership not in ("0", "1", "2") or not video:
            raise AnnotationError(f"{line!r} is not `file.avi 0|1|2`.", file, number)
        found.append((number, video.strip(), membership))
    return found


def _first_existing(candidates: list[Path]) -> Path:
    """The first that is there; the first of all when none is, so that a message can name it."""
    return next((path for path in candidates if path.exists()), candidates[0])
