"""Text, rows, numbers and class names out of annotation files, each with its line, each mistake with its place."""

import csv
import json
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from motionformer.errors import AnnotationError


def read_text(file: Path) -> str:
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
    """Lines that say something, with their numbers."""
    lines = enumerate(read_text(file).splitlines(), start=1)
    return [(number, line.strip()) for number, line in lines if line.strip()]


def read_json(file: Path) -> Any:
    try:
        return json.loads(read_text(file))
    except json.JSONDecodeError as error:
        raise AnnotationError(f"not JSON: {error.msg}.", file, error.lineno) from error


@dataclass(frozen=True)
class Row:
    """One line of a csv file; asking for a cell that is missing or no number is an error with its place."""

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


def read_cells(file: Path, delimiter: str = ",") -> list[tuple[int, list[str]]]:
    """Rows of stripped cells with the line on which each ends; empty rows are left out."""
    reader = csv.reader(read_text(file).splitlines(keepends=True), delimiter=delimiter, skipinitialspace=True)
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
    (header_line, header), *rows = read_cells(file)
    header = [name.lower() for name in header]
    missing = [name for name in required if name not in header]
    if missing:
        reason = f"no column {', '.join(map(repr, missing))}; the first line has {', '.join(header)}."
        raise AnnotationError(reason, file, header_line)
    for line, cells in rows:
        yield named_row(header, cells, file, line)


def named_row(header: Sequence[str], cells: Sequence[str], file: Path, line: int) -> Row:
    if len(cells) > len(header):
        reason = f"{len(cells)} values for {len(header)} columns; a value with a comma needs quotes."
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
