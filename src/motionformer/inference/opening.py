"""What a user gives becomes a video to read: a path, an address, a file's bytes, a data set's row, a decoder, frames.

Addresses and bytes go through a temporary file: a decoder seeks, and only local files are ever opened by FFmpeg.
"""

import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from os import PathLike, fspath
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

import fsspec

from motionformer.errors import VideoError
from motionformer.inference.inputs import ACCEPTED, as_frames, check_fps, is_frames, kind_of
from motionformer.models import InputSpec
from motionformer.video.memory import DecodedFrames, MemoryVideo, OtherDecoder

_BYTES = (bytes, bytearray, memoryview)
_COLUMN = "video"


class Opened(NamedTuple):
    """A video that can be read, for as long as it is open."""

    name: str
    """In results; empty for what has none."""
    source: Path | MemoryVideo


@contextmanager
def open_input(video: Any, spec: InputSpec, fps: float | None = None) -> Iterator[Opened]:
    """Open one video, whatever form it has.

    Args:
        video: a path; an address that `fsspec` knows (`https://…`, `s3://…`, `memory://…`); the bytes of a file; a row
            of a data set: a mapping with the column `video`, or with `bytes` or `path`; an open torchcodec decoder; or
            frames in memory.
        spec: its rate is that of frames in memory where `fps` is None.
        fps: of frames in memory; the others have their own.

    Raises:
        VideoError: an address that cannot be fetched. Errors of reading inside the `with` name what was given.
        TypeError, ValueError: something else, or frames that are not bytes `[t H W 3]`.
    """
    name = ""
    if isinstance(video, Mapping):
        name, video = _of_row(video)
    if fps is not None and not is_frames(video):
        raise ValueError("`fps` is of frames in memory; a file has its own rate: leave it out.")
    if isinstance(video, _BYTES):
        with tempfile.NamedTemporaryFile(suffix=PurePosixPath(name).suffix) as file, _naming(name or "bytes"):
            file.write(video)
            file.flush()
            yield Opened(name, Path(file.name))
    elif is_address(video):
        with tempfile.TemporaryDirectory() as folder, _naming(video):
            yield Opened(video, _fetch(video, Path(folder)))
    elif isinstance(video, (str, PathLike)):
        yield Opened(fspath(video), Path(video))
    elif OtherDecoder.is_one(video):
        yield Opened(name, OtherDecoder(video))
    else:
        yield Opened(name, DecodedFrames(as_frames(video), check_fps(fps, spec)))


def is_one_video(value: Any) -> bool:
    """Whether this stands for one video, right or wrong, and not for several."""
    return isinstance(value, (str, PathLike, Mapping, *_BYTES)) or OtherDecoder.is_one(value) or is_frames(value)


def is_address(value: Any) -> bool:
    """Whether it is to be fetched; a file that is there under such a name is a file."""
    return isinstance(value, str) and "://" in value and not Path(value).exists()


def check_several(videos: Any) -> Iterable[Any]:
    """What may be gone through for videos; a list is checked before the first is read."""
    if hasattr(videos, "read"):
        raise TypeError(f"{ACCEPTED}; not {kind_of(videos)}. Give its path, or what its read() returns.")
    if not isinstance(videos, Iterable):
        raise TypeError(f"{ACCEPTED}; not {kind_of(videos)}.")
    if isinstance(videos, (list, tuple)):
        videos = list(map(_check_one, videos))
    return map(_check_one, videos)


def _check_one(video: Any) -> Any:
    if not is_one_video(video) or is_frames(video):
        raise TypeError(f"{ACCEPTED}; of several, each is a path, bytes, a row or a decoder, not {kind_of(video)}.")
    return video


def _of_row(row: Mapping[str, Any]) -> tuple[str, Any]:
    """The name and the video of a row, or of its column as it is stored: `{"path": …, "bytes": …}`."""
    value = row.get(_COLUMN, row)
    if isinstance(value, Mapping) and (value.get("bytes") is not None or value.get("path") is not None):
        name = "" if value.get("path") is None else fspath(value["path"])
        return name, name if value.get("bytes") is None else value["bytes"]
    if value is row or isinstance(value, Mapping) or value is None:
        held = ", ".join(map(repr, row)) or "nothing"
        raise TypeError(
            f"{ACCEPTED}; this mapping has {held}, and no video in `video`, `bytes` or `path`: give the column that "
            "holds it."
        )
    return fspath(value) if isinstance(value, (str, PathLike)) else "", value


def _fetch(address: str, folder: Path) -> Path:
    """A copy in `folder`, with the suffix of the address."""
    copy = folder / ("video" + PurePosixPath(address.partition("?")[0]).suffix)
    try:
        with fsspec.open(address, "rb") as remote, copy.open("wb") as local:
            shutil.copyfileobj(remote, local)
    except Exception as error:  # each file system has its own errors
        why = error.__cause__ or error  # of a refused connection, fsspec says "not found"
        reason = (str(why).strip().splitlines() or ["no reason given"])[0]
        raise VideoError(f"cannot be fetched ({type(why).__name__}: {reason})", address) from error
    return copy


@contextmanager
def _naming(name: str) -> Iterator[None]:
    """Errors inside name what was given, not the temporary file."""
    try:
        yield
    except VideoError as error:
        raise VideoError(error.reason, name, frame=error.frame, line=error.line) from error
