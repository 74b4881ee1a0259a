"""Tar shards of a data set, in WebDataset's layout: the files of a sample lie together and share a name.

`00000012.mp4` is the video as it was, `00000012.json` its path and items (label, start, end, frame rate). A video with
several labelled pieces is stored once with several items; a folder of frames is stored as the frames of one item.
`index.json` beside the shards lists them. Shards are read from start to end, for training from object storage, where
seeking is slow; each is assigned to one worker of one process, so that an epoch reads every item once.
"""

import hashlib
import io
import json
import tarfile
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import torch
from torch.utils.data import IterableDataset, get_worker_info

from motionformer.data.clips import ClipReader, check_sampling
from motionformer.data.datasets import read_item
from motionformer.data.record import Annotations, ClassNames, Record, Sampling
from motionformer.deprecation import renamed_arguments
from motionformer.errors import AnnotationError
from motionformer.runs import (
    Journal,
    atomic_write,
    lock_folder,
    read_journal,
    remove_journal,
    stamp_video,
    valid_json,
    write_atomically,
)
from motionformer.video import Clock
from motionformer.video.images import list_frames

INDEX_NAME = "index.json"
_FORMAT = "motionformer shards 1"
_JOURNAL = ".journal"
"""Of an interrupted run; gone when it is finished."""


@dataclass(frozen=True)
class Shard:
    file: str
    num_items: int
    num_bytes: int


@dataclass(frozen=True)
class _ShardIndex:
    """Shards in the order they were written, with the names of the classes inside."""

    name: str
    split: str | None
    sampling: Sampling
    class_names: ClassNames
    shards: tuple[Shard, ...]

    @property
    def num_items(self) -> int:
        return sum(shard.num_items for shard in self.shards)

    def to_json(self) -> str:
        return json.dumps({"format": _FORMAT, **vars(self), "shards": [vars(shard) for shard in self.shards]}, indent=1)


def _read_shard_index(location: str) -> _ShardIndex:
    """The index in a folder: local, or any address fsspec reads (`s3://`, `gs://`, `https://`, …)."""
    address = f"{location.rstrip('/')}/{INDEX_NAME}"
    try:
        with fsspec.open(address, "r", encoding="utf-8") as stream:
            text = stream.read()
    except FileNotFoundError as error:
        raise AnnotationError("no such file; `motionformer data shard` writes it.", address) from error
    except (
        OSError,
        ImportError,
        ValueError,
    ) as error:  # fsspec lacks a package, or knows no such address
        raise AnnotationError(f"cannot be read: {error}", address) from error
    try:
        return _parse_index(json.loads(text))
    except (KeyError, TypeError, ValueError) as error:
        raise AnnotationError(f"not an index of shards: {error!r}.", address) from error


def _parse_index(content: dict[str, Any]) -> _ShardIndex:
    if content["format"] != _FORMAT:
        raise ValueError(f"format is {content['format']!r}, not {_FORMAT!r}")
    names = content["class_names"]
    return _ShardIndex(
        name=content["name"],
        split=content["split"],
        sampling=content["sampling"],
        class_names={task: tuple(of) for task, of in names.items()} if isinstance(names, Mapping) else tuple(names),
        shards=tuple(Shard(**shard) for shard in content["shards"]),
    )


class ShardDataset(IterableDataset[dict[str, Any]]):
    """The items of a folder of shards, local or at any address that fsspec reads; same items as `ClipDataset`.

    With `shuffle`, every process gets equally many items for each of its workers; which items are left out differs from
    epoch to epoch. Without, none is left out.

    Args:
        location: a folder, or any address that fsspec reads, such as `s3://bucket/train`.
        reader: how a record becomes a clip.
        shuffle: shards in an order of the epoch, videos through a buffer.
        seed: of everything random.
        buffer_size: videos that wait to be drawn from.
        rank, num_ranks: of this process.

    Raises:
        AnnotationError: there is no index, or a shard cannot be read to its end.

    Example:
        ```python
        shards = ShardDataset("shards/train", reader, shuffle=True)
        clip = next(iter(shards))["clip"]
        ```
    """

    def __init__(
        self,
        location: str | Path,
        reader: ClipReader,
        *,
        shuffle: bool,
        seed: int = 0,
        buffer_size: int = 128,
        rank: int = 0,
        num_ranks: int = 1,
    ) -> None:
        self.location, self.reader = str(location).rstrip("/"), reader
        self.index = _read_shard_index(self.location)
        check_sampling(self.index.sampling, reader.sampler, self.index.name)
        self.shuffle, self.seed, self.buffer_size = shuffle, seed, buffer_size
        self.rank, self.num_ranks = rank, num_ranks
        self._epoch = torch.zeros((), dtype=torch.int64).share_memory_()  # seen by workers that live on

    def set_epoch(self, epoch: int) -> None:
        self._epoch.fill_(epoch)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        worker = get_worker_info()
        number, num_workers = (worker.id, worker.num_workers) if worker else (0, 1)
        epoch = int(self._epoch)
        order = np.random.default_rng([self.seed, epoch]).permutation(len(self.index.shards))
        shards = [self.index.shards[i] for i in order] if self.shuffle else list(self.index.shards)
        assigned = _assign_shards(shards, self.num_ranks, num_workers)
        mine, limit = assigned[self.rank][number], None
        if self.shuffle:
            limit = min(sum(shard.num_items for shard in of_rank[number]) for of_rank in assigned)
            if limit == 0 and any(of_rank[number] for of_rank in assigned):  # some would wait for others for ever
                raise AnnotationError(
                    f"{len(shards)} shards are too few for {self.num_ranks} processes with {num_workers} workers each;"
                    " write smaller shards (--size) or use fewer workers.",
                    self.location,
                )
        samples: Iterable[_Sample] = (
            sample for shard in mine for sample in _read_samples(f"{self.location}/{shard.file}")
        )
        if self.shuffle:
            key = [self.seed, epoch, self.rank, number]
            samples = _shuffled(samples, self.buffer_size, np.random.default_rng(key))
        return self._items(samples, epoch, limit)

    def _items(self, samples: Iterable["_Sample"], epoch: int, limit: int | None) -> Iterator[dict[str, Any]]:
        count = 0
        for sample in samples:
            with sample.on_disk() as path:
                for item in sample.items:
                    if count == limit:
                        return
                    count += 1
                    label = tuple(item["label"]) if isinstance(item["label"], list) else item["label"]
                    record = Record(path, label, item["start"], item["end"], item["fps"])
                    yield read_item(self.reader, record, (self.seed, epoch, item["index"]), sample.path)


@dataclass(frozen=True)
class _Sample:
    """One video of a shard: its files by ending, its labelled items, and the path it was read from."""

    path: str
    items: list[dict[str, Any]]
    files: Mapping[str, bytes]

    @contextmanager
    def on_disk(self) -> Iterator[Path]:
        """A file (or a folder of frames) that any decoder can open, gone afterwards."""
        with tempfile.TemporaryDirectory(prefix="motionformer-") as folder:
            for ending, content in self.files.items():
                Path(folder, f"0.{ending}" if "." not in ending else Path(ending).name).write_bytes(content)
            alone = len(self.files) == 1 and "." not in next(iter(self.files))
            yield Path(folder, f"0.{next(iter(self.files))}") if alone else Path(folder)


def _assign_shards(shards: Sequence[Shard], num_ranks: int, num_workers: int) -> list[list[list[Shard]]]:
    """`[rank][worker]` → shards, each shard once."""
    of_ranks = [shards[rank::num_ranks] for rank in range(num_ranks)]
    return [[list(of_rank[worker::num_workers]) for worker in range(num_workers)] for of_rank in of_ranks]


def _read_samples(address: str) -> Iterator[_Sample]:
    """The samples of one shard, in order, without seeking."""
    try:
        with fsspec.open(address, "rb") as stream, tarfile.open(fileobj=stream, mode="r|") as tar:
            key, files = "", dict[str, bytes]()
            for member in tar:
                content = tar.extractfile(member) if member.isfile() else None
                if content is None:
                    continue
                name, _, ending = member.name.partition(".")
                if name != key and files:
                    yield _parse_sample(files, address)
                    files = {}
                key, files[ending] = name, content.read()
            if files:
                yield _parse_sample(files, address)
    except (tarfile.TarError, OSError, EOFError) as error:
        raise AnnotationError(f"this shard cannot be read to its end: {error}", address) from error


def _shuffled(samples: Iterable[_Sample], size: int, rng: np.random.Generator) -> Iterator[_Sample]:
    """The same samples, each drawn at random from the next `size`."""
    waiting: list[_Sample] = []
    for sample in samples:
        if len(waiting) < size:
            waiting.append(sample)
            continue
        k = int(rng.integers(size))
        waiting[k], sample = sample, waiting[k]
        yield sample
    for k in rng.permutation(len(waiting)):
        yield waiting[k]


def _parse_sample(files: dict[str, bytes], address: str) -> _Sample:
    try:
        description = json.loads(files.pop("json"))
        return _Sample(description["path"], description["items"], files)
    except (KeyError, TypeError, ValueError) as error:
        raise AnnotationError(f"a sample without a proper .json: {error!r}.", address) from error


@dataclass(frozen=True)
class _Source:
    """One video, or the frames of one piece of it, and what is labelled in it."""

    path: Path
    files: dict[str, Path]  # by the ending they get
    items: list[dict[str, Any]]

    def num_bytes(self) -> int:
        return sum(file.stat().st_size for file in self.files.values())

    def stamp(self) -> list[Any]:
        """Changes when what is written of it does."""
        return [str(self.path), self.items, [(ending, stamp_video(file)) for ending, file in self.files.items()]]


@renamed_arguments(out="output")
def write_shards(annotations: Annotations, output: str | Path, *, max_bytes: int, seed: int = 0) -> Iterator[Shard]:
    """Write a data set as tar shards, yielding each when it is on the disk, and last `index.json`.

    Videos are shuffled by `seed`, because a reader goes through a shard in order. A run that was interrupted resumes
    when it is started again: shards whose videos did not change are kept, and the result is the same to the byte.

    Args:
        annotations: the data set.
        output: folder for the shards: new, empty, or of an interrupted run with the same arguments.
        max_bytes: of the videos in one shard; a larger video has one of its own.
        seed: of the order of the videos.

    Raises:
        AnnotationError: the folder holds something else, or a finished set of shards.
        OutputError: the folder holds an interrupted run of another list, size or seed, or one that is running.

    Example:
        ```python
        for shard in write_shards(open_dataset("train.csv"), "shards/train", max_bytes=1_000_000_000):
            print(shard.file, shard.num_items)
        ```
    """
    output = Path(output)
    journal = output / _JOURNAL
    if output.exists() and any(output.iterdir()) and not journal.exists():
        raise AnnotationError("the folder is not empty; shards are written to a new one.", output)
    shards: list[Shard] = []
    with lock_folder(journal, "writing shards"):
        try:
            for shard in _write_or_keep(annotations, output, max_bytes, seed):
                shards.append(shard)
                yield shard
        finally:
            if not any(output.glob("*.tar")):
                remove_journal(journal)
        index = _ShardIndex(
            annotations.name, annotations.split, annotations.sampling, annotations.class_names, tuple(shards)
        )
        write_atomically(output / INDEX_NAME, index.to_json())  # last: a folder without it is unfinished
        remove_journal(journal)


def _write_or_keep(annotations: Annotations, out: Path, max_bytes: int, seed: int) -> Iterator[Shard]:
    header = _describe_run(annotations, max_bytes, seed)
    done = read_journal(out / _JOURNAL, header)
    for torn in out.glob(".*.part"):  # of a process that was killed
        torn.unlink()
    sources, first = _sources(annotations), 0
    order = np.random.default_rng(seed).permutation(len(sources))
    with Journal(out / _JOURNAL, header) as journal:
        for number, chunk in enumerate(_chunks([sources[i] for i in order], max_bytes)):
            file = out / f"{annotations.split or 'all'}-{number:06d}.tar"
            stamp = _digest([first, [source.stamp() for source in chunk]])
            entry = done.get((file.name, stamp))
            if entry is None or not file.exists() or file.stat().st_size != entry["num_bytes"]:
                entry = _write_shard(file, chunk, first)
                journal.add(file.name, stamp, entry)
            yield Shard(file.name, **entry)
            first += entry["num_items"]


def _describe_run(annotations: Annotations, max_bytes: int, seed: int) -> dict[str, Any]:
    """What an interrupted run must share with the one that resumes it."""
    rows = [[str(r.path), r.label, r.start, r.end, r.fps] for r in annotations]
    return {
        "format": _FORMAT,
        "name": annotations.name,
        "split": annotations.split,
        "list": _digest([rows, annotations.class_names, annotations.sampling]),
        "max_bytes": max_bytes,
        "seed": seed,
    }


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, default=dict).encode()).hexdigest()[:16]


def _sources(annotations: Annotations) -> list[_Source]:
    whole: dict[Path, _Source] = {}
    pieces = []
    for index, record in enumerate(annotations):
        item = {"index": index, "label": record.label, "start": record.start, "end": record.end, "fps": record.fps}
        if record.path.is_dir():
            pieces.append(_frames_sample(record, item))
            continue
        sample = whole.setdefault(record.path, _Source(record.path, {record.path.suffix[1:]: record.path}, []))
        sample.items.append(item)
    return [*whole.values(), *pieces]


def _frames_sample(record: Record, item: dict[str, Any]) -> _Source:
    files = list_frames(record.path)
    if record.start is not None or record.end is not None:
        if record.fps is None:
            raise AnnotationError("a piece of a folder of frames needs its frame rate.", record.source, record.line)
        files = [files[i] for i in record.span(Clock(len(files), record.fps))]
    return _Source(record.path, {file.name: file for file in files}, [{**item, "start": None, "end": None}])


def _chunks(samples: list[_Source], max_bytes: int) -> Iterator[list[_Source]]:
    chunk: list[_Source] = []
    size = 0
    for sample in samples:
        if chunk and size + sample.num_bytes() > max_bytes:
            yield chunk
            chunk, size = [], 0
        chunk.append(sample)
        size += sample.num_bytes()
    yield chunk


def _write_shard(file: Path, samples: list[_Source], first: int) -> dict[str, Any]:
    with atomic_write(file) as stream, tarfile.open(fileobj=stream, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for number, sample in enumerate(samples, start=first):
            description = json.dumps({"path": str(sample.path), "items": sample.items}, ensure_ascii=False)
            _add(tar, f"{number:08d}.json", valid_json(description).encode())
            for ending, source in sample.files.items():
                _add(tar, f"{number:08d}.{ending}", source.read_bytes())
    return {"num_items": sum(len(sample.items) for sample in samples), "num_bytes": file.stat().st_size}


def _add(tar: tarfile.TarFile, name: str, content: bytes) -> None:
    member = tarfile.TarInfo(name)  # no owner, no time: the same videos give the same bytes
    member.size = len(content)
    tar.addfile(member, io.BytesIO(content))
