"""Videos known by their contents: the same for a copy elsewhere under another name.

A fingerprint is of the size and of three blocks (start, middle, end) of a file, so that a large data set costs three
small reads a video. A video that was encoded again is another one.
"""

import hashlib
import math
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from motionformer.data.record import Record
from motionformer.errors import VideoError
from motionformer.models.training_data import Span, VideoSet
from motionformer.video.images import list_frames

BLOCK = 64 * 1024
MAX_FILES = 500_000
"""Files of which a model keeps fingerprints (19 bytes each); of larger sets the first, and the model records it."""
READERS = 16  # threads: a network's disk answers many at a time


def _fingerprint_video(path: Path) -> str | None:
    """Of a file's contents, or of a folder of frames (their number; first, middle and last). None: it is not there, or
    empty."""
    digest = hashlib.blake2b(digest_size=8)
    try:
        if path.is_dir():
            frames = list_frames(path)  # as the reader sees them: whatever else lies there is not the video
            digest.update(f"{len(frames)} frames".encode())
            for frame in [frames[k] for k in sorted({0, len(frames) // 2, len(frames) - 1})]:
                _add_file(digest, frame)
        elif path.stat().st_size == 0:
            return None
        else:
            _add_file(digest, path)
    except (OSError, VideoError):
        return None
    return digest.hexdigest()


def fingerprint_records(records: Sequence[Record], limit: int | None = None) -> list[tuple[str, Span] | None]:
    """Fingerprint and span of every record; None for one whose file is not there, or is beyond the first `limit`."""
    paths = list(dict.fromkeys(record.path for record in records))[:limit]
    with ThreadPoolExecutor(READERS) as pool:
        found = dict(zip(paths, pool.map(_fingerprint_video, paths), strict=True))
    spans = ((record.start or 0.0, math.inf if record.end is None else record.end) for record in records)
    keys = (found.get(record.path) for record in records)
    return [None if key is None else (key, span) for key, span in zip(keys, spans, strict=True)]


def video_set(records: Sequence[Record], limit: int = MAX_FILES) -> tuple[VideoSet, int]:
    """The set of all records, and how many of them it had to leave out."""
    found = fingerprint_records(records, limit)
    return VideoSet.of(one for one in found if one is not None), found.count(None)


def made_clips(level: str, split: str, seed: int) -> str:
    """What stands for the fingerprint of clips of the motion benchmark; clip i is the span from i to i + 1."""
    return f"motion:{level}/{split}/{seed}"


def _add_file(digest: "hashlib.blake2b", file: Path) -> None:
    with file.open("rb") as stream:
        size = os.fstat(stream.fileno()).st_size
        digest.update(f" {size} ".encode())
        if size <= 3 * BLOCK:
            digest.update(stream.read())
            return
        for offset in (0, (size - BLOCK) // 2, size - BLOCK):
            stream.seek(offset)
            digest.update(stream.read(BLOCK))
