"""HMDB51, as distributed: a text file a class and fold, `<class>_test_split<fold>.txt`, whose lines are a file name
and 1 (training), 2 (testing) or 0 (neither)."""

from pathlib import Path

from motionformer.data.listing import first_existing
from motionformer.data.record import Annotations, Record
from motionformer.data.table import read_lines
from motionformer.errors import AnnotationError

MEMBERSHIP = {"train": "1", "test": "2"}


def read_hmdb51(folder: Path, root: Path | None = None, split: str = "train", fold: int = 1) -> Annotations:
    """The records of a split, from a folder of split files; classes in alphabetical order."""
    if split not in MEMBERSHIP:
        raise AnnotationError(f"HMDB51 has the splits train and test, not {split!r}.", folder)
    ending = f"_test_split{fold}.txt"
    files = sorted(folder.glob(f"*{ending}"))
    if not files:
        raise AnnotationError(f"no file named *{ending} in this folder.", folder)
    names = tuple(file.name.removesuffix(ending) for file in files)
    root = root or first_existing([folder.parent / "hmdb51_org", folder.parent / "videos", folder.parent])
    records = tuple(
        Record(root / name / video, label, source=file, line=number)
        for label, (name, file) in enumerate(zip(names, files, strict=True))
        for number, video, membership in _lines(file)
        if membership == MEMBERSHIP[split]
    )
    how = f"HMDB51 split files, fold {fold}, {len(names)} classes"
    return Annotations(records, names, "hmdb51", split, how=how)


def _lines(file: Path) -> list[tuple[int, str, str]]:
    found = []
    for number, line in read_lines(file):
        video, _, membership = line.rpartition(" ")
        if membership not in ("0", "1", "2") or not video:
            raise AnnotationError(f"{line!r} is not `file.avi 0|1|2`.", file, number)
        found.append((number, video.strip(), membership))
    return found
