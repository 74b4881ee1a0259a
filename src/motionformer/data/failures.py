"""Videos that could not be read: never replaced, never forgotten.

Workers send a `Failure` where a clip would have been; the process that trains or evaluates counts them, because only
it sees all of them. What happens then is a policy, chosen once.
"""

import csv
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from motionformer.data.record import Label
from motionformer.errors import FailedVideosError


@dataclass(frozen=True)
class Failure:
    """What could not be read, and the decoder's reason."""

    path: str
    reason: str
    index: int
    label: Label = None
    line: int | None = None


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
        with file.open("w", newline="", encoding="utf-8") as stream:
            writer = csv.writer(stream)
            writer.writerow(["path", "index", "line", "reason"])
            rows = sorted(self.failures.values(), key=lambda failure: (failure.path, failure.index))
            writer.writerows([failure.path, failure.index, failure.line or "", failure.reason] for failure in rows)

    def _check_one_process(self, failures: list[Failure]) -> None:
        if torch.distributed.is_available() and torch.distributed.is_initialized():
            raise FailedVideosError(
                f"no clip of a batch could be read ({failures[0].path}: {failures[0].reason}); skipping it in one of"
                " several processes would leave the others waiting for ever."
            )
