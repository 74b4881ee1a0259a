"""Retrieval: do two papers of the ACL Anthology cite each other? Both are read byte by byte, 4,000 bytes each.

Files as distributed: `new_aan_pairs.{train,eval,test}.tsv`, each line label, two paper numbers, two texts.
"""

import re
from pathlib import Path

from motionformer.errors import AnnotationError
from motionformer.experiments.lra.examples import Example, Splits, as_bytes

FILES = ("new_aan_pairs.train.tsv", "new_aan_pairs.eval.tsv", "new_aan_pairs.test.tsv")
LABEL = re.compile(r"[01](\.0)?")


def read_aan(folder: Path, length: int = 4000) -> Splits:
    """The three files of a folder; `eval` is the development split."""
    return Splits(*(read_pairs(folder / name, length) for name in FILES), folder=folder)


def read_pairs(file: Path, length: int = 4000) -> list[Example]:
    if not file.is_file():
        raise AnnotationError(f"there is no such file; expected {', '.join(FILES)}", file)
    examples = []
    with file.open("rb") as lines:
        for number, line in enumerate(lines, 1):
            fields = line.rstrip(b"\r\n").split(b"\t")
            if len(fields) != 5:
                raise AnnotationError(
                    f"has {len(fields)} fields; expected 5: label, number, number, text, text", file, number
                )
            label = _unquote(fields[0]).decode("utf-8", "replace")
            if not LABEL.fullmatch(label):
                raise AnnotationError(f"the label is 0 or 1, not {label!r}", file, number)
            texts = [_unquote(field) for field in fields[3:]]
            if not all(texts):
                raise AnnotationError("one of the two texts is empty", file, number)
            first, second = (as_bytes(text, length) for text in texts)
            examples.append(Example((first, second), int(label[0])))
    if not examples:
        raise AnnotationError("holds no pair", file)
    return examples


def _unquote(field: bytes) -> bytes:
    return field[1:-1] if len(field) > 1 and field[:1] == field[-1:] == b'"' else field
