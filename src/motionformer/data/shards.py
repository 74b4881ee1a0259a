"""Clips out of tar shards, read from start to end: for training from object storage, where seeking is slow.

`index.json` beside the shards says what they hold. Shards are assigned to processes and their workers; in an epoch each
item is read by one of them, once.
"""

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
from motionformer.data.datasets import item_generator, read_item
from motionformer.data.record import ClassNames, Record, Sampling
from motionformer.errors import AnnotationError

INDEX_NAME = "index.json"
FORMAT = "motionformer shards 1"


@dataclass(frozen=True)
class Shard:
    file: str
    num_items: int
    num_bytes: int


@dataclass(frozen=True)
class ShardIndex:
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
        return json.dumps({"format": FORMAT, **vars(self), "shards": [vars(shard) for shard in self.shards]}, indent=1)


def read_shard_index(location: str) -> ShardIndex:
    """The index in a folder: local, or any address fsspec reads (`s3://`, `gs://`, `https://`, …)."""
    place = f"{location.rstrip('/')}/{INDEX_NAME}"
    try:
        with fsspec.open(place, "r", encoding="utf-8") as stream:
            text = stream.read()
    except FileNotFoundError as error:
        raise AnnotationError("no such file; `motionformer data shard` writes it.", place) from error
    except (
        OSError,
        ImportError,
        ValueError,
    ) as error:  # fsspec lacks a package, or knows no such address
        raise AnnotationError(f"cannot be read: {error}", place) from error
    try:
        return _parse_index(json.loads(text))
    except (KeyError, TypeError, ValueError) as error:
        raise AnnotationError(f"not an index of shards: {error!r}.", place) from error


def _parse_index(content: dict[str, Any]) -> ShardIndex:
    if content["format"] != FORMAT:
        raise ValueError(f"format is {content['format']!r}, not {FORMAT!r}")
    names = content["class_names"]
    return ShardIndex(
        name=content["name"],
        split=content["split"],
        sampling=content["sampling"],
        class_names={task: tuple(of) for task, of in names.items()} if isinstance(names, Mapping) else tuple(names),
        shards=tuple(Shard(**shard) for shard in content["shards"]),
    )


class ShardDataset(IterableDataset[dict[str, Any]]):
    """The items of a folder of shards, local or at any address that fsspec reads; same items as `ClipDataset`.

    With `shuffle`, shards come in an order of the epoch, videos through a buffer of `buffer_size`, and every process
    gets equally many items for each of its workers (who is left out differs from epoch to epoch). Without, nobody is
    left out.
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
        self.index = read_shard_index(self.location)
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
        assigned = assign_shards(shards, self.num_ranks, num_workers)
        mine, limit = assigned[self.rank][number], None
        if self.shuffle:
            limit = min(sum(shard.num_items for shard in of_rank[number]) for of_rank in assigned)
            if limit == 0 and any(of_rank[number] for of_rank in assigned):  # some would wait for others for ever
                raise AnnotationError(
                    f"{len(shards)} shards are too few for {self.num_ranks} processes with {num_workers} workers each;"
                    " write smaller shards (--size) or use fewer workers.",
                    self.location,
                )
        samples: Iterable[Sample] = (
            sample for shard in mine for sample in read_samples(f"{self.location}/{shard.file}")
        )
        if self.shuffle:
            key = [self.seed, epoch, self.rank, number]
            samples = shuffled(samples, self.buffer_size, np.random.default_rng(key))
        return self._items(samples, epoch, limit)

    def _items(self, samples: Iterable["Sample"], epoch: int, limit: int | None) -> Iterator[dict[str, Any]]:
        count = 0
        for sample in samples:
            with sample.on_disk() as path:
                for item in sample.items:
                    if count == limit:
                        return
                    count += 1
                    label = tuple(item["label"]) if isinstance(item["label"], list) else item["label"]
                    record = Record(path, label, item["start"], item["end"], item["fps"])
                    generator = item_generator(self.seed, epoch, item["index"])
                    yield read_item(self.reader, record, item["index"], generator, sample.path)


@dataclass(frozen=True)
class Sample:
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


def assign_shards(shards: Sequence[Shard], num_ranks: int, num_workers: int) -> list[list[list[Shard]]]:
    """`[rank][worker]` → shards, each shard in one place."""
    of_ranks = [shards[rank::num_ranks] for rank in range(num_ranks)]
    return [[list(of_rank[worker::num_workers]) for worker in range(num_workers)] for of_rank in of_ranks]


def read_samples(place: str) -> Iterator[Sample]:
    """The samples of one shard, in order, without seeking."""
    try:
        with fsspec.open(place, "rb") as stream, tarfile.open(fileobj=stream, mode="r|") as tar:
            key, files = "", dict[str, bytes]()
            for member in tar:
                content = tar.extractfile(member) if member.isfile() else None
                if content is None:
                    continue
                name, _, ending = member.name.partition(".")
                if name != key and files:
                    yield _parse_sample(files, place)
                    files = {}
                key, files[ending] = name, content.read()
            if files:
                yield _parse_sample(files, place)
    except (tarfile.TarError, OSError, EOFError) as error:
        raise AnnotationError(f"this shard cannot be read to its end: {error}", place) from error


def shuffled(samples: Iterable[Sample], size: int, rng: np.random.Generator) -> Iterator[Sample]:
    """The same samples, each drawn at random from the next `size`."""
    waiting: list[Sample] = []
    for sample in samples:
        if len(waiting) < size:
            waiting.append(sample)
            continue
        place = int(rng.integers(size))
        waiting[place], sample = sample, waiting[place]
        yield sample
    for place in rng.permutation(len(waiting)):
        yield waiting[place]


def _parse_sample(files: dict[str, bytes], place: str) -> Sample:
    try:
        description = json.loads(files.pop("json"))
        return Sample(description["path"], description["items"], files)
    except (KeyError, TypeError, ValueError) as error:
        raise AnnotationError(f"a sample without a proper .json: {error!r}.", place) from error
