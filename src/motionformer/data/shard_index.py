"""What a folder of tar shards holds: one small JSON file beside them, which reader and writer agree on."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import fsspec

from motionformer.data.record import ClassNames, Sampling
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
        return _parse(json.loads(text))
    except (KeyError, TypeError, ValueError) as error:
        raise AnnotationError(f"not an index of shards: {error!r}.", place) from error


def _parse(content: dict[str, Any]) -> ShardIndex:
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
