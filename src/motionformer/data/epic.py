"""EPIC-Kitchens-100, as distributed: actions cut out of long videos, a verb and a noun each, and videos of different
frame rates (50 and 59.94, but also 29.97, 47.95 and 90), so times are kept in seconds."""

import re
from pathlib import Path

from motionformer.data.class_names import names_by_index
from motionformer.data.listing import first_existing
from motionformer.data.record import Annotations, Record
from motionformer.data.table import Row, read_rows
from motionformer.errors import AnnotationError

NUM_CLASSES = {"verb": 97, "noun": 300}
CLASS_FILES = {
    "verb": ("EPIC_100_verb_classes.csv", "EPIC_100_verb_classes_v2.csv"),
    "noun": ("EPIC_100_noun_classes.csv", "EPIC_100_noun_classes_v2.csv"),
}
VIDEO_INFO = "EPIC_100_video_info.csv"
CLOCK = re.compile(r"(\d+):([0-5]?\d):([0-5]?\d)(?:\.(\d+))?")


def read_epic(file: Path, root: Path | None = None, video_info: Path | None = None) -> Annotations:
    """One record an action. Class names and frame rates come from the files beside the list, where they are there."""
    refuse_pickle(file)
    root = root or file.parent
    rows = list(read_rows(file, ["narration_id", "participant_id", "video_id"]))
    rates = _rates(video_info or file.parent / VIDEO_INFO, required=video_info is not None)
    paths = {(row.text("participant_id"), row.text("video_id")) for row in rows}
    places = {(participant, video): _place(root, participant, video) for participant, video in paths}
    records = tuple(_record(row, file, places, rates) for row in rows)
    names = {task: _class_names(file.parent, task) for task in NUM_CLASSES}
    split = next((key for key in ("train", "val", "test") if key in file.stem.lower()), None)
    return Annotations(records, names, "epic-kitchens-100", split, how="an EPIC-Kitchens-100 csv (verb and noun)")


def refuse_pickle(file: Path) -> None:
    """A pickle runs whatever its author put in it; the same list is published as csv."""
    if file.suffix.lower() in (".pkl", ".pickle"):
        reason = (
            f"is a pickle, which can run any code when opened, so it is not read. Use {file.stem}.csv from the same"
            " place, or convert a file you trust: python -c \"import pandas; pandas.read_pickle('IN.pkl')"
            ".reset_index().to_csv('OUT.csv', index=False)\""
        )
        raise AnnotationError(reason, file)


def _record(row: Row, file: Path, places: dict[tuple[str, str], Path], rates: dict[str, float]) -> Record:
    video = row.text("video_id")
    path = places[row.text("participant_id"), video]
    rate = rates.get(video)
    if rate is None and (path.is_dir() or not row.cells.get("start_timestamp")):
        raise row.error(f"the frame rate of {video} is needed; put {VIDEO_INFO} beside the list or pass video_info.")
    labelled = bool(row.cells.get("verb_class"))
    return Record(
        path=path,
        label={task: row.integer(f"{task}_class") for task in NUM_CLASSES} if labelled else None,
        start=_time(row, "start", rate),
        end=_time(row, "stop", rate),
        fps=rate if path.is_dir() else None,  # a video file knows its own
        assumed_fps=_assumed_rate(video),
        id=row.text("narration_id"),
        source=file,
        line=row.line,
    )


def _time(row: Row, which: str, rate: float | None) -> float:
    text = row.cells.get(f"{which}_timestamp")
    if not text:
        assert rate is not None
        return row.integer(f"{which}_frame") / rate
    found = CLOCK.fullmatch(text)
    if not found:
        raise row.error(f"{which}_timestamp is {text!r}, not hours:minutes:seconds.")
    hours, minutes, seconds, digits = found.groups()
    whole = int(hours) * 3600 + int(minutes) * 60 + int(seconds)
    return whole + int(digits) / 10 ** len(digits) if digits else float(whole)


def _assumed_rate(video: str) -> float:
    """What the released program takes for the rate: 50 for videos of the second recording (P01_101), else 60."""
    return 50.0 if len(video.partition("_")[2]) == 3 else 60.0


def _rates(file: Path, *, required: bool) -> dict[str, float]:
    if not required and not file.exists():
        return {}
    return {row.text("video_id"): row.number("fps") for row in read_rows(file, ["video_id", "fps"])}


def _place(root: Path, participant: str, video: str) -> Path:
    home = root / participant
    folders = [home / "rgb_frames" / video, home / video, root / video]
    files = [base / f"{video}{end}" for base in (home / "videos", home, root) for end in (".MP4", ".mp4")]
    return first_existing([*folders, *files])


def _class_names(folder: Path, task: str) -> tuple[str, ...]:
    file = first_existing([folder / name for name in CLASS_FILES[task]])
    if not file.exists():
        return tuple(f"{task} {index}" for index in range(NUM_CLASSES[task]))
    return names_by_index(((row.text("key"), row.text("id"), row.line) for row in read_rows(file, ["id", "key"])), file)
