"""Folders of class folders, split by us or already split into `train`, `val` and `test`; and which files are videos,
which folders are videos cut into frames: by name only, nothing is opened."""

import hashlib
import os
from collections import deque
from collections.abc import Iterator, Mapping
from pathlib import Path

from motionformer.data.lists import ClassSource, numbers_of, read_class_names
from motionformer.data.record import Annotations, Record
from motionformer.errors import AnnotationError
from motionformer.logging import show_count

_SPLIT_FOLDERS = {
    **dict.fromkeys(("train", "training"), "train"),
    **dict.fromkeys(("val", "valid", "validation"), "val"),
    **dict.fromkeys(("test", "testing"), "test"),
}
_SHARES: Mapping[str, float] = {"train": 0.8, "val": 0.1, "test": 0.1}


def read_class_folders(
    root: Path,
    split: str | None = None,
    shares: Mapping[str, float] = _SHARES,
    seed: int = 0,
    class_names: ClassSource | None = None,
) -> Annotations:
    """One record per video, its class the folder directly below `root` (or below `root/<split>`).

    Without split folders each class is divided by `shares`: the same files for the same seed on every machine, and a
    new file leaves the others' order as it was. `split=None` gives all of them. `class_names` gives the classes and
    their order, where there are more of them than folders.
    """
    if not root.is_dir():
        raise AnnotationError("a file, not a folder of class folders; leave the kind out to have it recognised.", root)
    ready = split_folders(root)
    if split is not None and split not in (ready or shares):
        raise AnnotationError(f"no split {split!r}; there are {', '.join(ready or shares)}.", root)
    everywhere = list(ready.values()) or [root]
    tops = [ready[split]] if ready and split else everywhere
    found = tuple(sorted({folder.name for top in everywhere for folder in visible_folders(top)}))
    if not found:
        raise AnnotationError("no class folders here; each class is a folder of videos.", root)
    names = found if class_names is None else read_class_names(class_names)
    numbers = numbers_of(names)
    asked = {folder.name for top in tops for folder in visible_folders(top)}
    videos: dict[str, list[Path]] = {}
    for name in found:
        if name not in numbers and name not in asked:
            continue  # of another split
        if name not in numbers:
            known = ", ".join(names[:5]) + (", …" if len(names) > 5 else "")
            raise AnnotationError(
                f"class folder {name!r} is not among the {show_count(len(names), 'class')} ({known}).", root
            )
        of_class = {top: find_videos(top / name) for top in everywhere if (top / name).is_dir()}
        if not any(of_class.values()):
            raise AnnotationError(f"no video in the class folder {name!r}; add some or remove the folder.", root)
        videos[name] = [video for top in tops for video in of_class.get(top, ())]
        if split and not ready:
            videos[name] = _share(videos[name], root, split, shares, seed)
    records = tuple(Record(path, numbers[name], source=root) for name, paths in videos.items() for path in paths)
    made = "already split into folders" if ready else f"split by seed {seed}" if split else "not split"
    some = f" ({show_count(len(names), 'class')})" if len(names) > len(videos) else ""
    how = f"a folder of {show_count(len(videos), 'class folder')}{some}, {made}"
    return Annotations(records, names, root.resolve().name, split, how=how, notes=note_left_out(root))


def split_folders(root: Path) -> dict[str, Path]:
    """`train`, `val`, `test` folders, when `root` holds a training folder and nothing but such folders."""
    folders = visible_folders(root)
    known = {_SPLIT_FOLDERS[folder.name.lower()]: folder for folder in folders if folder.name.lower() in _SPLIT_FOLDERS}
    return known if "train" in known and len(known) == len(folders) else {}


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


_ANIMATION = ".gif"
"""A video by itself; beside pictures it is a preview of them."""
_VIDEO_SUFFIXES = frozenset(
    {".mp4", ".m4v", ".mov", ".3gp", ".mkv", ".webm", ".avi", ".divx", ".mpg", ".mpeg", ".vob"}
    | {".ts", ".mts", ".m2ts", ".wmv", ".asf", ".flv", ".ogv", ".mxf", ".dv", _ANIMATION}
)
_IMAGE_SUFFIXES = frozenset({".jpg", ".jpeg", ".png"})
_TEXT_SUFFIXES = frozenset(
    {".txt", ".md", ".rst", ".html", ".pdf", ".log", ".srt", ".vtt", ".ini", ".db"}
    | {".csv", ".tsv", ".json", ".jsonl", ".xml", ".yaml", ".yml"}
)
"""What commonly lies beside videos and is no riddle to anybody."""
_TEXT_NAMES = frozenset({"readme", "license", "licence"})


def find_videos(folder: Path) -> list[Path]:
    """Video files and folders of frames anywhere below, hidden ones left out, in an order that never changes.

    Links to folders are followed; a folder that several lead to is looked through once.
    """
    found = (video for videos, _, _ in _walk(folder) for video in videos)
    return sorted(found, key=lambda path: path.relative_to(folder).as_posix())


def is_video(path: Path) -> bool:
    return path.suffix.lower() in _VIDEO_SUFFIXES


def is_frame_folder(folder: Path) -> bool:
    """A folder with at least one picture directly in it, and no video file in it or below it."""
    with os.scandir(folder) as entries:
        has_pictures = any(_is_picture(Path(entry.name)) and entry.name[0] != "." for entry in entries)
    return has_pictures and not _holds_video(folder)


def note_left_out(folder: Path) -> tuple[str, ...]:
    """A note if there are pictures that were not taken for frames, and one if there are files of unknown endings."""
    found = list(_walk(folder))
    pictures = sorted(picture for _, some, _ in found for picture in some)
    unknown = sorted(file for _, _, some in found for file in some)
    notes = []
    if pictures:
        why = "have videos beside or below them: not taken for frames"
        notes.append(f"{len(pictures)} pictures {why}; the first is {pictures[0]}")
    if unknown:
        why = "have no known ending of a video and are left out"
        notes.append(f"{len(unknown)} files {why}; the first is {unknown[0]}")
    return tuple(notes)


def visible_folders(folder: Path) -> list[Path]:
    return sorted(entry for entry in folder.iterdir() if entry.is_dir() and not entry.name.startswith("."))


def _walk(folder: Path) -> Iterator[tuple[list[Path], list[Path], list[Path]]]:
    """Of every folder, its videos, those of its pictures that are no frames, and files that may be anything."""
    for here, folders, files in _walk_folders(folder):
        pictures = [file for file in files if _is_picture(file)]
        videos = [file for file in files if is_video(file) and not (pictures and _is_animation(file))]
        unknown = [file for file in files if not (is_video(file) or _is_picture(file) or _is_text(file))]
        if pictures and not videos and not any(_holds_video(here / name) for name in folders):
            folders.clear()  # a frame folder is one video, whatever pictures lie below it
            videos, pictures = [here], []
        yield videos, pictures, unknown


def _walk_folders(folder: Path) -> Iterator[tuple[Path, list[str], list[Path]]]:
    """Every folder, the names of the folders in it (clear them to stay out), and its files; nothing hidden.

    Each comes once, by its own name if it lies below: links are followed last, and none leads in circles.
    """
    seen, waiting = set[Path](), deque([folder])
    while waiting:
        for name, folders, files in os.walk(waiting.popleft()):
            here = Path(name)
            real = here.resolve()
            if real in seen:
                folders.clear()
                continue
            seen.add(real)
            folders[:] = sorted(name for name in folders if not name.startswith("."))
            yield here, folders, [here / name for name in files if not name.startswith(".")]
            waiting.extend(here / name for name in folders if (here / name).is_symlink())


def _holds_video(folder: Path) -> bool:
    """Animations beside pictures are none."""
    for _, _, files in _walk_folders(folder):
        has_pictures = any(_is_picture(file) for file in files)
        if any(is_video(file) and not (has_pictures and _is_animation(file)) for file in files):
            return True
    return False


def _is_animation(path: Path) -> bool:
    return path.suffix.lower() == _ANIMATION


def _is_picture(path: Path) -> bool:
    return path.suffix.lower() in _IMAGE_SUFFIXES


def _is_text(path: Path) -> bool:
    return path.suffix.lower() in _TEXT_SUFFIXES or path.stem.lower() in _TEXT_NAMES
