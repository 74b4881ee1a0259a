"""Which files are videos, which folders are videos cut into frames. By name only: nothing is opened."""

import os
from collections import deque
from collections.abc import Iterator
from pathlib import Path

ANIMATION = ".gif"
"""A video by itself; beside pictures it is a preview of them."""
VIDEO_SUFFIXES = frozenset(
    {".mp4", ".m4v", ".mov", ".3gp", ".mkv", ".webm", ".avi", ".divx", ".mpg", ".mpeg", ".vob"}
    | {".ts", ".mts", ".m2ts", ".wmv", ".asf", ".flv", ".ogv", ".mxf", ".dv", ANIMATION}
)
IMAGE_SUFFIXES = frozenset({".jpg", ".jpeg", ".png"})
TEXT_SUFFIXES = frozenset(
    {".txt", ".md", ".rst", ".html", ".pdf", ".log", ".srt", ".vtt", ".ini", ".db"}
    | {".csv", ".tsv", ".json", ".jsonl", ".xml", ".yaml", ".yml"}
)
"""What commonly lies beside videos and is no riddle to anybody."""
TEXT_NAMES = frozenset({"readme", "license", "licence"})


def find_videos(folder: Path) -> list[Path]:
    """Video files and folders of frames anywhere below, hidden ones left out, in an order that never changes.

    Links to folders are followed; a folder that several lead to is looked through once.
    """
    found = (video for videos, _, _ in _walk(folder) for video in videos)
    return sorted(found, key=lambda path: path.relative_to(folder).as_posix())


def is_video(path: Path) -> bool:
    return path.suffix.lower() in VIDEO_SUFFIXES


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


def first_existing(candidates: list[Path]) -> Path:
    """The first that is there; the first of all when none is, so that a message can name it."""
    return next((path for path in candidates if path.exists()), candidates[0])


def _walk(folder: Path) -> Iterator[tuple[list[Path], list[Path], list[Path]]]:
    """Of every folder, its videos, those of its pictures that are no frames, and files that may be anything."""
    for place, folders, files in _places(folder):
        pictures = [file for file in files if _is_picture(file)]
        videos = [file for file in files if is_video(file) and not (pictures and _is_animation(file))]
        unknown = [file for file in files if not (is_video(file) or _is_picture(file) or _is_text(file))]
        if pictures and not videos and not any(_holds_video(place / name) for name in folders):
            folders.clear()  # a frame folder is one video, whatever pictures lie below it
            videos, pictures = [place], []
        yield videos, pictures, unknown


def _places(folder: Path) -> Iterator[tuple[Path, list[str], list[Path]]]:
    """Every folder, the names of the folders in it (clear them to stay out), and its files; nothing hidden.

    Each comes once, by its own name if it lies below: links are followed last, and none leads in circles.
    """
    seen, waiting = set[Path](), deque([folder])
    while waiting:
        for name, folders, files in os.walk(waiting.popleft()):
            place = Path(name)
            real = place.resolve()
            if real in seen:
                folders.clear()
                continue
            seen.add(real)
            folders[:] = sorted(name for name in folders if not name.startswith("."))
            yield place, folders, [place / name for name in files if not name.startswith(".")]
            waiting.extend(place / name for name in folders if (place / name).is_symlink())


def _holds_video(folder: Path) -> bool:
    """Animations beside pictures are none."""
    for _, _, files in _places(folder):
        has_pictures = any(_is_picture(file) for file in files)
        if any(is_video(file) and not (has_pictures and _is_animation(file)) for file in files):
            return True
    return False


def _is_animation(path: Path) -> bool:
    return path.suffix.lower() == ANIMATION


def _is_picture(path: Path) -> bool:
    return path.suffix.lower() in IMAGE_SUFFIXES


def _is_text(path: Path) -> bool:
    return path.suffix.lower() in TEXT_SUFFIXES or path.stem.lower() in TEXT_NAMES
