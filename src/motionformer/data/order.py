"""In which order clips are visited, and what randomness each gets: both depend on (seed, epoch, index) and on nothing
else, so the number of workers, prefetching and a resumed run change no clip."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch.utils.data import Sampler


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
        self.num_done = num_done  # items of this process already seen in this epoch: where a resumed run goes on
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
