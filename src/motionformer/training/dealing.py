"""Which of some labelled videos are held out: drawn by seed and path, whole files together, each class by its share."""

import hashlib
import os
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

from motionformer.data.fingerprints import fingerprint_records
from motionformer.data.record import Record, classes_of


def deal(units: Sequence[Sequence[Record]], share: float) -> set[int]:
    """The ids of the records to hold out: whole units, about `share` of the records of each class.

    The rarest class is dealt first, and each takes into account where its units went with a rarer one; records of no
    class are dealt like a class. Every class is in training, and held out too where its units allow it.
    """
    groups: dict[int | None, Counter[int]] = {}  # of each class, how many records each unit has
    for place, unit in enumerate(units):
        for record in unit:
            for label in classes_of(record.label) or (None,):
                groups.setdefault(label, Counter())[place] += 1
    held: dict[int, bool] = {}
    for sizes in sorted(groups.values(), key=len):  # the order of equals was drawn
        wanted = count_held(share, sizes.total()) if len(sizes) > 1 else 0
        wanted -= sum(size for place, size in sizes.items() if held.get(place))
        for place in [place for place in sizes if place not in held]:
            held[place] = sizes[place] < 2 * wanted  # nearer to the share with it than without
            wanted -= sizes[place] if held[place] else 0
    named = [sizes for label, sizes in groups.items() if label is not None]
    for sizes in named:
        if all(held[place] for place in sizes):
            held[list(sizes)[-1]] = False
    for sizes in named:
        if len(sizes) > 1 and not any(held[place] for place in sizes):
            _hold_one_more(sizes, named, held)
    return {id(record) for place, unit in enumerate(units) if held[place] for record in unit}


def _hold_one_more(sizes: Counter[int], groups: list[Counter[int]], held: dict[int, bool]) -> None:
    """Hold out the smallest of these units that no class needs to be learned from, if there is one."""
    learned = {place for place, is_held in held.items() if not is_held}
    needed = {place for group in groups for place in group if len(learned & group.keys()) == 1}
    free = [place for place in sizes if place not in needed]
    if free:
        held[min(free, key=sizes.__getitem__)] = True


def count_held(share: float, total: int) -> int:
    return min(max(1, round(share * total)), total - 1)


def by_file(records: Iterable[Record], seed: int, base: Path | None) -> list[list[Record]]:
    """The records of each file and its copies (files of the same contents), in drawn order."""
    records = list(records)
    drawn = sorted({record.path for record in records}, key=lambda path: _draw(path, None, None, seed, base))
    contents = {
        record.path: str(record.path) if found is None else found[0]
        for record, found in zip(records, fingerprint_records(records), strict=True)
    }
    units: dict[str, list[Record]] = {contents[path]: [] for path in drawn}  # in the order of the first of them
    for record in records:
        units[contents[record.path]].append(record)
    return list(units.values())


def by_piece(records: Iterable[Record], seed: int, base: Path | None) -> list[Record]:
    """In drawn order."""
    return sorted(records, key=lambda record: _draw(record.path, record.start, record.end, seed, base))


def _draw(path: Path, start: float | None, end: float | None, seed: int, base: Path | None) -> bytes:
    seen = path if base is None else Path(os.path.relpath(path, base))
    key = f"{seed}/{seen.as_posix()}/{start}/{end}"
    return hashlib.blake2b(key.encode("utf-8", "surrogateescape"), digest_size=8).digest()
