"""Lists of videos, and the text, rows, numbers and class names of annotation files, each mistake with its line.

A plain list has lines of `path label`: our csv (`path,label[,start,end]`, with or without column names in its first
line), and the space- or comma-separated lists that Kinetics users exchange. Labels are indices or names. A column
`labels` holds any number of classes with `|` between them; an empty cell means none of them. The column's name decides,
not the cells: a `|` may be part of a class's name, and a list may happen to have one class per video.
"""

import csv
import json
import math
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from motionformer.data.record import SEPARATOR, Annotations, Label, Record, classes_of
from motionformer.errors import AnnotationError
from motionformer.logging import show_count
from motionformer.runs import write_csv


def _read_text(file: Path) -> str:
    """The file as text, without a byte order mark."""
    try:
        text = file.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        reason = f"not UTF-8 text (byte {error.start}: {error.reason}); save the list as UTF-8."
        raise AnnotationError(reason, file) from error
    except OSError as error:
        raise AnnotationError(f"cannot be read: {error.strerror}.", file) from error
    if not text.strip():
        raise AnnotationError("the file is empty.", file)
    return text


def read_lines(file: Path) -> list[tuple[int, str]]:
    """Lines that are not empty, with their numbers."""
    lines = enumerate(_read_text(file).splitlines(), start=1)
    return [(number, line.strip()) for number, line in lines if line.strip()]


def read_json(file: Path) -> Any:
    try:
        return json.loads(_read_text(file))
    except json.JSONDecodeError as error:
        raise AnnotationError(f"not JSON: {error.msg}.", file, error.lineno) from error


@dataclass(frozen=True)
class Row:
    """One line of a csv file; asking for a cell that is missing or no number is an error with its line."""

    cells: dict[str, str]
    file: Path
    line: int

    def text(self, column: str) -> str:
        value = self.cells.get(column, "")
        if not value:
            raise self.error(f"no value for {column!r}; the columns are {', '.join(self.cells)}.")
        return value

    def integer(self, column: str) -> int:
        value = self.text(column)
        try:
            return int(value)
        except ValueError:
            raise self.error(f"{column} is {value!r}, not a whole number.") from None

    def number(self, column: str) -> float:
        value = self.text(column)
        try:
            number = float(value)
        except ValueError:
            number = math.nan
        if not math.isfinite(number):
            raise self.error(f"{column} is {value!r}, not a number.")
        return number

    def optional_number(self, column: str) -> float | None:
        return self.number(column) if self.cells.get(column) else None

    def error(self, reason: str) -> AnnotationError:
        return AnnotationError(reason, self.file, self.line)


def _read_cells(file: Path, delimiter: str = ",") -> list[tuple[int, list[str]]]:
    """Rows of stripped cells with the line on which each ends; empty rows are left out."""
    reader = csv.reader(_read_text(file).splitlines(keepends=True), delimiter=delimiter, skipinitialspace=True)
    rows = []
    try:
        for cells in reader:
            stripped = [cell.strip() for cell in cells]
            if any(stripped):
                rows.append((reader.line_num, stripped))
    except csv.Error as error:
        raise AnnotationError(f"not a csv file: {error}.", file, reader.line_num) from error
    return rows


def read_rows(file: Path, required: Sequence[str]) -> Iterator[Row]:
    """Rows of a csv file whose first line names the columns."""
    (header_line, header), *rows = _read_cells(file)
    header = [name.lower() for name in header]
    missing = [name for name in required if name not in header]
    if missing:
        reason = f"no column {', '.join(map(repr, missing))}; the first line has {', '.join(header)}."
        raise AnnotationError(reason, file, header_line)
    for line, cells in rows:
        yield _named_row(header, cells, file, line)


def _named_row(header: Sequence[str], cells: Sequence[str], file: Path, line: int) -> Row:
    if len(cells) > len(header):
        reason = f"{show_count(len(cells), 'value')} for {len(header)} columns; a value with a comma needs quotes."
        raise AnnotationError(reason, file, line)
    return Row(dict(zip(header, [*cells, *[""] * (len(header) - len(cells))], strict=True)), file, line)


ClassSource = Path | str | Sequence[str]


def read_class_names(source: ClassSource) -> tuple[str, ...]:
    """From a sequence, a text file (one name a line), JSON (list, or name → index) or csv (columns id,name)."""
    if not isinstance(source, (str, Path)):
        return _unique_names(source, None)
    file = Path(source)
    if file.suffix.lower() == ".json":
        return _names_from_json(read_json(file), file)
    if file.suffix.lower() == ".csv":
        rows = read_rows(file, ["id", "name"])
        return names_by_index(((row.text("name"), row.text("id"), row.line) for row in rows), file)
    return _unique_names([name for _, name in read_lines(file)], file)


def names_by_index(pairs: Iterable[tuple[str, object, int | None]], file: Path, first: int = 0) -> tuple[str, ...]:
    """(name, index, line) in any order; the indices must run from `first` without a gap."""
    names: dict[int, str] = {}
    for name, text, line in pairs:
        try:
            index = int(str(text))
        except ValueError:
            raise AnnotationError(f"the index of class {name!r} is {text!r}, not a whole number.", file, line) from None
        if index in names:
            raise AnnotationError(f"index {index} belongs to {names[index]!r} and to {name!r}.", file, line)
        names[index] = name
    indices = range(first, first + len(names))
    gap = next((index for index in indices if index not in names), None)
    if gap is not None:
        raise AnnotationError(f"no class has the index {gap}; indices run from {first} without a gap.", file)
    return _unique_names([names[index] for index in indices], file)


def _names_from_json(value: object, file: Path) -> tuple[str, ...]:
    if isinstance(value, dict):
        # `kinetics_classnames.json` has names of several words in quotation marks of their own
        return names_by_index(((name.strip('"'), index, None) for name, index in value.items()), file)
    if isinstance(value, list) and all(isinstance(name, str) for name in value):
        return _unique_names(value, file)
    raise AnnotationError("a class list in JSON is a list of names or an object from name to index.", file)


def _unique_names(names: Sequence[str], file: Path | None) -> tuple[str, ...]:
    if not names:
        raise AnnotationError("the list of classes is empty.", file)
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise AnnotationError(f"class {name!r} is listed twice.", file)
        seen.add(name)
    return tuple(names)


_COLUMNS = ("path", "label", "start", "end")
_SEVERAL = "labels"
WHOLE_NUMBER = re.compile(r"[+-]?\d+")
_CALLED = "class "
_SYNONYMS = {"video": "path", "file": "path", "filename": "path", "class": "label", "label_id": "label"}


def _writable_name(name: str) -> str:
    """A class name as a list can hold it: a bare number would be an index, so `7` is written as `class 7`."""
    return _CALLED + name if WHOLE_NUMBER.fullmatch(name) else name


def original_name(written: str) -> str:
    """What `_writable_name` was given: `class 7` is class `7`."""
    name = written.removeprefix(_CALLED)
    return name if WHOLE_NUMBER.fullmatch(name) else written


def numbers_of(names: Sequence[str]) -> dict[str, int]:
    """The number of a class by its name; `7` and `class 7` are the same name unless both are classes."""
    spellings: tuple[Callable[[str], str], ...] = (original_name, _writable_name, str)  # the last one wins
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
    is_multi_label = _SEVERAL in rows[0].cells
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
            group=row.cells.get("group", ""),
        )
        for row in rows
    )
    how = _how_many(records) if is_multi_label else f"a list of {len(records)} paths and labels"
    return Annotations(records, names, name or file.stem, how=how, notes=() if is_multi_label else _doubts(rows))


def write_list(annotations: Annotations, file: Path) -> None:
    """Write `path,label[,start,end][,group]` with absolute paths and class names, for `open_dataset`; a column
    `labels` where videos have any number of classes. A class named by a number is written as `class 7`: a bare number
    is an index."""
    assert isinstance(annotations.class_names, tuple), "lists of several tasks are not written"
    for record in annotations:
        _check_name(record)
    has_times = any(record.start is not None or record.end is not None for record in annotations)
    has_groups = any(record.group for record in annotations)
    column = "labels" if annotations.is_multi_label else "label"
    rows = [["path", column, *(["start", "end"] if has_times else []), *(["group"] if has_groups else [])]]
    for record in annotations:
        names = [_writable_name(annotations.class_names[label]) for label in classes_of(record.label)]
        row = [str(record.path.resolve()), SEPARATOR.join(names)]
        times = ["" if time is None else repr(time) for time in (record.start, record.end)]
        rows.append([*row, *(times if has_times else []), *([record.group] if has_groups else [])])
    write_csv(file, rows)


def _check_name(record: Record) -> None:
    try:
        str(record.path.resolve()).encode()
    except UnicodeEncodeError as error:
        raise AnnotationError(
            "the name is not UTF-8, which a list of videos must be: rename the file.", record.path
        ) from error


def _rows(file: Path) -> list[Row]:
    lines = read_lines(file)
    if "," not in lines[0][1]:
        return [_spaced(file, number, line) for number, line in lines]
    cells = _read_cells(file)
    header = [_SYNONYMS.get(cell.lower(), cell.lower()) for cell in cells[0][1]]
    if "path" not in header and "label" not in header and _SEVERAL not in header:
        header = list(_COLUMNS[: max(2, len(cells[0][1]))])
    else:
        line, _ = cells.pop(0)
        if {"label", _SEVERAL} <= set(header):
            raise AnnotationError("has a column 'label' and a column 'labels'; which of them is meant?", file, line)
        wanted = ("path", _SEVERAL if _SEVERAL in header else "label")
        missing = [column for column in wanted if column not in header]
        if missing:
            reason = f"no column {missing[0]!r}; the first line has {', '.join(header)}."
            raise AnnotationError(reason, file, line)
    if not cells:
        raise AnnotationError("the list has column names and no line below them.", file)
    if _SEVERAL in header:
        _check_complete(cells, header.index(_SEVERAL), file)
    return [_named_row(header, row, file, line) for line, row in cells]


def _check_complete(cells: list[tuple[int, list[str]]], column: int, file: Path) -> None:
    """An empty cell means that the video shows no class; a line that stops before it may be torn."""
    for line, row in cells:
        if len(row) <= column:
            reason = f"no value for {_SEVERAL!r}; a video of no class has a comma and nothing behind it."
            raise AnnotationError(reason, file, line)


def _spaced(file: Path, number: int, line: str) -> Row:
    parts = line.rsplit(maxsplit=1)  # from the right: a path may hold spaces, a label may not
    if len(parts) != 2:
        raise AnnotationError(f"{line!r} has no label; a line is `path label` or `path,label`.", file, number)
    return Row({"path": parts[0], "label": parts[1]}, file, number)


def _parts(row: Row) -> list[tuple[Row, str]]:
    """The classes of a line as written."""
    if _SEVERAL not in row.cells:
        return [(row, row.text("label"))]
    cell = row.cells[_SEVERAL]
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
    return tuple(found) if _SEVERAL in row.cells else found[0]


def _number(row: Row, text: str, numbers: dict[str, int]) -> int:
    found = numbers.get(text, numbers.get(_plain(text)))
    if found is None and WHOLE_NUMBER.fullmatch(text) and all(str(index) in numbers for index in numbers.values()):
        return int(text)  # an index; its range is checked with all others
    if found is None:
        known = list(dict.fromkeys(original_name(name) for name in numbers))
        some = ", ".join(known[:5]) + (", …" if len(known) > 5 else "")
        count = len(set(numbers.values()))
        raise row.error(f"label {text!r} is not among the {show_count(count, 'class')} ({some}).")
    return found


def _how_many(records: Iterable[Record]) -> str:
    counts = [len(record.label) for record in records if isinstance(record.label, tuple)]
    none = f", {counts.count(0)} of them of no class" if 0 in counts else ""
    most = show_count(max(counts), "class")
    return f"a list of {show_count(len(counts), 'path')}{none}, up to {most} each (column {_SEVERAL!r}, | between them)"


def _doubts(rows: list[Row]) -> tuple[str, ...]:
    """What a user may have meant otherwise."""
    found = [row for row in rows if SEPARATOR in row.text("label")]
    if not found:
        return ()
    example = found[0].text("label")
    what = f"{len(found)} labels hold a {SEPARATOR}, such as {example!r}, and are taken for one name each"
    return (f"{what}; if several classes are meant, call the column {_SEVERAL!r}",)
