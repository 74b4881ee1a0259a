"""Names of classes in label order, from whatever file holds them."""

from collections.abc import Iterable, Sequence
from pathlib import Path

from motionformer.data.table import read_json, read_lines, read_rows
from motionformer.errors import AnnotationError

ClassSource = Path | str | Sequence[str]


def read_class_names(source: ClassSource) -> tuple[str, ...]:
    """From a sequence, a text file (one name a line), JSON (list, or name → index) or csv (columns id,name)."""
    if not isinstance(source, (str, Path)):
        return _unique(source, None)
    file = Path(source)
    if file.suffix.lower() == ".json":
        return _names_from_json(read_json(file), file)
    if file.suffix.lower() == ".csv":
        rows = read_rows(file, ["id", "name"])
        return names_by_index(((row.text("name"), row.text("id"), row.line) for row in rows), file)
    return _unique([name for _, name in read_lines(file)], file)


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
    return _unique([names[index] for index in indices], file)


def _names_from_json(value: object, file: Path) -> tuple[str, ...]:
    if isinstance(value, dict):
        # `kinetics_classnames.json` has names of several words in quotation marks of their own
        return names_by_index(((name.strip('"'), index, None) for name, index in value.items()), file)
    if isinstance(value, list) and all(isinstance(name, str) for name in value):
        return _unique(value, file)
    raise AnnotationError("a class list in JSON is a list of names or an object from name to index.", file)


def _unique(names: Sequence[str], file: Path | None) -> tuple[str, ...]:
    if not names:
        raise AnnotationError("the list of classes is empty.", file)
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise AnnotationError(f"class {name!r} is listed twice.", file)
        seen.add(name)
    return tuple(names)
