"""Labelled videos split into training and validation, stratified by class and grouped by file.

The same split for the same seed on every machine: the random key of a video depends on the seed and its own path, so a
new video leaves the order of the others as it was. Segments of one file stay together where possible: they look alike.
Videos of one group (`Record.group`: a person, a camera, a day) stay together always.
"""

import hashlib
import os
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal

from motionformer.data import open_dataset
from motionformer.data.fingerprints import fingerprint_records
from motionformer.data.folders import is_frame_folder, split_folders, visible_folders
from motionformer.data.record import Annotations, Missing, Record, classes_of, shown_classes
from motionformer.data.source import recognise
from motionformer.errors import AnnotationError, RecipeError
from motionformer.logging import show_count

GroupBy = Literal["column", "folder", "prefix"]
"""Groups: the column `group` of a list, the folder inside the class folder, the file name up to `_` or `-`."""


def open_splits(
    path: Path, held_out: float, seed: int, missing: Missing = "error", group_by: GroupBy = "column"
) -> tuple[Annotations, Annotations]:
    """Training and validation videos: the folders `train` and `val` where they exist, or a stratified group split."""
    if not path.exists():
        raise RecipeError("no such file or folder.", path)
    kind = recognise(path)
    ready = split_folders(path) if kind == "folders" else {}
    held = next((split for split in ("val", "test") if split in ready), None)
    if path.is_dir() and kind not in ("folders", "files"):
        held = "val"
    train = open_dataset(path, kind, split=None if held is None else "train", missing=missing)
    if not train.class_names or not isinstance(train.class_names, tuple):
        raise RecipeError(
            "needs videos with one label each (class folders, or a csv of path,label) or several (path,labels).", path
        )
    _check_two_classes(train, path)
    names = train.class_names
    train = _with_groups(train, group_by, path)
    if held is None:
        split = _split_multi_label if train.is_multi_label else _split_by_class
        return split(train, held_out, seed, path if path.is_dir() else path.parent)
    val = open_dataset(path, kind, split=held, class_names=names, missing=missing)
    _check_trained_classes(train, val, path)
    val = _with_groups(val, group_by, path)
    shared = sorted({record.group for record in train} & {record.group for record in val} - {""})
    if shared:
        raise RecipeError(
            f"group {shared[0]!r} is in training and in {held} ({len(shared)} such groups): the metrics would be too"
            " good. Move its videos to one side, or leave the groups out.",
            path,
        )
    return train, val


def stratified_folds(records: Sequence[Record], num_folds: int, seed: int) -> list[set[int]]:
    """The ids of the records that each fold holds out: whole groups, about as many of each class in every fold.

    A record whose class would be missing in training without it is held out in none.
    """
    rest = _group_records(records, seed, None)
    folds = []
    for left in range(num_folds, 1, -1):
        held = _stratified_group_split(rest, 1 / left)
        folds.append(held)
        rest = [group for group in rest if id(group[0]) not in held]
    return [*folds, _last_fold(rest, records)]


def _last_fold(rest: list[list[Record]], records: Sequence[Record]) -> set[int]:
    """What is left, without classes that nothing else has."""
    left = {id(record) for group in rest for record in group}
    elsewhere = shown_classes(record for record in records if id(record) not in left)
    return {id(one) for group in rest if shown_classes(group) <= elsewhere for one in group}


def _with_groups(annotations: Annotations, group_by: GroupBy, root: Path) -> Annotations:
    """The same records with the groups that their folders or names tell; those of a list have theirs already."""
    if group_by == "column":
        return annotations
    records = tuple(replace(record, group=_find_group(record, group_by, root)) for record in annotations)
    return replace(annotations, records=records)


def _find_group(record: Record, group_by: GroupBy, root: Path) -> str:
    if group_by == "prefix":
        found = re.match(r"(.+?)[_-]", record.path.stem)
        if found is None:
            raise RecipeError(f"{record.path.name} has no `_` or `-`: its name begins with no group.", root)
        return found[1]
    inside = Path(os.path.relpath(record.path, root)).parts
    if len(inside) < 3 or ".." in inside:
        raise RecipeError(f"{record.path} lies in no folder of a group: CLASS/GROUP/{record.path.name}.", root)
    return inside[-2]


def note_shared_files(train: Annotations, val: Annotations) -> tuple[str, ...]:
    """A note where a file is on both sides: memorised videos would count as correct predictions."""
    shared = sorted({record.path for record in train} & {record.path for record in val})
    if not shared:
        return ()
    which = f"{shared[0].name}" if len(shared) == 1 else f"{len(shared)} files, such as {shared[0].name}"
    return (f"the same file is in training and validation ({which}): the metrics are too good",)


def _split_by_class(
    annotations: Annotations, share: float = 0.2, seed: int = 0, base: Path | None = None
) -> tuple[Annotations, Annotations]:
    """Training and validation, with `share` of each class (at least one video, and not all) in validation.

    Groups are files; where that leaves a class on one side only, as with a single file, its segments are split. `base`
    is the folder that paths are relative to, so that a moved data set is split alike.
    """
    by_label: dict[int, list[Record]] = {}
    for record in annotations:
        if not isinstance(record.label, int):
            raise AnnotationError("every video needs one label to be split by class.", record.source, record.line)
        by_label.setdefault(record.label, []).append(record)
    held = _stratified_group_split(_group_records(annotations, seed, base), share)
    for label, records in sorted(by_label.items()):
        if len(records) < 2:
            name = annotations.label_name(label)
            reason = f"class {name!r} has a single video; two are needed, one for training and one for validation."
            raise AnnotationError(reason, records[0].source, records[0].line)
        if len({id(record) in held for record in records}) == 1:
            if records[0].group:
                name, groups = annotations.label_name(label), sorted({record.group for record in records})
                reason = f"class {name!r} cannot be in training and in validation by groups ({', '.join(groups[:5])})"
                raise AnnotationError(
                    f"{reason}: add videos of other groups, or leave the groups out.", records[0].source
                )
            order = _order_segments(records, seed, base)
            held -= {id(record) for record in records}
            held |= {id(record) for record in order[: _count_held(share, len(order))]}
    train = tuple(record for record in annotations if id(record) not in held)
    val = tuple(record for record in annotations if id(record) in held)
    how = f"{annotations.how}; {share:.0%} of each class held out by seed {seed}"
    return (
        replace(annotations, records=train, split="train", how=how),
        replace(annotations, records=val, split="val", how=how),
    )


def _split_multi_label(
    annotations: Annotations, share: float = 0.2, seed: int = 0, base: Path | None = None
) -> tuple[Annotations, Annotations]:
    """Training and validation, with about `share` of each class in validation, and every class in training.

    Groups are files, or segments where no class can be held out by files. A class that cannot be on both sides is in
    training alone, with a note.
    """
    held = _stratified_group_split(_group_records(annotations, seed, base), share)
    if not shown_classes(record for record in annotations if id(record) in held):
        held = _stratified_group_split([[record] for record in _order_segments(annotations, seed, base)], share)
    train = tuple(record for record in annotations if id(record) not in held)
    val = tuple(record for record in annotations if id(record) in held)
    shown, known = shown_classes(val), shown_classes(annotations)
    if not shown:
        raise AnnotationError("no class can be held out: give every class two videos or more.", train[0].source)
    names = [name for label, name in enumerate(annotations.class_names) if label in known - shown]
    some = ", ".join(names[:5]) + (" …" if len(names) > 5 else "")
    notes = (f"no held-out video shows {some}: too few videos",) if names else ()
    how = f"{annotations.how}; about {share:.0%} of each class held out by seed {seed}"
    made = replace(annotations, how=how, notes=(*annotations.notes, *notes))
    return replace(made, records=train, split="train"), replace(made, records=val, split="val")


def _stratified_group_split(groups: Sequence[Sequence[Record]], share: float) -> set[int]:
    """The ids of the records to hold out: whole groups, about `share` of the records of each class.

    The rarest class is split first, and each class counts the groups that a rarer one has held out; records without a
    class are split like a class. Every class is in training, and held out too where its groups allow it.
    """
    classes: dict[int | None, Counter[int]] = {}  # of each class, the number of records in each group
    for index, group in enumerate(groups):
        for record in group:
            for label in classes_of(record.label) or (None,):
                classes.setdefault(label, Counter())[index] += 1
    held: dict[int, bool] = {}
    for sizes in sorted(classes.values(), key=len):
        wanted = _count_held(share, sizes.total()) if len(sizes) > 1 else 0
        wanted -= sum(size for index, size in sizes.items() if held.get(index))
        for index in [index for index in sizes if index not in held]:
            held[index] = sizes[index] < 2 * wanted  # nearer to the share with it than without
            wanted -= sizes[index] if held[index] else 0
    named = [sizes for label, sizes in classes.items() if label is not None]
    for sizes in named:
        if all(held[index] for index in sizes):
            held[list(sizes)[-1]] = False
    for sizes in named:
        if len(sizes) > 1 and not any(held[index] for index in sizes):
            _hold_one_more(sizes, named, held)
    return {id(record) for index, group in enumerate(groups) if held[index] for record in group}


def _hold_one_more(sizes: Counter[int], classes: list[Counter[int]], held: dict[int, bool]) -> None:
    """Hold out the smallest of these groups that no class needs for training, if there is one."""
    trained = {index for index, is_held in held.items() if not is_held}
    needed = {index for counts in classes for index in counts if len(trained & counts.keys()) == 1}
    free = [index for index in sizes if index not in needed]
    if free:
        held[min(free, key=sizes.__getitem__)] = True


def _count_held(share: float, total: int) -> int:
    return min(max(1, round(share * total)), total - 1)


def _group_records(records: Iterable[Record], seed: int, base: Path | None) -> list[list[Record]]:
    """The records of each file and its copies (files with the same contents), and of each group; in random order."""
    records = list(records)
    leads: dict[str, str] = {}

    def lead(key: str) -> str:
        while leads.setdefault(key, key) != key:
            key = leads[key]
        return key

    keys = {}
    for record, found in zip(records, fingerprint_records(records), strict=True):
        keys[record.path] = f"file {record.path if found is None else found[0]}"
        if record.group:
            leads[lead(keys[record.path])] = lead(f"group {record.group}")
    paths = sorted({record.path for record in records}, key=lambda path: _key(path, None, None, seed, base))
    groups: dict[str, list[Record]] = {lead(keys[path]): [] for path in paths}
    for record in records:
        groups[lead(keys[record.path])].append(record)
    return list(groups.values())


def _order_segments(records: Iterable[Record], seed: int, base: Path | None) -> list[Record]:
    return sorted(records, key=lambda record: _key(record.path, record.start, record.end, seed, base))


def _key(path: Path, start: float | None, end: float | None, seed: int, base: Path | None) -> bytes:
    relative = path if base is None else Path(os.path.relpath(path, base))
    key = f"{seed}/{relative.as_posix()}/{start}/{end}"
    return hashlib.blake2b(key.encode("utf-8", "surrogateescape"), digest_size=8).digest()


def _check_two_classes(annotations: Annotations, path: Path) -> None:
    if annotations.is_multi_label or len(shown_classes(annotations)) > 1:
        return
    name = annotations.label_name(annotations.records[0].label)
    inside = path / name
    folders = [folder for folder in visible_folders(inside) if not is_frame_folder(folder)] if inside.is_dir() else []
    if folders:
        what = f"{name!r}, which holds {show_count(len(folders), 'folder')}"
        raise RecipeError(f"one class only ({what}): did you mean {inside}?", path)
    raise RecipeError(f"one class only ({name!r}). Training needs two classes or more.", path)


def _check_trained_classes(train: Annotations, val: Annotations, path: Path) -> None:
    unknown = sorted(shown_classes(val) - shown_classes(train))
    if unknown:
        name = val.label_name(unknown[0])
        raise RecipeError(f"class {name!r} has validation videos but no training videos: add some.", path)
