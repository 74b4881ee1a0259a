"""Labelled videos divided into training and validation, class by class, and written as plain lists.

The same videos for the same seed on every machine: a video's place is drawn from the seed and its own path, so a new
one leaves the others' order as it was.
"""

import csv
import hashlib
import os
from dataclasses import replace
from pathlib import Path

from motionformer.data.record import Annotations, Record
from motionformer.errors import AnnotationError


def split_by_class(
    annotations: Annotations, share: float = 0.2, seed: int = 0, base: Path | None = None
) -> tuple[Annotations, Annotations]:
    """Training and validation, with `share` of each class (at least one video, and not all) in validation.

    `base` is the folder that paths are seen from when they are drawn, so that a moved data set is split alike.
    """
    by_label: dict[int, list[Record]] = {}
    for record in annotations:
        if not isinstance(record.label, int):
            raise AnnotationError("every video needs one label to be split by class.", record.source, record.line)
        by_label.setdefault(record.label, []).append(record)
    held: set[int] = set()
    for label, records in sorted(by_label.items()):
        if len(records) < 2:
            name = annotations.label_name(label)
            reason = f"class {name!r} has a single video; two are needed, one to learn from and one to check with."
            raise AnnotationError(reason, records[0].source, records[0].line)
        order = sorted(records, key=lambda record: _draw(record, seed, base))
        count = min(max(1, round(share * len(order))), len(order) - 1)
        held |= {id(record) for record in order[:count]}
    train = tuple(record for record in annotations if id(record) not in held)
    val = tuple(record for record in annotations if id(record) in held)
    how = f"{annotations.how}; {share:.0%} of each class held out by seed {seed}"
    return (
        replace(annotations, records=train, split="train", how=how),
        replace(annotations, records=val, split="val", how=how),
    )


def write_list(annotations: Annotations, file: Path) -> None:
    """As `path,label[,start,end]` with absolute paths and names of classes, for `open_dataset`.

    Where classes are called by numbers they are written as `class 7`: a bare number in a list is an index.
    """
    prefix = "class " if all(name.isdigit() for name in annotations.class_names) else ""
    with file.open("w", newline="", encoding="utf-8") as handle:
        rows = csv.writer(handle, lineterminator="\n")
        pieces = any(record.start is not None or record.end is not None for record in annotations)
        rows.writerow(["path", "label", "start", "end"] if pieces else ["path", "label"])
        for record in annotations:
            row = [str(record.path.resolve()), prefix + annotations.label_name(record.label)]
            times = ["" if time is None else repr(time) for time in (record.start, record.end)]
            rows.writerow(row + times if pieces else row)


def _draw(record: Record, seed: int, base: Path | None) -> bytes:
    path = record.path if base is None else Path(os.path.relpath(record.path, base))
    key = f"{seed}/{path.as_posix()}/{record.start}/{record.end}"
    return hashlib.blake2b(key.encode(), digest_size=8).digest()
