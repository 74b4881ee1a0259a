"""Kinetics-400, -600 and -700, as distributed: `label,youtube_id,time_start,time_end,split`, and files named
`<youtube_id>_<start>_<end>.mp4` in one folder, a folder a split, or a folder a class."""

from pathlib import Path

from motionformer.data.class_names import ClassSource, read_class_names
from motionformer.data.listing import find_videos
from motionformer.data.plain_list import read_plain_list
from motionformer.data.record import Annotations, Record
from motionformer.data.table import Row, read_lines, read_rows

SIZES = (400, 600, 700)


def read_kinetics(file: Path, root: Path | None = None, class_names: ClassSource | None = None) -> Annotations:
    """The official csv, or a list of `path label`. Files are already cut, so records have no start and end.

    Classes are numbered in alphabetical order of their names, which is what every published model does. A list
    that does not name every class needs `class_names`; `notes` says when the number of classes looks wrong.
    """
    if "youtube_id" not in read_lines(file)[0][1].lower():
        return read_plain_list(file, root, class_names, "kinetics")
    rows = list(read_rows(file, ["youtube_id", "time_start", "time_end"]))
    labelled = any(row.cells.get("label") for row in rows)
    given = None if class_names is None else read_class_names(class_names)
    names = given or (tuple(sorted({row.text("label") for row in rows})) if labelled else ())
    numbers = {name: index for index, name in enumerate(names)}
    places = _places(root or file.parent)
    records = tuple(
        Record(
            path=places.get(stem := _stem(row), (root or file.parent) / f"{stem}.mp4"),
            label=_label(row, numbers) if labelled else None,
            id=stem,
            source=file,
            line=row.line,
        )
        for row in rows
    )
    notes = () if given or not labelled or len(names) in SIZES else (_odd_number(len(names)),)
    split = rows[0].cells.get("split") or None if rows else None
    how = f"an official Kinetics csv with {len(names)} classes"
    return Annotations(records, names, f"kinetics-{len(names)}", split, how=how, notes=notes)


def _stem(row: Row) -> str:
    return f"{row.text('youtube_id')}_{row.integer('time_start'):06d}_{row.integer('time_end'):06d}"


def _places(root: Path) -> dict[str, Path]:
    """Where each video is, by name; one walk is quicker than four guesses a line."""
    return {path.stem: path for path in find_videos(root)} if root.is_dir() else {}


def _label(row: Row, numbers: dict[str, int]) -> int:
    label = row.text("label")
    if label not in numbers:
        raise row.error(f"label {label!r} is not among the {len(numbers)} classes.")
    return numbers[label]


def _odd_number(count: int) -> str:
    return f"{count} classes, but Kinetics has {', '.join(map(str, SIZES))}; pass class_names if this list lacks some"
