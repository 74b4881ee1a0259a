"""Something-Something V2, as distributed: a JSON list of `{id, template}`, a JSON object of labels, and `<id>.webm`
(or a folder of frames named `<id>`). Videos run at 12 frames a second: clips at a fixed stride are forbidden."""

from pathlib import Path

from motionformer.data.class_names import ClassSource, read_class_names
from motionformer.data.listing import first_existing
from motionformer.data.record import Annotations, Record
from motionformer.data.table import read_json
from motionformer.errors import AnnotationError

LABEL_FILES = ("something-something-v2-labels.json", "labels.json")
VIDEO_FOLDERS = ("20bn-something-something-v2", "videos", "frames")
LIST_NAMES = {"train": ("train",), "val": ("validation", "val"), "test": ("test",)}


def read_something(file: Path, root: Path | None = None, labels: ClassSource | None = None) -> Annotations:
    """One record an entry; entries of a test list have no template, so their label is None."""
    entries = read_json(file)
    if not isinstance(entries, list):
        raise AnnotationError("not a list of videos; the labels file was given where a list belongs?", file)
    for number, entry in enumerate(entries, start=1):
        _refuse_other(entry, number, file)
    names = read_class_names(labels or _find_labels(file))
    numbers = {name: index for index, name in enumerate(names)}
    root = root or _find_root(file.parent)
    records = tuple(_record(entry, number, file, root, numbers) for number, entry in enumerate(entries, start=1))
    split = next((key for key, parts in LIST_NAMES.items() if any(part in file.stem for part in parts)), None)
    how = f"a Something-Something V2 list with {len(names)} classes; sampling by segments (12 frames a second)"
    return Annotations(records, names, "something-something-v2", split, "segments", how)


def list_of(folder: Path, split: str) -> Path:
    """The list of a split in a folder, or in its `labels` folder, under the names of either release."""
    places = [folder, folder / "labels"]
    names = [f"{prefix}{name}.json" for name in LIST_NAMES[split] for prefix in ("something-something-v2-", "")]
    return first_existing([place / name for place in places for name in names])


def _find_root(folder: Path) -> Path:
    return first_existing([base / name for base in (folder, folder.parent) for name in VIDEO_FOLDERS] + [folder])


def _refuse_other(entry: object, number: int, file: Path) -> None:
    if not isinstance(entry, dict) or "id" not in entry:
        reason = f"entry {number} has no 'id': {str(entry)[:80]}. A JSON list is one of Something-Something V2;"
        raise AnnotationError(f"{reason} write others as csv (path,label).", file)


def _find_labels(file: Path) -> Path:
    found = first_existing([file.parent / name for name in LABEL_FILES])
    if not found.exists():
        reason = f"there is no {' or '.join(LABEL_FILES)} beside this Something-Something V2 list: give the classes."
        raise AnnotationError(reason, file)
    return found


def _record(entry: dict[str, object], number: int, file: Path, root: Path, numbers: dict[str, int]) -> Record:
    key = str(entry["id"])
    path = first_existing([root / f"{key}.webm", root / f"{key}.mp4", root / key])
    template = entry.get("template")
    if template is None:
        return Record(path, id=key, source=file)
    name = str(template).replace("[", "").replace("]", "")
    if name not in numbers:
        reason = f"entry {number} (video {key}): template {template!r} is not among the {len(numbers)} labels."
        raise AnnotationError(reason, file)
    return Record(path, numbers[name], id=key, source=file)
