"""UCF101, as distributed: `classInd.txt` (numbered from 1) and three pairs of `trainlist01.txt` / `testlist01.txt`."""

from pathlib import Path

from motionformer.data.class_names import names_by_index
from motionformer.data.listing import first_existing
from motionformer.data.record import Annotations, Record
from motionformer.data.table import read_lines
from motionformer.errors import AnnotationError

CLASS_FILE = "classInd.txt"


def read_ucf101(file: Path, root: Path | None = None) -> Annotations:
    """One record a line. The class is the folder's name; a number beside it must agree."""
    names = _class_names(file.parent / CLASS_FILE)
    numbers = {name: index for index, name in enumerate(names)}
    root = root or first_existing([base / "UCF-101" for base in (file.parent, file.parent.parent)])
    records = tuple(_record(line, number, file, root, numbers) for number, line in read_lines(file))
    split = "train" if file.stem.startswith("train") else "test"
    return Annotations(records, names, "ucf101", split, how=f"the UCF101 list {file.name} with {CLASS_FILE}")


def list_of(folder: Path, split: str, fold: int) -> Path:
    if split not in ("train", "test"):
        raise AnnotationError(f"UCF101 has the splits train and test, not {split!r}.", folder)
    return folder / f"{split}list{fold:02d}.txt"


def _record(line: str, number: int, file: Path, root: Path, numbers: dict[str, int]) -> Record:
    *path, text = line.rsplit(maxsplit=1)
    video, text = (path[0], text) if path and text.isdecimal() else (line, "")
    name = video.split("/")[0]
    if name not in numbers:
        raise AnnotationError(f"class {name!r} is not in {CLASS_FILE}.", file, number)
    if text and int(text) != numbers[name] + 1:
        raise AnnotationError(f"{name} has the number {numbers[name] + 1} in {CLASS_FILE}, here {text}.", file, number)
    return Record(root / video, numbers[name], source=file, line=number)


def _class_names(file: Path) -> tuple[str, ...]:
    pairs = []
    for number, line in read_lines(file):
        index, _, name = line.partition(" ")
        if not name.strip():
            raise AnnotationError(f"{line!r} is not `number name`.", file, number)
        pairs.append((name.strip(), index, number))
    return names_by_index(pairs, file, first=1)
