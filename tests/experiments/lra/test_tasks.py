"""CIFAR-10, IMDB and AAN in the layouts they are distributed in: made small here, and the real ones where they are."""

from itertools import chain
from pathlib import Path

import numpy as np
import pytest
import torch

from motionformer.errors import AnnotationError
from motionformer.experiments.lra.examples import (
    _AAN_FILES,
    _RECORD,
    Example,
    Splits,
    _grey,
    _hold_out,
    _read_batch,
    _read_pairs,
    collate,
    read_image,
    read_retrieval,
    read_text,
    spread,
    training_batches,
)


def test_grey_of_known_colours() -> None:
    pixels = np.zeros((3, 1024), np.uint8)
    pixels[:, 0] = 255
    pixels[0, 1], pixels[1, 2], pixels[2, 3] = 255, 255, 255
    assert _grey(pixels.reshape(-1))[:5].tolist() == [256, 77, 151, 30, 1]  # white, red, green, blue, black: and 1


def test_cifar_records(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    records = rng.integers(0, 256, (20, _RECORD), dtype=np.uint8)
    records[:, 0] = np.arange(20) % 10
    records.tofile(tmp_path / "data_batch_1.bin")
    records[:3].tofile(tmp_path / "test_batch.bin")
    splits = read_image(tmp_path)
    assert [len(part) for part in (splits.train, splits.dev, splits.test)] == [18, 2, 3]
    assert [splits.dev[i].label for i in range(2)] == [9, 9]
    assert splits.train[9].label == 0  # place 9 was set aside, place 10 follows
    red, green, blue = records[10, 1:].reshape(3, 1024)[:, 500].astype(float)
    assert splits.train[9].texts[0][500] == round(0.2989 * red + 0.587 * green + 0.114 * blue) + 1


def test_broken_cifar(tmp_path: Path) -> None:
    with pytest.raises(AnnotationError, match="data_batch"):
        read_image(tmp_path)
    file = tmp_path / "data_batch_1.bin"
    file.write_bytes(bytes(_RECORD + 5))
    with pytest.raises(AnnotationError, match="no multiple of 3,073"):
        _read_batch(file)
    file.write_bytes(bytes(_RECORD) + b"\x0b" + bytes(_RECORD - 1))
    with pytest.raises(AnnotationError, match="picture 1 has label 11"):
        _read_batch(file)


def test_too_few_to_set_some_aside(tmp_path: Path) -> None:
    records = np.zeros((9, _RECORD), np.uint8)
    for name in ("data_batch_1.bin", "test_batch.bin"):
        records.tofile(tmp_path / name)
    with pytest.raises(AnnotationError, match="gives 9 training, 0 development and 9 test examples") as caught:
        read_image(tmp_path)
    assert caught.value.file == tmp_path
    assert "ten or more" in str(caught.value)
    for part in ("train/neg", "train/pos", "test/neg", "test/pos"):
        (tmp_path / part).mkdir(parents=True)
        (tmp_path / part / "0_1.txt").write_text("good")
    with pytest.raises(AnnotationError, match="gives 2 training, 0 development and 2 test examples"):
        read_text(tmp_path)


def test_no_split_is_empty() -> None:
    some = [Example((np.ones(3, np.int16),), 0)]
    for parts in (([], some, some), (some, [], some), (some, some, [])):
        with pytest.raises(AnnotationError, match="each split needs one"):
            Splits(*parts)


def test_reviews(tmp_path: Path) -> None:
    for part, count in (("train", 10), ("test", 2)):
        for name in ("neg", "pos"):
            folder = tmp_path / "aclImdb" / part / name
            folder.mkdir(parents=True)
            for i in range(count):
                (folder / f"{i}_3.txt").write_bytes(f"{part} {name} {i} é".encode())
    splits = read_text(tmp_path, length=14)
    assert [len(part) for part in (splits.train, splits.dev, splits.test)] == [18, 2, 4]
    assert {splits.dev[i].label for i in range(2)} == {0, 1}
    text = bytes((splits.test[2].texts[0] - 1).astype(np.uint8))
    assert text == "test pos 0 é".encode()[:14]
    (tmp_path / "aclImdb/train/neg/3_3.txt").write_bytes(b"")
    with pytest.raises(AnnotationError, match="is empty"):
        read_text(tmp_path)
    with pytest.raises(AnnotationError, match="layout of aclImdb"):
        read_text(tmp_path / "aclImdb" / "train")


def test_pairs_of_papers(tmp_path: Path) -> None:
    lines = '"1.0"\t"P1"\t"P2"\t"first text"\t"other"\n0\tP3\tP4\tabc\tde\n'
    for name in _AAN_FILES:
        (tmp_path / name).write_text(lines)
    splits = read_retrieval(tmp_path, length=5)
    example = splits.dev[0]
    assert example.label == 1
    assert [bytes((text - 1).astype(np.uint8)) for text in example.texts] == [b"first", b"other"]
    batch = collate([splits.train[0], splits.train[1]])
    assert batch.tokens.shape == (2, 2, 5)
    assert batch.mask.sum(dim=-1).tolist() == [[5, 5], [3, 2]]
    assert batch.labels.tolist() == [1, 0]


@pytest.mark.parametrize(
    ("line", "reason"),
    [("1\ta\tb\ttext", "4 fields"), ("2\ta\tb\tc\td", "not '2'"), ("1\ta\tb\t\td", "empty")],
)
def test_a_wrong_pair_is_named(tmp_path: Path, line: str, reason: str) -> None:
    (tmp_path / "a.tsv").write_text("0\tP3\tP4\tabc\tde\n" + line + "\n")
    with pytest.raises(AnnotationError, match=reason) as caught:
        _read_pairs(tmp_path / "a.tsv")
    assert caught.value.line == 2


def test_held_out_places_are_disjoint_and_complete() -> None:
    kept, aside = _hold_out(57)
    assert sorted(kept + aside) == list(range(57))
    assert len(aside) == 5


def test_training_order_is_complete_in_a_pass_and_can_be_entered_anywhere(tmp_path: Path) -> None:
    (tmp_path / "a.tsv").write_text("".join(f"0\ta\tb\t{chr(65 + i)}\tx\n" for i in range(12)))
    examples = _read_pairs(tmp_path / "a.tsv")

    def seen(first: int, last: int, seed: int = 0) -> list[list[int]]:
        return [batch.tokens[:, 0, 0].tolist() for batch in training_batches(examples, 4, seed, first, last)]

    whole = seen(0, 7)
    assert sorted(chain(*whole[:3])) == sorted(chain(*whole[3:6])) == list(range(66, 78))
    assert whole[:3] != whole[3:6]
    assert seen(4, 7) == whole[4:]
    assert seen(0, 7, seed=1) != whole


def test_the_real_files(shared: Path) -> None:
    cifar = read_image(shared / "data/lra")
    assert [len(part) for part in (cifar.train, cifar.dev, cifar.test)] == [9000, 1000, 2000]
    assert cifar.train[0].label == 6  # the first picture of CIFAR-10 is a frog
    imdb = read_text(shared / "data/lra")
    assert [len(part) for part in (imdb.train, imdb.dev, imdb.test)] == [900, 100, 500]
    assert sum(imdb.dev[i].label for i in range(100)) == 50
    assert max(len(imdb.train[i].texts[0]) for i in range(900)) == 4000


def test_parts_of_a_batch_have_like_lengths_and_lose_nothing() -> None:
    rng = np.random.default_rng(0)
    texts = [tuple(rng.integers(1, 9, n).astype(np.int16) for n in pair) for pair in [(3, 9), (7, 2), (1, 1), (5, 30)]]
    batch = collate([Example(pair, label) for label, pair in enumerate(texts)])
    parts = list(batch.parts(2))
    assert [part.tokens.shape for part in parts] == [(2, 2, 7), (2, 2, 30)]
    assert [label for part in parts for label in part.labels.tolist()] == [2, 1, 0, 3]
    for part in parts:
        assert torch.equal(part.mask, part.tokens != 0)
        for row, label in zip(part.tokens, part.labels.tolist(), strict=True):
            for tokens, text in zip(row, texts[label], strict=True):
                assert tokens[tokens != 0].tolist() == text.tolist()


def test_a_part_of_a_split_is_spread_over_it() -> None:
    """Files often hold class after class."""
    examples = [Example((np.array([1], np.int16),), label) for label in (0,) * 6 + (1,) * 6]
    assert [example.label for example in (spread(examples, 4)[i] for i in range(4))] == [0, 0, 1, 1]
    assert len(spread(examples, 99)) == 12
    assert [spread(examples, 99)[i] for i in range(12)] == examples
