"""Fingerprints: the same data have the same one, others another, and it costs a few examples."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from motionformer.experiments.lra import Example, Splits
from motionformer.experiments.lra.examples import _HASHED, fingerprint
from motionformer.experiments.lra.listops import LENGTHS, ListOps, make_listops, read_listops, write_listops
from motionformer.experiments.lra.pathfinder import make_pathfinder


def of(examples: Sequence[Example]) -> str:
    return fingerprint(Splits(examples, examples, examples))["train data"]


def test_a_moved_folder_is_the_same_data(tmp_path: Path) -> None:
    list(write_listops(tmp_path / "a", {"train": 3, "val": 2, "test": 2}, 0, 1, (50, 100)))
    before = fingerprint(read_listops(tmp_path / "a"))
    (tmp_path / "a").rename(tmp_path / "b")
    assert fingerprint(read_listops(tmp_path / "b")) == before
    list(write_listops(tmp_path / "a", {"train": 3, "val": 2, "test": 2}, 1, 1, (50, 100)))
    after = fingerprint(read_listops(tmp_path / "a"))
    assert all(after[name] != before[name] for name in before)


def test_tokens_labels_lengths_and_numbers_all_count() -> None:
    examples = [Example((np.array([1, 2, 3], np.int16), np.array([4], np.int16)), 0)]
    others = [
        [Example((np.array([1, 2, 4], np.int16), np.array([4], np.int16)), 0)],
        [Example((np.array([1, 2], np.int16), np.array([3, 4], np.int16)), 0)],
        [Example(examples[0].texts, 1)],
        examples * 2,
    ]
    assert len({of(examples), *(of(other) for other in others)}) == 5
    assert of(list(examples)) == of(examples)


def test_made_data_are_known_by_what_makes_them() -> None:
    assert fingerprint(make_listops()) == fingerprint(make_listops(0, LENGTHS))
    made = [make_listops(), make_listops(1), make_listops(lengths=(500, 1900)), make_pathfinder(), make_pathfinder(1)]
    made.append(Splits(*(ListOps(split, 5) for split in ("train", "val", "test"))))
    for name in ("train data", "dev data", "test data"):
        assert len({fingerprint(splits)[name] for splits in made}) == 6


def test_a_large_split_is_not_read_through() -> None:
    asked = []

    class Many:
        def __len__(self) -> int:
            return 1_000_000

        def __getitem__(self, index: int) -> Example:
            asked.append(index)
            return Example((np.array([1], np.int16),), 0)

    fingerprint(Splits(Many(), [Example((np.array([1], np.int16),), 0)], [Example((np.array([1], np.int16),), 0)]))
    assert len(asked) == _HASHED
    assert (asked[0], asked[-1]) == (0, 999_999)
