"""Which files are videos, which folders are videos cut into frames. By name only: nothing is opened."""

import os
from collections.abc import Iterator
from pathlib import Path

VIDEO_SUFFIXES = frozenset(
    {".mp4", ".m4v", ".mov", ".avi", ".mkv", ".webm", ".mpg", ".mpeg", ".ts", ".wmv", ".flv", ".3gp"}
)
IMAGE_SUFFIXES = frozenset({".jpg", ".jpeg", ".png"})


def find_videos(folder: Path) -> list[Path]:
    """Video files and folders of frames anywhere below, hidden ones left out, in an order that never changes."""
    return sorted(_walk(folder), key=lambda path: path.relative_to(folder).as_posix())


def is_video(path: Path) -> bool:
    return path.suffix.lower() in VIDEO_SUFFIXES


def is_frame_folder(folder: Path) -> bool:
    """A folder with at least one picture directly in it."""
    with os.scandir(folder) as entries:
        return any(Path(entry.name).suffix.lower() in IMAGE_SUFFIXES and entry.name[0] != "." for entry in entries)


def visible_folders(folder: Path) -> list[Path]:
    return sorted(entry for entry in folder.iterdir() if entry.is_dir() and not entry.name.startswith("."))


def first_existing(candidates: list[Path]) -> Path:
    """The first that is there; the first of all when none is, so that a message can name it."""
    return next((path for path in candidates if path.exists()), candidates[0])


def _walk(folder: Path) -> Iterator[Path]:
    for place, folders, files in os.walk(folder, followlinks=True):
        folders[:] = [name for name in folders if not name.startswith(".")]
        visible = [Path(place, name) for name in files if not name.startswith(".")]
        yield from (path for path in visible if is_video(path))
        if any(path.suffix.lower() in IMAGE_SUFFIXES for path in visible):
            yield Path(place)
            folders.clear()  # a frame folder is one video, whatever lies below it
