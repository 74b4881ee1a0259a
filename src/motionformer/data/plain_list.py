"""Lists of `path label`: our plain csv (`path,label[,start,end]`, with or without a first line of column names) and
the space- or comma-separated lists that Kinetics users pass around. Labels are indices or names."""

import re
from pathlib import Path

from motionformer.data.class_names import ClassSource, read_class_names
from motionformer.data.record import Annotations, Record
from motionformer.data.table import Row, named_row, read_cells, read_lines
from motionformer.errors import AnnotationError

COLUMNS = ("path", "label", "start", "end")
WHOLE_NUMBER = re.compile(r"[+-]?\d+")
SYNONYMS = {"video": "path", "file": "path", "filename": "path", "class": "label", "label_id": "label"}


def read_plain_list(
    file: Path, root: Path | None = None, class_names: ClassSource | None = None, name: str | None = None
) -> Annotations:
    """One record a line. Paths are relative to `root`, by default the folder of the list.

    Without `class_names`, named labels are numbered in alphabetical order and numbered ones are named by their number:
    give the training list's names to every other split.
    """
    root = file.parent if root is None else root
    rows = _rows(file)
    names = None if class_names is None else read_class_names(class_names)
    names = names or _names_of(rows)
    numbers = {name: index for index, name in enumerate(names)}
    records = tuple(
        Record(
            path=root / row.text("path"),
            label=_label(row, numbers),
            start=row.optional_number("start"),
            end=row.optional_number("end"),
            source=file,
            line=row.line,
        )
        for row in rows
    )
    return Annotations(records, names, name or file.stem, how=f"a list of {len(records)} paths and labels")


def _rows(file: Path) -> list[Row]:
    lines = read_lines(file)
    if "," not in lines[0][1]:
        return [_spaced(file, number, line) for number, line in lines]
    cells = read_cells(file)
    header = [SYNONYMS.get(cell.lower(), cell.lower()) for cell in cells[0][1]]
    if "path" not in header and "label" not in header:
        header = list(COLUMNS[: max(2, len(cells[0][1]))])
    else:
        line, _ = cells.pop(0)
        missing = [column for column in ("path", "label") if column not in header]
        if missing:
            reason = f"no column {missing[0]!r}; the first line has {', '.join(header)}."
            raise AnnotationError(reason, file, line)
    if not cells:
        raise AnnotationError("the list has column names and no line below them.", file)
    return [named_row(header, row, file, line) for line, row in cells]


def _spaced(file: Path, number: int, line: str) -> Row:
    parts = line.rsplit(maxsplit=1)  # from the right: a path may hold spaces, a label may not
    if len(parts) != 2:
        raise AnnotationError(f"{line!r} has no label; a line is `path label` or `path,label`.", file, number)
    return Row({"path": parts[0], "label": parts[1]}, file, number)


def _names_of(rows: list[Row]) -> tuple[str, ...]:
    named = [row for row in rows if not WHOLE_NUMBER.fullmatch(row.text("label"))]
    if not named:
        return tuple(str(index) for index in range(max(row.integer("label") for row in rows) + 1))
    if len(named) < len(rows):
        reason = f"label {named[0].text('label')!r} is a name, others are numbers; pass class_names if both are meant."
        raise named[0].error(reason)
    return tuple(sorted({row.text("label") for row in rows}))


def _label(row: Row, numbers: dict[str, int]) -> int:
    text = row.text("label")
    if text in numbers:
        return numbers[text]
    try:
        return int(text)  # its range is checked with all others
    except ValueError:
        known = ", ".join(list(numbers)[:5])
        raise row.error(f"label {text!r} is not among the {len(numbers)} classes ({known}, …).") from None
