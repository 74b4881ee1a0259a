"""Tasks and their examples, all in one form: one or two sequences of token numbers and a class; the readers of those
tasks that are not made here.

Number 0 is padding and nothing else, in every task. A batch is padded to its own longest sequence: what is padding is
masked everywhere, so the length it is padded to changes no result.

Text is the Large Movie Review data set, read byte by byte: is the review positive? `train/{neg,pos}` and
`test/{neg,pos}` hold one file per review. The published comparison chose its checkpoints on the test set; here one
training review in ten, by name, is set aside for it, so that the test set is seen once.

Retrieval: do two papers of the ACL Anthology cite each other? Both are read byte by byte, 4,000 bytes each, from
`new_aan_pairs.{train,eval,test}.tsv` as distributed: each line label, two paper numbers, two texts.

Image is CIFAR-10 from its own binary files, grey, the 1,024 pixels of a picture in a row. A record is a byte of label
and 3 × 1,024 bytes of red, green and blue. Of each ten training pictures the last is set aside for development (5,000
of 50,000, as published; which ones is our choice).
"""

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from multiprocessing import get_context
from pathlib import Path
from typing import ClassVar, NamedTuple, Protocol, TypeVar, runtime_checkable

import numpy as np
import torch
from jaxtyping import Bool, Int64
from numpy.typing import NDArray
from torch import Tensor

from motionformer.errors import AnnotationError

Tokens = NDArray[np.int16]
_T = TypeVar("_T")


class Example(NamedTuple):
    """`texts` holds one sequence, or the two documents of Retrieval."""

    texts: tuple[Tokens, ...]
    label: int


@runtime_checkable
class Examples(Protocol):
    """Anything with a length that gives an `Example` by index: a list, or a class that generates them on demand."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: int, /) -> Example: ...


class MadeExamples(ABC):
    """Examples that are generated on demand: item i depends on the seed, the split and i only."""

    sizes: ClassVar[Mapping[str, int]]
    """As published: examples of each split."""

    def __init__(self, split: str, count: int | None = None, seed: int = 0) -> None:
        if split not in self.sizes:
            raise ValueError(f"split is one of {', '.join(self.sizes)}; not {split!r}.")
        self.split, self.seed = split, seed
        self.count = self.sizes[split] if count is None else count

    def __len__(self) -> int:
        return self.count

    @abstractmethod
    def __getitem__(self, index: int, /) -> Example: ...

    @property
    def recipe(self) -> str:
        """Everything that the examples depend on, their number included."""
        return f"{self.count} made, {self.split}, seed {self.seed}"

    def check_index(self, index: int) -> None:
        """An `IndexError` ends a `for` loop over made examples, so there must be one."""
        if not 0 <= index < self.count:
            raise IndexError(f"example {index} of {self.count}.")

    def in_order(self, make: Callable[[int], _T], workers: int) -> Iterator[_T]:
        """`make(0)` … `make(count − 1)`. The result does not depend on the number of workers."""
        if workers == 1:
            yield from map(make, range(self.count))
            return
        with get_context("spawn").Pool(workers) as pool:
            yield from pool.imap(make, range(self.count), chunksize=16)


@dataclass(frozen=True)
class Batch:
    """`w` sequences per example (1, or 2 for Retrieval), padded; `mask` is True for real tokens."""

    tokens: Int64[Tensor, "b w n"]
    mask: Bool[Tensor, "b w n"]
    labels: Int64[Tensor, "b"]

    def to(self, device: torch.device) -> "Batch":
        return Batch(self.tokens.to(device), self.mask.to(device), self.labels.to(device))

    def parts(self, size: int) -> Iterator["Batch"]:
        """The same examples, `size` of like length at a time, each part padded to its own longest only."""
        lengths = self.mask.sum(dim=-1).amax(dim=-1)
        for rows in lengths.argsort(stable=True).split(size):
            longest = max(1, int(lengths[rows].max()))
            yield Batch(self.tokens[rows, :, :longest], self.mask[rows, :, :longest], self.labels[rows])


@dataclass(frozen=True)
class Splits:
    """Training, development (chooses the checkpoint) and test examples; none of the three is empty.

    No example is in two of them.
    """

    train: Examples
    dev: Examples
    test: Examples
    folder: Path | None = field(default=None, kw_only=True)
    """Where they were read."""

    def __post_init__(self) -> None:
        train, dev, test = len(self.train), len(self.dev), len(self.test)
        if not train or not dev or not test:
            raise AnnotationError(
                f"gives {train} training, {dev} development and {test} test examples, and each split needs one; where "
                "development is a tenth of the training examples, give ten or more",
                self.folder,
            )


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


def collate(examples: Sequence[Example]) -> Batch:
    """Examples as one padded batch."""
    longest = max(1, *(len(text) for example in examples for text in example.texts))
    tokens = torch.zeros(len(examples), len(examples[0].texts), longest, dtype=torch.int64)
    for row, example in enumerate(examples):
        for column, text in enumerate(example.texts):
            tokens[row, column, : len(text)] = torch.from_numpy(text.astype(np.int64))
    return Batch(tokens, tokens != 0, torch.tensor([example.label for example in examples]))


def training_batches(examples: Examples, batch: int, seed: int, first_step: int, last_step: int) -> Iterator[Batch]:
    """Batches of steps `first_step` … `last_step` − 1: shuffled passes that depend on the seed and the pass alone.

    A run that is resumed at a step gets the same batches.
    """
    batch = min(batch, len(examples))
    in_a_pass = len(examples) // batch
    order: NDArray[np.int64] | None = None
    for step in range(first_step, last_step):
        epoch, index = divmod(step, in_a_pass)
        if order is None or index == 0:
            order = np.random.default_rng((seed, epoch)).permutation(len(examples))
        yield collate([examples[int(i)] for i in order[index * batch : (index + 1) * batch]])


def every_batch(examples: Examples, batch: int) -> Iterator[Batch]:
    """All examples once, in order."""
    for start in range(0, len(examples), batch):
        yield collate([examples[i] for i in range(start, min(start + batch, len(examples)))])


def _hold_out(count: int, every: int = 10) -> tuple[list[int], list[int]]:
    """Places of `count` training examples: those that stay, and one in `every` set aside for development."""
    return [i for i in range(count) if i % every != every - 1], list(range(every - 1, count, every))


class Picked:
    """Some of a sequence's examples, by index, generated on demand."""

    def __init__(self, examples: Examples, indices: Sequence[int]) -> None:
        self.examples, self.indices = examples, indices

    def __len__(self) -> int:
        return len(self.indices)

    def __getitem__(self, index: int) -> Example:
        return self.examples[self.indices[index]]


def spread(examples: Examples, count: int) -> Examples:
    """`count` of the examples, evenly spread: files often hold class after class, and the first would be one class."""
    count = min(count, len(examples))
    return Picked(examples, [i * len(examples) // count for i in range(count)])


def _as_bytes(text: bytes, length: int) -> Tokens:
    """The first `length` bytes, each one higher than it is: 0 is padding."""
    return np.frombuffer(text[:length], np.uint8).astype(np.int16) + 1


_HASHED = 64
"""Examples of a split that are hashed, from the first to the last at equal distances."""


def fingerprint(splits: Splits) -> dict[str, str]:
    parts = {"train data": splits.train, "dev data": splits.dev, "test data": splits.test}
    return {name: part.recipe if isinstance(part, MadeExamples) else _hash(part) for name, part in parts.items()}


def _hash(examples: Examples) -> str:
    digest = sha256()
    for index in np.linspace(0, len(examples) - 1, min(_HASHED, len(examples))).astype(int).tolist():
        texts, label = examples[index]
        digest.update(f"{label} {[len(text) for text in texts]}".encode())
        for text in texts:
            digest.update(text.astype("<i2").tobytes())
    return f"{len(examples)} examples ({digest.hexdigest()[:12]})"


_AAN_FILES = ("new_aan_pairs.train.tsv", "new_aan_pairs.eval.tsv", "new_aan_pairs.test.tsv")
_AAN_LABEL = re.compile(r"[01](\.0)?")


def read_retrieval(folder: Path, length: int = 4000) -> Splits:
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
            first, second = (_as_bytes(text, length) for text in texts)
            examples.append(Example((first, second), int(label[0])))
    if not examples:
        raise AnnotationError("holds no pair", file)
    return examples


def _unquote(field: bytes) -> bytes:
    return field[1:-1] if len(field) > 1 and field[:1] == field[-1:] == b'"' else field


_REVIEWS = ("neg", "pos")


def read_text(folder: Path, length: int = 4000) -> Splits:
    """Reviews of a folder, or of `aclImdb` in it, cut after `length` bytes."""
    inner = folder / "aclImdb"
    folder = inner if inner.is_dir() else folder
    train = _read_reviews(folder / "train", length)
    kept, aside = _hold_out(len(train))
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
            examples.append(Example((_as_bytes(text, length),), label))
    return examples


_PIXELS = 32 * 32
_RECORD = 1 + 3 * _PIXELS
_BRIGHTNESS = np.array((0.2989, 0.5870, 0.1140))
"""Brightness of red, green and blue (ITU-R 601)."""


def read_image(folder: Path) -> Splits:
    """`data_batch_*.bin` and `test_batch.bin` of a folder, or of `cifar-10-batches-bin` in it."""
    inner = folder / "cifar-10-batches-bin"
    folder = inner if inner.is_dir() else folder
    files = sorted(folder.glob("data_batch_*.bin"))
    if not files:
        raise AnnotationError("holds no data_batch_*.bin: CIFAR-10's binary version is expected", folder)
    train = [example for file in files for example in _read_batch(file)]
    kept, aside = _hold_out(len(train))
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
