"""Lists of `path label`: our plain csv (`path,label[,start,end]`, with or without a first line of column names) and
the space- or comma-separated lists that Kinetics users pass around. Labels are indices or names.

A column `labels` holds any number of classes with `|` between them; an empty cell means none of them. The column's name
decides, not the cells: a `|` may be part of a class's name, and a list may happen to have one class a video.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from motionformer.data.record import SEPARATOR, Annotations, Label, Record
from motionformer.data.table import ClassSource, Row, named_row, read_cells, read_class_names, read_lines
from motionformer.errors import AnnotationError

COLUMNS = ("path", "label", "start", "end")
SEVERAL = "labels"
WHOLE_NUMBER = re.compile(r"[+-]?\d+")
CALLED = "class "
SYNONYMS = {"video": "path", "file": "path", "filename": "path", "class": "label", "label_id": "label"}


def writable_name(name: str) -> str:
    """A class name as a list can hold it: a bare number would be an index, so `7` is written as `class 7`."""
    return CALLED + name if WHOLE_NUMBER.fullmatch(name) else name


def original_name(written: str) -> str:
    """What `writable_name` was given: `class 7` is class `7`."""
    name = written.removeprefix(CALLED)
    return name if WHOLE_NUMBER.fullmatch(name) else written


def numbers_of(names: Sequence[str]) -> dict[str, int]:
    """The number of a class by its name; `7` and `class 7` are the same name unless both are classes."""
    spellings: tuple[Callable[[str], str], ...] = (original_name, writable_name, str)  # the last one wins
    return {spell(name): index for spell in spellings for index, name in enumerate(names)}


def read_plain_list(
    file: Path, root: Path | None = None, class_names: ClassSource | None = None, name: str | None = None
) -> Annotations:
    """One record a line; its label is a tuple where the column is called `labels`.

    Paths are relative to `root`, by default the folder of the list.

    Without `class_names`, named labels are numbered in alphabetical order and numbered ones are named by their number:
    give the training list's names to every other split.
    """
    root = file.parent if root is None else root
    rows = _rows(file)
    names = None if class_names is None else read_class_names(class_names)
    is_multi_label = SEVERAL in rows[0].cells
    labels = [label for row in rows for label in _parts(row)]
    names = names or _names_of(labels, file)
    numbers = _numbers(names, [text for _, text in labels])
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
    how = _how_many(records) if is_multi_label else f"a list of {len(records)} paths and labels"
    return Annotations(records, names, name or file.stem, how=how, notes=() if is_multi_label else _doubts(rows))


def _rows(file: Path) -> list[Row]:
    lines = read_lines(file)
    if "," not in lines[0][1]:
        return [_spaced(file, number, line) for number, line in lines]
    cells = read_cells(file)
    header = [SYNONYMS.get(cell.lower(), cell.lower()) for cell in cells[0][1]]
    if "path" not in header and "label" not in header and SEVERAL not in header:
        header = list(COLUMNS[: max(2, len(cells[0][1]))])
    else:
        line, _ = cells.pop(0)
        if {"label", SEVERAL} <= set(header):
            raise AnnotationError("has a column 'label' and a column 'labels'; which of them is meant?", file, line)
        wanted = ("path", SEVERAL if SEVERAL in header else "label")
        missing = [column for column in wanted if column not in header]
        if missing:
            reason = f"no column {missing[0]!r}; the first line has {', '.join(header)}."
            raise AnnotationError(reason, file, line)
    if not cells:
        raise AnnotationError("the list has column names and no line below them.", file)
    if SEVERAL in header:
        _check_complete(cells, header.index(SEVERAL), file)
    return [named_row(header, row, file, line) for line, row in cells]


def _check_complete(cells: list[tuple[int, list[str]]], place: int, file: Path) -> None:
    """An empty cell means that the video shows no class; a line that stops before it may be torn."""
    for line, row in cells:
        if len(row) <= place:
            reason = f"no value for {SEVERAL!r}; a video of no class has a comma and nothing behind it."
            raise AnnotationError(reason, file, line)


def _spaced(file: Path, number: int, line: str) -> Row:
    parts = line.rsplit(maxsplit=1)  # from the right: a path may hold spaces, a label may not
    if len(parts) != 2:
        raise AnnotationError(f"{line!r} has no label; a line is `path label` or `path,label`.", file, number)
    return Row({"path": parts[0], "label": parts[1]}, file, number)


def _parts(row: Row) -> list[tuple[Row, str]]:
    """The classes of a line as written."""
    if SEVERAL not in row.cells:
        return [(row, row.text("label"))]
    cell = row.cells[SEVERAL]
    parts = [part.strip() for part in cell.split(SEPARATOR)] if cell else []
    if not all(parts):
        raise row.error(f"labels are {cell!r}, with nothing on one side of a {SEPARATOR}.")
    return [(row, part) for part in parts]


def _names_of(labels: list[tuple[Row, str]], file: Path) -> tuple[str, ...]:
    if not labels:
        raise AnnotationError("no line names a class; pass class_names if that is meant.", file)
    named = [(row, text) for row, text in labels if not WHOLE_NUMBER.fullmatch(text)]
    if not named:
        return tuple(str(index) for index in range(max(int(text) for _, text in labels) + 1))
    if len(named) < len(labels):
        row, text = named[0]
        raise row.error(f"label {text!r} is a name, others are numbers; pass class_names if both are meant.")
    return tuple(sorted({text for _, text in labels}))


def _numbers(names: tuple[str, ...], labels: list[str]) -> dict[str, int]:
    """What a list may write for each class. Numbers are names where all classes are called by one, or where all of the
    list's numbers are names of classes; else they are indices, every one of them."""
    known = numbers_of(names)
    called_by_number = all(WHOLE_NUMBER.fullmatch(original_name(name)) for name in names)
    if called_by_number or all(_plain(text) in known for text in labels if WHOLE_NUMBER.fullmatch(text)):
        return known
    worded = {name: index for index, name in enumerate(names) if not WHOLE_NUMBER.fullmatch(name)}
    return worded | {str(index): index for index in range(len(names))}


def _plain(number: str) -> str:
    """`007` and `+7` are 7."""
    return str(int(number)) if WHOLE_NUMBER.fullmatch(number) else number


def _label(row: Row, numbers: dict[str, int]) -> Label:
    found = sorted(_number(row, text, numbers) for row, text in _parts(row))
    return tuple(found) if SEVERAL in row.cells else found[0]


def _number(row: Row, text: str, numbers: dict[str, int]) -> int:
    found = numbers.get(text, numbers.get(_plain(text)))
    if found is None and WHOLE_NUMBER.fullmatch(text) and all(str(index) in numbers for index in numbers.values()):
        return int(text)  # an index; its range is checked with all others
    if found is None:
        known = list(dict.fromkeys(original_name(name) for name in numbers))
        some = ", ".join(known[:5]) + (", …" if len(known) > 5 else "")
        count = len(set(numbers.values()))
        raise row.error(f"label {text!r} is not among the {count} classes ({some}).")
    return found


def _how_many(records: Iterable[Record]) -> str:
    counts = [len(record.label) for record in records if isinstance(record.label, tuple)]
    none = f", {counts.count(0)} of them of no class" if 0 in counts else ""
    return f"a list of {len(counts)} paths{none}, up to {max(counts)} classes each (column {SEVERAL!r}, | between them)"


def _doubts(rows: list[Row]) -> tuple[str, ...]:
    """What a user may have meant otherwise."""
    found = [row for row in rows if SEPARATOR in row.text("label")]
    if not found:
        return ()
    example = found[0].text("label")
    what = f"{len(found)} labels hold a {SEPARATOR}, such as {example!r}, and are taken for one name each"
    return (f"{what}; if several classes are meant, call the column {SEVERAL!r}",)
