"""A folder of class folders: no file to write. Split by us, or already split into `train`, `val` and `test`."""

import hashlib
from collections.abc import Mapping
from pathlib import Path

from motionformer.data.class_names import ClassSource, read_class_names
from motionformer.data.listing import find_videos, note_left_out, visible_folders
from motionformer.data.plain_list import numbers_of
from motionformer.data.record import Annotations, Record
from motionformer.errors import AnnotationError

SPLIT_FOLDERS = {
    **dict.fromkeys(("train", "training"), "train"),
    **dict.fromkeys(("val", "valid", "validation"), "val"),
    **dict.fromkeys(("test", "testing"), "test"),
}
SHARES: Mapping[str, float] = {"train": 0.8, "val": 0.1, "test": 0.1}


def read_class_folders(
    root: Path,
    split: str | None = None,
    shares: Mapping[str, float] = SHARES,
    seed: int = 0,
    class_names: ClassSource | None = None,
) -> Annotations:
    """One record a video, its class the folder directly below `root` (or below `root/<split>`).

    Without split folders each class is divided by `shares`: the same files for the same seed on every machine, and a
    new file leaves the others' order as it was. `split=None` gives all of them. `class_names` says the classes and
    their order, where there are more of them than folders.
    """
    if not root.is_dir():
        raise AnnotationError("a file, not a folder of class folders; leave the kind out to have it recognised.", root)
    ready = split_folders(root)
    if split is not None and split not in (ready or shares):
        raise AnnotationError(f"no split {split!r}; there are {', '.join(ready or shares)}.", root)
    tops = [ready[split]] if ready and split else list(ready.values()) if ready else [root]
    found = tuple(sorted({folder.name for top in ready.values() or [root] for folder in visible_folders(top)}))
    if not found:
        raise AnnotationError("no class folders here; each class is a folder of videos.", root)
    names = found if class_names is None else read_class_names(class_names)
    numbers = numbers_of(names)
    asked = {folder.name for top in tops for folder in visible_folders(top)}
    for name in found:
        if name not in numbers and name not in asked:
            continue  # of another split
        if name not in numbers:
            known = ", ".join(names[:5]) + (", …" if len(names) > 5 else "")
            raise AnnotationError(f"class folder {name!r} is not among the {len(names)} classes ({known}).", root)
        if not any(_videos(top / name) for top in ready.values() or [root]):
            raise AnnotationError(f"no video in the class folder {name!r}; add some or remove the folder.", root)
    found = tuple(name for name in found if name in numbers)
    videos = {name: [video for top in tops for video in _videos(top / name)] for name in found}
    if split and not ready:
        videos = {name: _share(paths, root, split, shares, seed) for name, paths in videos.items()}
    records = tuple(Record(path, numbers[name], source=root) for name in found for path in videos[name])
    made = "already split into folders" if ready else f"split by seed {seed}" if split else "not split"
    some = f" ({len(names)} classes)" if len(names) > len(found) else ""
    how = f"a folder of {len(found)} class folders{some}, {made}"
    return Annotations(records, names, root.resolve().name, split, how=how, notes=note_left_out(root))


def split_folders(root: Path) -> dict[str, Path]:
    """`train`, `val`, `test` folders, when `root` holds a training folder and nothing but such folders."""
    folders = visible_folders(root)
    known = {SPLIT_FOLDERS[folder.name.lower()]: folder for folder in folders if folder.name.lower() in SPLIT_FOLDERS}
    return known if "train" in known and len(known) == len(folders) else {}


def _videos(folder: Path) -> list[Path]:
    return find_videos(folder) if folder.is_dir() else []


def _share(videos: list[Path], root: Path, split: str, shares: Mapping[str, float], seed: int) -> list[Path]:
    def drawn(path: Path) -> bytes:
        key = f"{seed}/{path.relative_to(root).as_posix()}"
        return hashlib.blake2b(key.encode("utf-8", "surrogateescape"), digest_size=8).digest()

    order = sorted(videos, key=drawn)
    bounds = _bounds(len(order), shares)
    first, last = bounds[split]
    return sorted(order[first:last])


def _bounds(count: int, shares: Mapping[str, float]) -> dict[str, tuple[int, int]]:
    """Whole numbers closest to the shares (largest remainders), a video in every split while there are enough."""
    total = sum(shares.values())
    exact = {name: count * share / total for name, share in shares.items()}
    sizes = {name: int(value) for name, value in exact.items()}
    for name in sorted(exact, key=lambda name: sizes[name] - exact[name])[: count - sum(sizes.values())]:
        sizes[name] += 1
    for name in [name for name, size in sizes.items() if size == 0 and shares[name] > 0]:
        largest = max(sizes, key=lambda other: sizes[other])
        if sizes[largest] > 1:
            sizes[largest] -= 1
            sizes[name] += 1
    bounds, first = {}, 0
    for name, size in sizes.items():
        bounds[name] = (first, first + size)
        first += size
    return bounds
