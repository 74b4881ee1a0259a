"""A list of records becomes a data set of clips, clips become batches; failed videos are counted, never replaced.

The order of clips and the randomness of each depend on (seed, epoch, index) and on nothing else, so the number of
workers, prefetching and a resumed run change no clip. Workers send a `Failure` where a clip would have been; the main
process counts them, because only it sees all of them.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Generator, Tensor
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import Dataset, Sampler

from motionformer.data.clips import ClipReader, check_sampling
from motionformer.data.record import Annotations, Label, Record
from motionformer.distributed import rank_and_size
from motionformer.errors import FailedVideosError, VideoError
from motionformer.runs import write_csv


@dataclass(frozen=True, slots=True)
class Visit:
    """One item in one epoch: what an `EpochSampler` hands to the data set, also across to workers that live on."""

    epoch: int
    index: int


class EpochSampler(Sampler[Visit]):
    """The visits of this process in an epoch. Call `set_epoch` before each.

    With `shuffle`, the few items that would leave the processes with unequal numbers are dropped (others each epoch);
    without, none is dropped and none repeated.

    Args:
        num_items: of the data set.
        shuffle: a new order each epoch.
        seed: of the order.
        rank, num_ranks: of this process.
        num_done: items of this process already seen in this epoch, where a run resumes.

    Example:
        ```python
        [visit.index for visit in EpochSampler(5, shuffle=False, rank=1, num_ranks=2)]  # 1 and 3
        ```
    """

    def __init__(
        self, num_items: int, *, shuffle: bool, seed: int = 0, rank: int = 0, num_ranks: int = 1, num_done: int = 0
    ) -> None:
        if not 0 <= rank < num_ranks:
            raise ValueError(f"rank {rank} is not one of {num_ranks} processes.")
        self.num_items, self.shuffle, self.seed = num_items, shuffle, seed
        self.rank, self.num_ranks = rank, num_ranks
        self.num_done = num_done  # items of this process already seen in this epoch: where a run resumes
        self.epoch = 0

    def set_epoch(self, epoch: int) -> None:
        if epoch != self.epoch:
            self.num_done = 0
        self.epoch = epoch

    def __len__(self) -> int:
        return len(self._share())

    def __iter__(self) -> Iterator[Visit]:
        return (Visit(self.epoch, int(index)) for index in self._share())

    def _share(self) -> "np.ndarray[tuple[int], np.dtype[np.int64]]":
        order = np.arange(self.num_items)
        if self.shuffle:
            order = np.random.default_rng([self.seed, self.epoch]).permutation(self.num_items)
            order = order[: self.num_items - self.num_items % self.num_ranks]
        return order[self.rank :: self.num_ranks][self.num_done :]


class ClipDataset(Dataset[dict[str, Any]]):
    """Item i is a clip of record i: `{clip, label, index, path}`, or `{failure}` where the video cannot be read.

    A failed video is never replaced by another. What is random about an item depends on (seed, epoch, index) alone;
    the epoch comes with the `Visit` of an `EpochSampler`, or is 0 for a plain index.

    Args:
        annotations: the records and their classes.
        reader: how a record becomes a clip.
        seed: of everything random.

    Raises:
        AnnotationError: the data set is published with segments, and the reader samples at a stride.

    Example:
        ```python
        reader = ClipReader(spec, sampler=train_sampler(spec), transforms=[train_transform(spec)])
        dataset = ClipDataset(open_dataset("videos/", split="train"), reader)
        loader = DataLoader(dataset, 8, sampler=EpochSampler(len(dataset), shuffle=True), collate_fn=collate_clips)
        ```
    """

    def __init__(self, annotations: Annotations, reader: ClipReader, *, seed: int = 0) -> None:
        check_sampling(annotations.sampling, reader.sampler, annotations.name)
        self.annotations, self.reader, self.seed = annotations, reader, seed

    def __len__(self) -> int:
        return len(self.annotations)

    def __getitem__(self, visit: Visit | int) -> dict[str, Any]:
        epoch, index = (visit.epoch, visit.index) if isinstance(visit, Visit) else (0, visit)
        record = self.annotations.records[index]
        return read_item(self.reader, record, (self.seed, epoch, index), str(record.path))


_NO_CLASS = -1
"""Fills up the classes of a video to as many as others of its batch have."""


def read_item(reader: ClipReader, record: Record, key: tuple[int, int, int], path: str) -> dict[str, Any]:
    """The item of a record; `key` is (seed, epoch, index), `path` what the video is called in reports."""
    index = key[2]
    try:
        clip, label = reader.read_labelled(record, _item_generator(*key))
    except VideoError as error:
        return {"failure": Failure.of(record, error, index, path)}
    return {"clip": clip, "label": label, "index": index, "path": path}


def _item_generator(seed: int, epoch: int, index: int) -> Generator:
    """The generator of one item in one epoch; neighbouring keys give unrelated streams."""
    (state,) = np.random.SeedSequence([seed, epoch, index]).generate_state(1, np.uint64)
    return Generator().manual_seed(int(state >> np.uint64(1)))


def collate_clips(items: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """A batch of items of a `ClipDataset`, for a `DataLoader`.

    Args:
        items: of a `ClipDataset` or `ShardDataset`.

    Returns:
        `clip`, `label`, `index` and `path` of the clips that could be read, and in `failed` a `Failure` for each other
        one. `label` is a tensor `[b]`, one per task, or None for a list without labels; of videos with any number of
        classes it is `[b m]`, filled up with -1.
    """
    good = [item for item in items if "failure" not in item]
    return {
        "clip": torch.stack([item["clip"] for item in good]) if good else torch.empty(0),
        "label": _batch_labels([item["label"] for item in good]),
        "index": torch.tensor([item["index"] for item in good], dtype=torch.int64),
        "path": [item["path"] for item in good],
        "failed": [item["failure"] for item in items if "failure" in item],
    }


def _batch_labels(labels: list[Label]) -> Tensor | dict[str, Tensor] | None:
    if any(label is None for label in labels):
        return None
    if labels and isinstance(labels[0], Mapping):
        return {task: torch.tensor([label[task] for label in labels]) for task in labels[0]}  # type: ignore[index,call-overload]
    if labels and isinstance(labels[0], tuple):
        rows = [torch.tensor(label, dtype=torch.int64) for label in labels]
        return pad_sequence(rows, batch_first=True, padding_value=_NO_CLASS)
    return torch.tensor(labels, dtype=torch.int64)


@dataclass(frozen=True)
class Failure:
    """A video that could not be read, and the decoder's reason."""

    path: str
    reason: str
    index: int
    label: Label = None
    line: int | None = None

    @classmethod
    def of(cls, record: Record, error: VideoError, index: int, path: str | None = None) -> "Failure":
        """Of the record at `index`, called `path` in reports."""
        return cls(path or str(record.path), error.full_reason, index, record.label, record.line)


@dataclass
class FailurePolicy:
    """Counts failed videos and raises once they are more than `max_share` of the data set.

    Use `for batch in policy.watch(loader)`. Training skips a failed clip; evaluation (`max_share=1`) continues and
    finds each in `batch["failed"]`, to be counted as wrong. With several processes each counts its own share:
    `num_items` is then what this process reads.
    """

    num_items: int
    max_share: float = 0.01
    failures: dict[tuple[str, int], Failure] = field(default_factory=dict)  # a video that fails every epoch is one

    @classmethod
    def evaluation(cls, num_items: int) -> "FailurePolicy":
        return cls(num_items, max_share=1.0)

    def watch(self, batches: Iterable[dict[str, Any]]) -> Iterator[dict[str, Any]]:
        """The batches, failures counted. Batches of failures alone are passed on by evaluation, skipped by training."""
        for batch in batches:
            self.count(batch["failed"])
            if batch["failed"] and len(batch["index"]) == 0 and self.max_share < 1:
                self._check_one_process(batch["failed"])
                continue
            yield batch

    def count(self, failures: Iterable[Failure]) -> None:
        self.failures.update({(failure.path, failure.index): failure for failure in failures})
        if len(self.failures) > self.max_share * self.num_items:
            raise FailedVideosError(
                f"{self.summary()}, more than the accepted share of {self.max_share:.2%}. Repair or remove them"
                f" (`motionformer data check` lists all), or accept a larger share."
            )

    def summary(self, num_named: int = 5) -> str:
        """How many failed, and which: a sentence for a log."""
        if not self.failures:
            return f"all {self.num_items} videos could be read"
        named = list(self.failures.values())[:num_named]
        more = f"; and {len(self.failures) - len(named)} more" if len(self.failures) > len(named) else ""
        which = "; ".join(f"{failure.path}: {failure.reason}" for failure in named)
        return f"{len(self.failures)} of {self.num_items} videos could not be read ({which}{more})"

    def write_csv(self, file: Path) -> None:
        rows = sorted(self.failures.values(), key=lambda failure: (failure.path, failure.index))
        values = ([failure.path, failure.index, failure.line or "", failure.reason] for failure in rows)
        write_csv(file, [["path", "index", "line", "reason"], *values])

    def _check_one_process(self, failures: list[Failure]) -> None:
        if rank_and_size() is not None:
            raise FailedVideosError(
                f"no clip of a batch could be read ({failures[0].path}: {failures[0].reason}); skipping it in one of"
                " several processes would leave the others waiting for ever."
            )
