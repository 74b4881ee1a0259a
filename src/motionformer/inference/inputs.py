"""What the user gives becomes videos: paths, folders and patterns; or frames in memory, as bytes `[t H W 3]`.

Many videos are one job: shared among processes, every result kept in a journal as it comes, all in order at the end. A
video's result does not depend on the videos before it, so an interrupted job, and one of several processes, gives what
one process would have given, byte for byte.
"""

import glob
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch
from jaxtyping import UInt8
from torch import Tensor

from motionformer.data.folders import find_videos, is_frame_folder, is_video, note_left_out
from motionformer.distributed import current_rank
from motionformer.errors import StoppedError, VideoError
from motionformer.logging import progress_bar, show_count
from motionformer.models import InputSpec
from motionformer.runs import Entry, Journal, read_journal, remove_journal, stamp_video
from motionformer.stopping import is_stop_requested, stop_reason

log = logging.getLogger("motionformer")
_MAX_PIECE, _PIECES = 32, 8
"""Videos that one process takes from the queue at once, and how often it comes back, about."""


@dataclass(frozen=True)
class Input:
    """A video, and its name below the folder or pattern it was found by: files made from it are called so."""

    path: Path
    name: str


def find_inputs(paths: Iterable[str | Path]) -> list[Input]:
    """The videos of files, folders, folders of frames and patterns: each once, in an order that never changes.

    Args:
        paths: a file that is named is taken whatever its ending, also if it is not there: it then fails to be read.

    Raises:
        VideoError: no path, nothing there, or a folder or pattern without videos.

    Example:
        ```python
        [one.path for one in find_inputs(["videos/", "more/**/*.avi"])]
        ```
    """
    found: dict[Path, Input] = {}
    for path in paths:
        for one in _videos_at(Path(path)):
            found.setdefault(one.path, one)
    if not found:
        raise VideoError("no path was given.")
    if not any(path.exists() for path in found):
        more = len(found) - 1
        others = "" if not more else ", nor is the other" if more == 1 else f", nor are the {more} others"
        raise VideoError(f"there is no such file{others}", next(iter(found)))
    return list(found.values())


Work = Callable[[Sequence[Path]], Iterable[Entry]]
"""Paths to results, in order: plain values for JSON, with "failed" for a video that could not be read."""


def run_job(
    paths: Sequence[Path],
    work: Work,
    *,
    description: str = "",
    header: Mapping[str, Any] | None = None,
    journal: Path | None = None,
    resume: bool = False,
    keeps: str = "",
) -> list[Entry]:
    """The results of all paths, in their order, on every rank.

    With `journal`, every result is on the disk before the next video begins; `resume` continues with those of an
    earlier job with the same `header` whose files have not changed. Several processes take videos from one queue.

    Raises:
        StoppedError: SIGTERM or SIGUSR1 came; `keeps` is where the results of the videos that are done stay.
    """
    rank = current_rank()
    if journal is not None:
        rank.check_shared(journal.parent)
    stamps = {} if journal is None else {path: stamp_video(path) for path in paths}
    done: dict[Path, Entry] = rank.on_zero(lambda: _read_done(journal, header or {}, resume, stamps))
    left = [path for path in paths if path not in done]
    # a piece of work is large enough for processes that decode, and small enough for all to end at the same time
    size = len(left) if rank.world_size == 1 else min(_MAX_PIECE, -(-len(left) // (_PIECES * rank.world_size)))
    pieces = [left[start : start + size] for start in range(0, len(left), max(1, size))]
    mine: dict[Path, Entry] = {}
    with ExitStack() as stack:
        advance = stack.enter_context(show_progress(description, len(paths), len(done)))
        kept = None if journal is None else stack.enter_context(Journal(journal, header or {}, rank.rank))
        for piece in rank.queue(pieces):
            for path, entry in zip(piece, work(piece), strict=True):
                if kept is not None:
                    kept.add(str(path), stamps[path], entry)
                mine[path] = entry
                advance(1)
                if is_stop_requested():
                    break
    for share in rank.gather(mine):
        done |= share
    if rank.any_stopped() and len(done) < len(total := set(paths)):
        where = f"What is done is in {keeps}: --resume continues from there." if keeps else "Nothing is kept."
        raise StoppedError(f"{stop_reason()}, after {len(done)} of {show_count(len(total), 'video')}. {where}")
    return [done[path] for path in paths]


@contextmanager
def show_progress(
    description: str, total: int, completed: int = 0, *, show: bool = True
) -> Iterator[Callable[[int], None]]:
    """A bar for all processes: the others are taken to be as fast as this one."""
    num_processes = current_rank().world_size
    with progress_bar(show=show) as progress:
        bar = progress.add_task(description, total=total, completed=completed)
        yield lambda count: progress.advance(bar, count * num_processes)


def _read_done(
    journal: Path | None, header: Mapping[str, Any], resume: bool, stamps: Mapping[Path, str]
) -> dict[Path, Entry]:
    if journal is None:
        return {}
    if not resume:
        remove_journal(journal)
    entries = read_journal(journal, header)
    return {path: entries[str(path), stamp] for path, stamp in stamps.items() if (str(path), stamp) in entries}


@runtime_checkable
class _ArrayLike(Protocol):
    """What calls itself an array, as PIL images do."""

    @property
    def __array_interface__(self) -> dict[str, Any]: ...


_Frame = Tensor | _ArrayLike
Frames = _Frame | Sequence[_Frame]
"""A tensor or an array `[t H W 3]`, or a list of arrays or PIL images `[H W 3]`: bytes, RGB."""

ACCEPTED = (
    "a video is a path, an address, the bytes of a file, a row with a column `video`, a torchcodec decoder, or frames"
    " in memory: bytes (uint8) [t H W 3], RGB, as a tensor, an array, or a list of arrays or PIL images [H W 3]"
)
"""What a video may be, for errors."""


def is_frames(video: Any) -> bool:
    """Whether this stands for frames in memory, right or wrong, and not for paths."""
    if isinstance(video, (list, tuple)):
        return bool(video) and not isinstance(video[0], (str, PathLike)) and _is_array(video[0])
    return _is_array(video)


def as_frames(frames: Any) -> UInt8[Tensor, "t H W 3"]:
    """The frames as a tensor. Raises `TypeError` or `ValueError` with what is accepted."""
    if isinstance(frames, (list, tuple)):
        return _stack(frames)
    if not _is_array(frames):
        raise TypeError(f"{ACCEPTED}; not {kind_of(frames)}.")
    found = _tensor(frames)
    shape = list(found.shape)
    if found.ndim == 5:
        raise ValueError(f"one video at a time: {ACCEPTED}. {shape} is a batch: call once for each of its {shape[0]}.")
    if found.ndim != 4 or shape[-1] != 3 or 0 in shape:
        hint = ""
        if found.ndim == 4 and shape[1] == 3:
            hint = " Channels come last: frames.permute(0, 2, 3, 1), of an array frames.transpose(0, 2, 3, 1)."
        elif found.ndim == 4 and shape[0] == 3:
            hint = " Channels come last: frames.permute(1, 2, 3, 0), of an array frames.transpose(1, 2, 3, 0)."
        raise ValueError(f"{ACCEPTED}; not {shape}.{hint}")
    if found.dtype != torch.uint8:
        hint = ""
        if found.is_floating_point():
            hint = " Of values from 0 to 1: (frames * 255).round().to(torch.uint8); from 0 to 255: without the factor."
        raise ValueError(f"{ACCEPTED}; not {str(found.dtype).removeprefix('torch.')}.{hint}")
    return found


def check_fps(fps: float | None, spec: InputSpec) -> float:
    """The rate of frames in memory: the model's where none is given."""
    if fps is None:
        return spec.fps or 30.0
    if not 0 < fps < float("inf"):
        raise ValueError(f"`fps` ({fps}) must be a positive number of frames per second.")
    return float(fps)


def _videos_at(path: Path) -> list[Input]:
    if path.is_dir():
        return _below(path)
    if path.exists() or not glob.has_magic(str(path)):
        return [Input(path, path.name)]
    names = glob.glob(str(path), recursive=True)  # noqa: PTH207 (Path.glob takes no absolute patterns)
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


def _stack(frames: Any) -> UInt8[Tensor, "t H W 3"]:
    for frame in frames:
        if not _is_array(frame):
            raise TypeError(f"{ACCEPTED}; not a list with {kind_of(frame)}.")
    made = [_tensor(frame) for frame in frames]
    shapes = sorted({tuple(frame.shape) for frame in made})
    if len(shapes) > 1:
        raise ValueError(f"frames of one video have one size; not {' and '.join(str(list(s)) for s in shapes[:3])}.")
    if shapes and (len(shapes[0]) != 3 or shapes[0][-1] != 3):
        hint = ' Of a PIL image: image.convert("RGB").' if hasattr(frames[0], "convert") else ""
        raise ValueError(f"{ACCEPTED}; not a list of {list(shapes[0])}.{hint}")
    if not made:
        raise ValueError(f"{ACCEPTED}; the list is empty.")
    return as_frames(torch.stack(made))


def _is_array(value: Any) -> bool:
    """A tensor, an array, or what calls itself one, as PIL images do."""
    return isinstance(value, (Tensor, np.ndarray)) or hasattr(value, "__array_interface__")


def _tensor(value: Any) -> Tensor:
    if isinstance(value, Tensor):
        return value
    array = np.asarray(value)
    if array.dtype.kind not in "buif":
        raise ValueError(f"{ACCEPTED}; not an array of {array.dtype}.")
    return torch.from_numpy(np.array(array))  # a copy that may be written to: torch warns of others


def kind_of(value: Any) -> str:
    """The name of its class, for errors."""
    return f"{type(value).__module__}.{type(value).__name__}".removeprefix("builtins.")
