"""The five tasks: sizes, how long each is trained in the published comparison, and the readers of those made elsewhere.

Text is the Large Movie Review data set, read byte by byte: is the review positive? `train/{neg,pos}` and
`test/{neg,pos}` hold one file a review. The published comparison chose its checkpoints on the test set; here one
training review in ten, by name, is set aside for it, so that the test set is seen once.

Retrieval: do two papers of the ACL Anthology cite each other? Both are read byte by byte, 4,000 bytes each, from
`new_aan_pairs.{train,eval,test}.tsv` as distributed: each line label, two paper numbers, two texts.

Image is CIFAR-10 from its own binary files, grey, the 1,024 pixels of a picture in a row. A record is a byte of label
and 3 × 1,024 bytes of red, green and blue. Of each ten training pictures the last is set aside for development (5,000
of 50,000, as published; which ones is our choice).
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from motionformer.errors import AnnotationError
from motionformer.experiments.lra.examples import Example, Picked, Splits, as_bytes, hold_out
from motionformer.experiments.lra.listops import VOCABULARY, make_listops, read_listops
from motionformer.experiments.lra.pathfinder import make_pathfinder, read_pathfinder

_BYTES = 257
"""256 values and padding."""


@dataclass(frozen=True)
class Task:
    """What a task is, and batch, steps and warm-up steps of its training."""

    name: str
    length: int
    vocabulary: int
    num_classes: int
    batch: int
    steps: int
    warmup: int
    read: Callable[[Path], Splits]
    make: Callable[[int], Splits] | None = None
    """The splits from a seed, for tasks that are generated."""
    num_texts: int = 1

    def warmup_of(self, steps: int) -> int:
        """Warm-up steps of a run of another length: the same share."""
        return max(1, round(self.warmup / self.steps * steps))


_AAN_FILES = ("new_aan_pairs.train.tsv", "new_aan_pairs.eval.tsv", "new_aan_pairs.test.tsv")
_AAN_LABEL = re.compile(r"[01](\.0)?")


def _read_aan(folder: Path, length: int = 4000) -> Splits:
    """The three files of a folder; `eval` is the development split."""
    return Splits(*(_read_pairs(folder / name, length) for name in _AAN_FILES), folder=folder)


def _read_pairs(file: Path, length: int = 4000) -> list[Example]:
    if not file.is_file():
        raise AnnotationError(f"there is no such file; expected {', '.join(_AAN_FILES)}", file)
    examples = []
    with file.open("rb") as lines:
        for number, line in enumerate(lines, 1):
            fields = line.rstrip(b"\r\n").split(b"\t")
            if len(fields) != 5:
                raise AnnotationError(
                    f"has {len(fields)} fields; expected 5: label, number, number, text, text", file, number
                )
            label = _unquote(fields[0]).decode("utf-8", "replace")
            if not _AAN_LABEL.fullmatch(label):
                raise AnnotationError(f"the label is 0 or 1, not {label!r}", file, number)
            texts = [_unquote(field) for field in fields[3:]]
            if not all(texts):
                raise AnnotationError("one of the two texts is empty", file, number)
            first, second = (as_bytes(text, length) for text in texts)
            examples.append(Example((first, second), int(label[0])))
    if not examples:
        raise AnnotationError("holds no pair", file)
    return examples


def _unquote(field: bytes) -> bytes:
    return field[1:-1] if len(field) > 1 and field[:1] == field[-1:] == b'"' else field


_REVIEWS = ("neg", "pos")


def _read_imdb(folder: Path, length: int = 4000) -> Splits:
    """Reviews of a folder, or of `aclImdb` in it, cut after `length` bytes."""
    inner = folder / "aclImdb"
    folder = inner if inner.is_dir() else folder
    train = _read_reviews(folder / "train", length)
    kept, aside = hold_out(len(train))
    return Splits(Picked(train, kept), Picked(train, aside), _read_reviews(folder / "test", length), folder=folder)


def _read_reviews(folder: Path, length: int) -> list[Example]:
    examples = []
    for label, name in enumerate(_REVIEWS):
        files = sorted((folder / name).glob("*.txt"), key=lambda file: (len(file.stem), file.stem))
        if not files:
            raise AnnotationError("holds no review (*.txt): the layout of aclImdb is expected", folder / name)
        for file in files:
            text = file.read_bytes()
            if not text:
                raise AnnotationError("is empty", file)
            examples.append(Example((as_bytes(text, length),), label))
    return examples


_PIXELS = 32 * 32
_RECORD = 1 + 3 * _PIXELS
_BRIGHTNESS = np.array((0.2989, 0.5870, 0.1140))
"""Brightness of red, green and blue (ITU-R 601)."""


def _read_cifar(folder: Path) -> Splits:
    """`data_batch_*.bin` and `test_batch.bin` of a folder, or of `cifar-10-batches-bin` in it."""
    inner = folder / "cifar-10-batches-bin"
    folder = inner if inner.is_dir() else folder
    files = sorted(folder.glob("data_batch_*.bin"))
    if not files:
        raise AnnotationError("holds no data_batch_*.bin: CIFAR-10's binary version is expected", folder)
    train = [example for file in files for example in _read_batch(file)]
    kept, aside = hold_out(len(train))
    return Splits(Picked(train, kept), Picked(train, aside), _read_batch(folder / "test_batch.bin"), folder=folder)


def _read_batch(file: Path) -> list[Example]:
    if not file.is_file():
        raise AnnotationError("there is no such file", file)
    data = np.fromfile(file, np.uint8)
    if data.size == 0 or data.size % _RECORD:
        raise AnnotationError(f"has {data.size:,} bytes, no multiple of {_RECORD:,}: cut or another format", file)
    records = data.reshape(-1, _RECORD)
    wrong = np.flatnonzero(records[:, 0] > 9)
    if wrong.size:
        raise AnnotationError(f"picture {wrong[0]} has label {records[wrong[0], 0]}; CIFAR-10 has 0 to 9", file)
    return [Example((_grey(record[1:]),), int(record[0])) for record in records]


def _grey(pixels: NDArray[np.uint8]) -> NDArray[np.int16]:
    """3 × 1,024 bytes → 1,024 brightnesses, 1 to 256."""
    bright = np.rint(_BRIGHTNESS @ pixels.reshape(3, _PIXELS))
    return bright.astype(np.int16) + 1


TASKS = {
    task.name: task
    for task in (
        Task("listops", 2000, len(VOCABULARY), 10, 32, 5_000, 1_000, read_listops, make_listops),
        Task("text", 4000, _BYTES, 2, 32, 20_000, 8_000, _read_imdb),
        Task("retrieval", 4000, _BYTES, 2, 32, 30_000, 800, _read_aan, num_texts=2),
        Task("image", 1024, _BYTES, 10, 256, 35_000, 175, _read_cifar),
        Task("pathfinder", 1024, _BYTES, 2, 256, 62_400, 312, read_pathfinder, make_pathfinder),
    )
}


def find_task(name: str) -> Task:
    if name not in TASKS:
        raise ValueError(f"the task is one of {', '.join(TASKS)}; not {name!r}.")
    return TASKS[name]
