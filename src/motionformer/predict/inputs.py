"""What the user typed becomes videos: files, folders, folders of frames and patterns."""

import glob
from collections.abc import Iterable
from pathlib import Path

from motionformer.data.listing import find_videos, is_frame_folder, is_video
from motionformer.errors import VideoError


def find_inputs(paths: Iterable[str | Path]) -> list[Path]:
    """Every video once, in the order given; inside a folder or a pattern, in an order that never changes.

    A file that was named is taken whatever it is called, also if it is not there: it is then one that failed.
    """
    found: dict[Path, None] = {}
    for path in paths:
        found.update(dict.fromkeys(_videos_at(Path(path))))
    if not found:
        raise VideoError("no path was given.")
    return list(found)


def _videos_at(path: Path) -> list[Path]:
    if path.is_dir():
        return _below(path)
    if path.exists() or not glob.has_magic(str(path)):
        return [path]
    names = glob.glob(str(path), recursive=True)  # noqa: PTH207 (Path.glob refuses absolute patterns)
    matches = [Path(name) for name in sorted(names)]
    videos = [video for match in matches for video in _matched(match)]
    if not videos:
        raise VideoError("this pattern matches no video", path)
    return videos


def _below(folder: Path) -> list[Path]:
    if is_frame_folder(folder):
        return [folder]
    videos = find_videos(folder)
    if not videos:
        raise VideoError("no video in this folder (they are known by their endings: mp4, avi, mkv, webm …)", folder)
    return videos


def _matched(path: Path) -> list[Path]:
    """A pattern may match anything; of that, only what looks like a video is meant."""
    if path.is_dir():
        return [path] if is_frame_folder(path) else find_videos(path)
    return [path] if is_video(path) else []
