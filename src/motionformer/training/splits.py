"""Labelled videos divided into training and validation, class by class, and written as plain lists. Videos of any
number of classes are divided too.

The same videos for the same seed on every machine: a video's place is drawn from the seed and its own path, so a new
one leaves the others' order as it was. Pieces of one file stay together where that can be: they look alike.
"""

import csv
from dataclasses import replace
from pathlib import Path

from motionformer.data.lists import writable_name
from motionformer.data.record import SEPARATOR, Annotations, Record, classes_of, shown_classes
from motionformer.errors import AnnotationError
from motionformer.training.dealing import by_file, by_piece, count_held, deal


def split_by_class(
    annotations: Annotations, share: float = 0.2, seed: int = 0, base: Path | None = None
) -> tuple[Annotations, Annotations]:
    """Training and validation, with `share` of each class (at least one video, and not all) in validation.

    Whole files are drawn; the pieces of a class that this leaves on one side, as those of a single file, one by one.
    `base` is the folder that paths are seen from when they are drawn, so that a moved data set is split alike.
    """
    by_label: dict[int, list[Record]] = {}
    for record in annotations:
        if not isinstance(record.label, int):
            raise AnnotationError("every video needs one label to be split by class.", record.source, record.line)
        by_label.setdefault(record.label, []).append(record)
    held = deal(by_file(annotations, seed, base), share)
    for label, records in sorted(by_label.items()):
        if len(records) < 2:
            name = annotations.label_name(label)
            reason = f"class {name!r} has a single video; two are needed, one to learn from and one to check with."
            raise AnnotationError(reason, records[0].source, records[0].line)
        if len({id(record) in held for record in records}) == 1:
            order = by_piece(records, seed, base)
            held -= {id(record) for record in records}
            held |= {id(record) for record in order[: count_held(share, len(order))]}
    train = tuple(record for record in annotations if id(record) not in held)
    val = tuple(record for record in annotations if id(record) in held)
    how = f"{annotations.how}; {share:.0%} of each class held out by seed {seed}"
    return (
        replace(annotations, records=train, split="train", how=how),
        replace(annotations, records=val, split="val", how=how),
    )


def split_multi_label(
    annotations: Annotations, share: float = 0.2, seed: int = 0, base: Path | None = None
) -> tuple[Annotations, Annotations]:
    """Training and validation, with about `share` of each class in validation, and every class in training.

    Whole files are dealt, or pieces where not one class can be held out by files. A class that cannot be on both sides
    is in training alone, and a note says so.
    """
    held = deal(by_file(annotations, seed, base), share)
    if not shown_classes(record for record in annotations if id(record) in held):
        held = deal([[record] for record in by_piece(annotations, seed, base)], share)
    train = tuple(record for record in annotations if id(record) not in held)
    val = tuple(record for record in annotations if id(record) in held)
    shown, known = shown_classes(val), shown_classes(annotations)
    if not shown:
        raise AnnotationError("no class can be held out: give every class two videos or more.", train[0].source)
    names = [name for label, name in enumerate(annotations.class_names) if label in known - shown]
    some = ", ".join(names[:5]) + (" …" if len(names) > 5 else "")
    notes = (f"no held-out video shows {some}: too few videos to check with",) if names else ()
    how = f"{annotations.how}; about {share:.0%} of each class held out by seed {seed}"
    made = replace(annotations, how=how, notes=(*annotations.notes, *notes))
    return replace(made, records=train, split="train"), replace(made, records=val, split="val")


def note_shared_files(train: Annotations, val: Annotations) -> tuple[str, ...]:
    """A note where a file, or pieces of it, are on both sides: what was learned by heart then counts as understood."""
    shared = sorted({record.path for record in train} & {record.path for record in val})
    if not shared:
        return ()
    which = f"{shared[0].name}" if len(shared) == 1 else f"{len(shared)} files, such as {shared[0].name}"
    return (f"the same file is on both sides ({which}): the figure is too good",)


def write_list(annotations: Annotations, file: Path) -> None:
    """As `path,label[,start,end]` with absolute paths and names of classes, for `open_dataset`; a column `labels` where
    videos have any number of classes.

    A class that is called by a number is written as `class 7`: a bare number in a list is an index.
    """
    assert isinstance(annotations.class_names, tuple), "several tasks have lists of their own"
    for record in annotations:
        _refuse_odd_name(record)
    with file.open("w", newline="", encoding="utf-8") as handle:
        rows = csv.writer(handle, lineterminator="\n")
        pieces = any(record.start is not None or record.end is not None for record in annotations)
        column = "labels" if annotations.is_multi_label else "label"
        rows.writerow(["path", column, "start", "end"] if pieces else ["path", column])
        for record in annotations:
            names = [writable_name(annotations.class_names[label]) for label in classes_of(record.label)]
            row = [str(record.path.resolve()), SEPARATOR.join(names)]
            times = ["" if time is None else repr(time) for time in (record.start, record.end)]
            rows.writerow(row + times if pieces else row)


def _refuse_odd_name(record: Record) -> None:
    try:
        str(record.path.resolve()).encode()
    except UnicodeEncodeError as error:
        raise AnnotationError("the name is not UTF-8, and a list of videos is: rename it.", record.path) from error
