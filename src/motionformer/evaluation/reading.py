"""Videos come from the processes that decode them, in groups that make up a batch. Knows no model."""

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from motionformer.data import Failure
from motionformer.evaluation.parts import Scored
from motionformer.evaluation.views import ReadVideo, VideoSource

Groups = list[list[int]]


def make_groups(num_videos: int, size: int, done: "Scored | frozenset[int]" = frozenset()) -> Groups:
    """Neighbours by index, without the videos already done."""
    size = max(1, size)
    groups = [range(first, min(first + size, num_videos)) for first in range(0, num_videos, size)]
    left = [[index for index in group if index not in done] for group in groups]
    return [group for group in left if group]


def load_groups(source: VideoSource, groups: Groups, num_workers: int, device: torch.device) -> Iterable[Any]:
    """(index, views or failure) of every video, a list a group."""
    return DataLoader(
        _Items(source),
        batch_sampler=groups,
        num_workers=num_workers,
        collate_fn=_as_they_are,
        pin_memory=device.type == "cuda",
    )


def all_kept(parts: Iterable[Scored], keep: Callable[[Scored], None], num_workers: int) -> bool:
    """Whether all came. A decoder may take its process along; torch says so wherever the main process happens to be,
    if it does not stumble over the lost connection first, and again at the end of any other process for as long as the
    loader lives, so nothing here holds on to it."""
    try:
        for part in parts:
            keep(part)
    except (RuntimeError, ConnectionError, EOFError) as error:
        text = str(error)
        is_ours = num_workers == 0 or text.startswith("Caught ")
        if is_ours or (isinstance(error, RuntimeError) and "DataLoader worker" not in text):
            raise  # an error of the source, which a worker handed on
        return False
    return True


class _Items(Dataset[tuple[int, ReadVideo | Tensor | Failure]]):
    def __init__(self, source: VideoSource) -> None:
        self.source = source

    def __len__(self) -> int:
        return len(self.source.entries)

    def __getitem__(self, index: int) -> tuple[int, ReadVideo | Tensor | Failure]:
        return index, self.source.read(index)


def _as_they_are(items: list[Any]) -> list[Any]:
    return items
