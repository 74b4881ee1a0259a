"""Which clips make which batch. The global batch of a step is the same for any number of processes, and where a
resumed run goes on follows from the number of optimiser steps done, so there is no position to save.

Lightning sets a sampler's epoch by itself, but with loader workers it does so after they were asked for the first
batches of a resumed run; here the epoch comes from the step, and travels to the workers in each `Visit`.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
from torch.utils.data import Sampler

from motionformer.data.datasets import EpochSampler, Visit
from motionformer.training.plan import Plan


@dataclass(frozen=True)
class Place:
    """Which of the processes this one is."""

    rank: int = 0
    processes: int = 1


@runtime_checkable
class Order(Protocol):
    """In which order the training clips come, all of them once; a function of seed and epoch alone."""

    def __call__(self, seed: int, epoch: int) -> list[int]: ...


@dataclass(frozen=True)
class Shuffled:
    """Any order is as likely as any other."""

    num_clips: int

    def __call__(self, seed: int, epoch: int) -> list[int]:
        sampler = EpochSampler(self.num_clips, shuffle=True, seed=seed)
        sampler.set_epoch(epoch)
        return [visit.index for visit in sampler]


@dataclass(frozen=True)
class TakingTurns:
    """Shuffled within each class, and the classes spread evenly: every stretch holds them in the proportions of the
    whole. Small batches of few classes otherwise differ most in how often each class happens to be in them, and a
    model that has learnt nothing yet learns that first."""

    labels: Sequence[int]

    def __call__(self, seed: int, epoch: int) -> list[int]:
        rng = np.random.default_rng([seed, epoch])
        labels = np.asarray(self.labels)
        place = np.empty(len(labels))
        for label in np.unique(labels):
            mine = rng.permutation(np.flatnonzero(labels == label))
            place[mine] = (np.arange(len(mine)) + rng.random()) / len(mine)
        return [int(index) for index in place.argsort(kind="stable")]


def epoch_visits(order: Order, epoch: int, seed: int, repeats: int) -> list[Visit]:
    """All visits of an epoch in order. A repeated video comes `repeats` times in a row, each with its own draw of the
    augmentation (a `Visit`'s epoch is nothing but a key of that draw)."""
    return [Visit(epoch * repeats + again, index) for index in order(seed, epoch) for again in range(repeats)]


class TrainBatches(Sampler[list[Visit]]):
    """This process's part of every batch of the epoch that `steps_done()` says we are in, from there on.

    The length is that of the whole epoch: Lightning counts the batches of a resumed epoch from its beginning.
    """

    def __init__(
        self, plan: Plan, order: Order, place: Place, seed: int, repeats: int, steps_done: Callable[[], int]
    ) -> None:
        self.plan, self.order, self.place = plan, order, place
        self.seed, self.repeats, self.steps_done = seed, repeats, steps_done

    def __len__(self) -> int:
        return self.plan.steps_per_epoch * self.plan.accumulation

    def __iter__(self) -> Iterator[list[Visit]]:
        epoch, steps = self.plan.position(self.steps_done())
        visits = epoch_visits(self.order, epoch, self.seed, self.repeats)
        size = self.plan.clips_at_once * self.place.processes
        mine = slice(self.place.rank, None, self.place.processes)
        first = steps * self.plan.accumulation
        return iter([visits[i * size : (i + 1) * size][mine] for i in range(first, len(self))])


class ValBatches(Sampler[list[Visit]]):
    """This process's part of the validation clips, each clip in exactly one process. All processes get equally many
    batches (the last may be empty), because some strategies talk to each other in every forward pass."""

    def __init__(self, num_clips: int, batch: int, place: Place) -> None:
        self.num_clips, self.batch, self.place = num_clips, batch, place

    def __len__(self) -> int:
        largest_share = -(-self.num_clips // self.place.processes)
        return -(-largest_share // self.batch)

    def __iter__(self) -> Iterator[list[Visit]]:
        mine = list(EpochSampler(self.num_clips, shuffle=False, rank=self.place.rank, num_ranks=self.place.processes))
        return iter([mine[i * self.batch : (i + 1) * self.batch] for i in range(len(self))])
