"""What the user typed becomes videos: files, folders, folders of frames and patterns."""

import glob
import logging
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from motionformer.data.folders import find_videos, is_frame_folder, is_video, note_left_out
from motionformer.errors import VideoError

log = logging.getLogger("motionformer")


@dataclass(frozen=True)
class Input:
    """A video, and its place below the folder or pattern it was found by: what files made from it are called."""

    path: Path
    name: str


def find_inputs(paths: Iterable[str | Path]) -> list[Input]:
    """Every video once, in the order given; inside a folder or a pattern, in an order that never changes.

    A file that was named is taken whatever it is called, also if it is not there: it is then one that failed. Where
    nothing is there, that is an error.
    """
    found: dict[Path, Input] = {}
    for path in paths:
        for one in _videos_at(Path(path)):
            found.setdefault(one.path, one)
    if not found:
        raise VideoError("no path was given.")
    if not any(path.exists() for path in found):
        others = f", nor are the {len(found) - 1} others" if len(found) > 1 else ""
        raise VideoError(f"there is no such file{others}", next(iter(found)))
    return list(found.values())


def _videos_at(path: Path) -> list[Input]:
    if path.is_dir():
        return _below(path)
    if path.exists() or not glob.has_magic(str(path)):
        return [Input(path, path.name)]
    names = glob.glob(str(path), recursive=True)  # noqa: PTH207 (Path.glob refuses absolute patterns)
    videos = [video for name in sorted(names) for video in _matched(Path(name))]
    if not videos:
        raise VideoError("this pattern matches no video", path)
    base = _plain_part(path)
    return [Input(video, video.relative_to(base).as_posix()) for video in videos]


def _below(folder: Path) -> list[Input]:
    videos = _in_folder(folder)
    if videos == [folder]:
        return [Input(folder, folder.resolve().name)]
    if not videos:
        raise VideoError("no video in this folder (they are known by their endings: mp4, avi, mkv, webm …)", folder)
    return [Input(video, video.relative_to(folder).as_posix()) for video in videos]


def _matched(path: Path) -> list[Path]:
    """A pattern may match anything; of that, only what looks like a video is meant."""
    if path.is_dir():
        return _in_folder(path)
    return [path] if is_video(path) else []


def _in_folder(folder: Path) -> list[Path]:
    """The folder itself if its pictures are the frames of a video, otherwise the videos below it."""
    if is_frame_folder(folder):
        return [folder]
    for note in note_left_out(folder):
        log.warning("note: %s", note)
    return find_videos(folder)


def _plain_part(pattern: Path) -> Path:
    """The folder that all matches are below."""
    return next(folder for folder in pattern.parents if not glob.has_magic(str(folder)))
