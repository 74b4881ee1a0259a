"""A record becomes a clip: open, sample, transform; and a list of records becomes a data set of clips.

In which order clips are visited and what randomness each gets depends on (seed, epoch, index) and on nothing else, so
the number of workers, prefetching and a resumed run change no clip.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch
from torch import Generator, Tensor
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import Dataset, Sampler

from motionformer.data.failures import Failure
from motionformer.data.record import Annotations, Label, Record
from motionformer.data.samplers import FrameSampler
from motionformer.errors import AnnotationError, VideoError
from motionformer.models.config import SamplingProtocol
from motionformer.video import Clock, ReadFacts, Video, open_video, retry_if_frame_count_changed
from motionformer.video.sample import piece_frames


@dataclass(frozen=True, slots=True)
class Visit:
    """One item in one epoch: what an `EpochSampler` hands to the data set, also across to workers that live on."""

    epoch: int
    index: int


class EpochSampler(Sampler[Visit]):
    """This process's share of an epoch. Training drops the few that would leave the processes with unequal numbers
    (others each epoch); without shuffling nobody is dropped and nobody repeated."""

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


def item_generator(seed: int, epoch: int, index: int) -> torch.Generator:
    """The generator of one item in one epoch; neighbouring keys give unrelated streams."""
    (state,) = np.random.SeedSequence([seed, epoch, index]).generate_state(1, np.uint64)
    return torch.Generator().manual_seed(int(state >> np.uint64(1)))


NO_CLASS = -1
"""Fills up the classes of a video to as many as others of its batch have."""


@runtime_checkable
class ClipTransform(Protocol):
    """Bytes `[t H W 3]` to what the model takes; the label goes along, because a mirror can change it."""

    def with_label(self, clip: Tensor, label: Any, generator: Generator | None = None) -> tuple[Tensor, Any]: ...


@dataclass(frozen=True)
class ClipReader:
    """Everything about how a record becomes a clip, chosen once."""

    sampler: FrameSampler
    transforms: tuple[ClipTransform, ...] = ()  # several (crops) multiply the views; none leaves frames as decoded
    decoder: str = "pyav"
    time_limit: float = 30.0  # seconds for opening, and for reading
    image_rate: float = 30.0  # frames a second of a folder of images whose record does not say

    def read(self, record: Record, generator: Generator | None = None) -> tuple[Tensor, Label]:
        """The clip, or all views stacked (clip by clip, each in all crops), and the label. Raises `VideoError`."""
        clip, label, _ = self.read_with_facts(record, generator)
        return clip, label

    def read_with_facts(self, record: Record, generator: Generator | None = None) -> tuple[Tensor, Label, ReadFacts]:
        """Also how many of the frames differ, and whether the video is damaged."""
        rate = record.fps or self.image_rate
        with open_video(
            record.path,
            decoder=self.decoder,
            time_limit=self.time_limit,
            image_rate=rate,
            square_pixels=self.sampler.protocol != "released",
        ) as video:
            views, facts = retry_if_frame_count_changed(video, lambda: self._read_views(video, record, generator))
        if not self.transforms:
            return _stacked(views), record.label, facts
        done = [step.with_label(view, record.label, generator) for view in views for step in self.transforms]
        return _stacked([clip for clip, _ in done]), done[0][1], facts

    def _read_views(self, video: Video, record: Record, generator: Generator | None) -> tuple[list[Tensor], ReadFacts]:
        clock, piece = sampled_piece(record, video.clock, self.sampler.protocol)
        lists = as_views(self.sampler(clock, generator, piece))
        wanted = sorted({i for view in lists for i in view})  # views overlap: each frame is decoded once
        frames = video.read(wanted)
        place = {i: position for position, i in enumerate(wanted)}
        return [frames[[place[i] for i in view]] for view in lists], ReadFacts.of(lists, video.damaged)


class ClipDataset(Dataset[dict[str, Any]]):
    """Item i is a clip of record i: `{clip, label, index, path}`, or `{failure}` where the video cannot be read.

    A failed video is never replaced by another. What is random about an item depends on (seed, epoch, index) alone;
    the epoch comes with the `Visit` of an `EpochSampler`, or is 0 for a plain index.
    """

    def __init__(self, annotations: Annotations, reader: ClipReader, *, seed: int = 0) -> None:
        check_sampling(annotations.sampling, reader.sampler, annotations.name)
        self.annotations, self.reader, self.seed = annotations, reader, seed

    def __len__(self) -> int:
        return len(self.annotations)

    def __getitem__(self, visit: Visit | int) -> dict[str, Any]:
        epoch, index = (visit.epoch, visit.index) if isinstance(visit, Visit) else (0, visit)
        record = self.annotations.records[index]
        return read_item(self.reader, record, index, item_generator(self.seed, epoch, index), str(record.path))


def read_item(reader: ClipReader, record: Record, index: int, generator: Generator, path: str) -> dict[str, Any]:
    """The item of a record; `path` is what the video is called in reports."""
    try:
        clip, label = reader.read(record, generator)
    except VideoError as error:
        return {"failure": Failure(path, _without_path(error), index, record.label, record.line)}
    return {"clip": clip, "label": label, "index": index, "path": path}


def collate_clips(items: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """A batch of the clips that could be read, and in `failed` those that could not.

    `label` is a tensor `[b]`, a tensor a task, or None for a list without labels. Of videos with any number of classes
    it is `[b m]`: the classes of each, filled up with -1.
    """
    good = [item for item in items if "failure" not in item]
    return {
        "clip": torch.stack([item["clip"] for item in good]) if good else torch.empty(0),
        "label": _batch_labels([item["label"] for item in good]),
        "index": torch.tensor([item["index"] for item in good], dtype=torch.int64),
        "path": [item["path"] for item in good],
        "failed": [item["failure"] for item in items if "failure" in item],
    }


def sampled_piece(record: Record, clock: Clock, protocol: SamplingProtocol) -> tuple[Clock, range | None]:
    """The clock that a record's clips are cut by, and the frames of its piece; None for a whole video."""
    if record.start is None and record.end is None:
        return record_clock(record, clock), None
    if protocol == "uniform":
        return record_clock(record, clock), frame_span(record, clock)
    rate = record.assumed_fps if record.path.is_dir() else None
    clock = Clock(clock.num_frames, rate) if rate else record_clock(record, clock)
    piece = piece_frames(clock, record.start, record.end)
    _check_begins(record, clock, piece.start < clock.num_frames)
    return clock, piece


def frame_span(record: Record, clock: Clock) -> range:
    """The frames that appear from `start` (included) to `end` (excluded), at least one. Raises `VideoError`."""
    clock = record_clock(record, clock)
    span = clock.span(record.start, record.end)
    _check_begins(record, clock, bool(span))
    return span


def _check_begins(record: Record, clock: Clock, begins: bool) -> None:
    if not begins:
        reason = f"the piece begins at {record.start:g} s, but the video has only {clock.duration:.2f} s"
        raise VideoError(reason, record.path, line=record.line)


def record_clock(record: Record, clock: Clock) -> Clock:
    """The video's clock, unless the record brings a rate of its own."""
    return Clock(clock.num_frames, record.fps) if record.fps else clock


def check_sampling(sampling: str, sampler: FrameSampler, name: str) -> None:
    """Something-Something runs at 12 frames a second; a stride made for 30 would show every frame several times."""
    if sampling == "segments" and sampler.is_strided:
        raise AnnotationError(
            f"{name} is sampled by segments over the whole video. A clip at a fixed stride ({sampler!r}) is not what"
            " was published, and a stride meant for 30 frames a second repeats frames of a video with 12. Use a segment"
            ' sampler, or, for an experiment, dataclasses.replace(annotations, sampling="any").'
        )


def _stacked(clips: list[Tensor]) -> Tensor:
    return clips[0] if len(clips) == 1 else torch.stack(clips)


def as_views(chosen: Sequence[int] | Sequence[Sequence[int]]) -> list[list[int]]:
    """The clips that a sampler chose; a single one is a list of one."""
    nested = torch.as_tensor(chosen).tolist()
    return nested if nested and isinstance(nested[0], list) else [nested]


def _batch_labels(labels: list[Label]) -> Tensor | dict[str, Tensor] | None:
    if any(label is None for label in labels):
        return None
    if labels and isinstance(labels[0], Mapping):
        return {task: torch.tensor([label[task] for label in labels]) for task in labels[0]}  # type: ignore[index,call-overload]
    if labels and isinstance(labels[0], tuple):
        rows = [torch.tensor(label, dtype=torch.int64) for label in labels]
        return pad_sequence(rows, batch_first=True, padding_value=NO_CLASS)
    return torch.tensor(labels, dtype=torch.int64)


def _without_path(error: VideoError) -> str:
    return error.reason if error.frame is None else f"frame {error.frame} {error.reason}"
