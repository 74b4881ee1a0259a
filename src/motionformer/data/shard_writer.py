"""A data set becomes tar files in WebDataset's layout: the files of a sample lie together and share a name.

`00000012.mp4` is the video as it was, `00000012.json` its path and items (label, start, end, frame rate). A video with
several labelled pieces is stored once with several items; a folder of frames is stored as the frames of one item.
Plain `tarfile` is enough for both directions; any reader of WebDataset's layout can read the result.
"""

import io
import json
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from motionformer.data.clips import frame_span
from motionformer.data.record import Annotations, Record
from motionformer.data.shards import INDEX_NAME, Shard, ShardIndex
from motionformer.errors import AnnotationError
from motionformer.runs import atomic_write, valid_json, write_atomically
from motionformer.video import Clock
from motionformer.video.images import list_frames


@dataclass(frozen=True)
class _Sample:
    """One video, or the frames of one piece of it, and what is labelled in it."""

    path: Path
    files: dict[str, Path]  # by the ending they get
    items: list[dict[str, Any]]

    def num_bytes(self) -> int:
        return sum(file.stat().st_size for file in self.files.values())


def write_shards(annotations: Annotations, out: str | Path, *, max_bytes: int, seed: int = 0) -> Iterator[Shard]:
    """Write the shards, giving each when it is done, and last the index. Videos are shuffled by `seed`: a reader
    goes through a shard in order."""
    out = Path(out)
    if out.exists() and any(out.iterdir()):
        raise AnnotationError("the folder is not empty; shards are written to a new one.", out)
    out.mkdir(parents=True, exist_ok=True)
    samples = _samples(annotations)
    order = np.random.default_rng(seed).permutation(len(samples))
    shards: list[Shard] = []
    for chunk in _chunks([samples[i] for i in order], max_bytes):
        name = f"{annotations.split or 'all'}-{len(shards):06d}.tar"
        first = sum(shard.num_items for shard in shards)
        shards.append(_write_shard(out / name, chunk, first))
        yield shards[-1]
    index = ShardIndex(
        annotations.name, annotations.split, annotations.sampling, annotations.class_names, tuple(shards)
    )
    write_atomically(out / INDEX_NAME, index.to_json())  # last: a folder without it is unfinished


def _samples(annotations: Annotations) -> list[_Sample]:
    whole: dict[Path, _Sample] = {}
    pieces = []
    for index, record in enumerate(annotations):
        item = {"index": index, "label": record.label, "start": record.start, "end": record.end, "fps": record.fps}
        if record.path.is_dir():
            pieces.append(_frames_sample(record, item))
            continue
        sample = whole.setdefault(record.path, _Sample(record.path, {record.path.suffix[1:]: record.path}, []))
        sample.items.append(item)
    return [*whole.values(), *pieces]


def _frames_sample(record: Record, item: dict[str, Any]) -> _Sample:
    files = list_frames(record.path)
    if record.start is not None or record.end is not None:
        if record.fps is None:
            raise AnnotationError("a piece of a folder of frames needs its frame rate.", record.source, record.line)
        files = [files[i] for i in frame_span(record, Clock(len(files), record.fps))]
    return _Sample(record.path, {file.name: file for file in files}, [{**item, "start": None, "end": None}])


def _chunks(samples: list[_Sample], max_bytes: int) -> Iterator[list[_Sample]]:
    chunk: list[_Sample] = []
    size = 0
    for sample in samples:
        if chunk and size + sample.num_bytes() > max_bytes:
            yield chunk
            chunk, size = [], 0
        chunk.append(sample)
        size += sample.num_bytes()
    yield chunk


def _write_shard(file: Path, samples: list[_Sample], first: int) -> Shard:
    with atomic_write(file) as stream, tarfile.open(fileobj=stream, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for number, sample in enumerate(samples, start=first):
            description = json.dumps({"path": str(sample.path), "items": sample.items}, ensure_ascii=False)
            _add(tar, f"{number:08d}.json", valid_json(description).encode())
            for ending, source in sample.files.items():
                _add(tar, f"{number:08d}.{ending}", source.read_bytes())
    return Shard(file.name, sum(len(sample.items) for sample in samples), file.stat().st_size)


def _add(tar: tarfile.TarFile, name: str, content: bytes) -> None:
    member = tarfile.TarInfo(name)  # no owner, no time: the same videos give the same bytes
    member.size = len(content)
    tar.addfile(member, io.BytesIO(content))
