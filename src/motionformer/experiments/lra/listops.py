"""ListOps: nested lists of digits under MIN, MAX, MED and SM (sum modulo 10); the class is the value, 0 … 9.

Made here by the published recipe: up to ten levels, an operator with probability ¼, 2 to 10 arguments, between 500 and
2,000 tokens. Files have the published form, `Source` and `Target` separated by a tab, every list written as nested
pairs; the parentheses of those pairs carry nothing and are not tokens.
"""

import random
import statistics
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np

from motionformer.errors import AnnotationError
from motionformer.experiments.lra.examples import Example, MadeExamples, Splits, Tokens

_OPERATORS: dict[str, Callable[[list[int]], int]] = {
    "[MIN": min,
    "[MAX": max,
    "[MED": lambda values: int(statistics.median(values)),
    "[SM": lambda values: sum(values) % 10,
}
_CLOSE = "]"
VOCABULARY = ("(padding)", *_OPERATORS, _CLOSE, *"0123456789")
_NUMBER = {word: number for number, word in enumerate(VOCABULARY)}
_MAX_DEPTH = 10
_MAX_ARGUMENTS = 10
_OPERATOR_PROBABILITY = 0.25
Lengths = tuple[int, int]
LENGTHS: Lengths = (500, 2000)
"""Made expressions are longer than the first and shorter than the second, in tokens."""
_MAX_LENGTH = LENGTHS[1]
"""What the model has places for."""
SPLITS = {"train": 96_000, "val": 2_000, "test": 2_000}
FILES = {split: f"basic_{split}.tsv" for split in SPLITS}


class ListOps(MadeExamples):
    """Expressions of the given lengths."""

    sizes = SPLITS

    def __init__(self, split: str, count: int | None = None, seed: int = 0, lengths: Lengths = LENGTHS) -> None:
        super().__init__(split, count, seed)
        self.lengths = check_lengths(lengths)

    @property
    def recipe(self) -> str:
        shortest, longest = self.lengths
        return f"{super().recipe}, {shortest} to {longest} tokens"

    def words(self, index: int) -> list[str]:
        """The expression, token by token."""
        self.check_index(index)
        return _draw_expression(random.Random(f"listops {self.seed} {self.split} {index}"), self.lengths)

    def __getitem__(self, index: int) -> Example:
        words = self.words(index)
        return Example((_encode(words),), _evaluate(words))


def make_listops(seed: int = 0, lengths: Lengths = LENGTHS) -> Splits:
    """The three splits, each example made when it is asked for."""
    return Splits(*(ListOps(split, seed=seed, lengths=lengths) for split in SPLITS))


def check_lengths(lengths: Lengths) -> Lengths:
    """`lengths`, if expressions of that many tokens are neither too alike nor too rare to be a data set."""
    shortest, longest = lengths
    if shortest < 50 or not 1.2 * shortest <= longest <= _MAX_LENGTH:
        raise ValueError(
            f"expressions of more than {shortest} and fewer than {longest} tokens cannot be made: the first is 50 or "
            f"more, the second at least 1.2 times the first and at most {_MAX_LENGTH}."
        )
    return lengths


def write_listops(
    folder: Path, counts: dict[str, int], seed: int = 0, workers: int = 1, lengths: Lengths = LENGTHS
) -> Iterator[int]:
    """Write `basic_train.tsv`, `basic_val.tsv` and `basic_test.tsv`; yields the number of examples so far.

    They take their names together, at the end.
    """
    folder.mkdir(parents=True, exist_ok=True)
    done = 0
    for split, count in counts.items():
        part = folder / f"{FILES[split]}.part"
        with part.open("w", encoding="utf-8", newline="\n") as file:
            file.write("Source\tTarget\n")
            made = ListOps(split, count, seed, lengths)
            for words in made.in_order(made.words, workers):
                file.write(f"{_to_pairs(words)}\t{_evaluate(words)}\n")
                done += 1
                yield done
    for split in counts:
        (folder / f"{FILES[split]}.part").replace(folder / FILES[split])


def read_listops(folder: Path) -> Splits:
    """The three files of a folder, as published or as written here."""
    return Splits(*(_read_tsv(folder / name) for name in FILES.values()), folder=folder)


def _read_tsv(file: Path) -> list[Example]:
    """The examples of one file. The published ones have expressions of up to 2,000 tokens; longer ones are an error."""
    if not file.is_file():
        raise AnnotationError("there is no such file; `motionformer lra make listops` writes one", file)
    examples = []
    with file.open("rb") as lines:
        for number, line in enumerate(lines, 1):
            source, _, target = _decode(line, file, number).rstrip("\r\n").partition("\t")
            if number == 1 and (source, target) == ("Source", "Target"):
                continue
            examples.append(_read_line(source, target, file, number))
    if not examples:
        raise AnnotationError("holds no example", file)
    return examples


def _decode(line: bytes, file: Path, number: int) -> str:
    try:
        return line.decode("utf-8")
    except UnicodeDecodeError as error:
        raise AnnotationError(
            f"is not UTF-8 text ({error.reason} at byte {error.start}): another encoding, or not a ListOps file",
            file,
            number,
        ) from error


def _read_line(source: str, target: str, file: Path, number: int) -> Example:
    words = [word for word in source.split() if word not in ("(", ")")]
    unknown = next((word for word in words if word not in _NUMBER or word == VOCABULARY[0]), None)
    if unknown is not None:
        raise AnnotationError(f"{unknown!r} is no ListOps token: {', '.join(VOCABULARY[1:])}", file, number)
    if not target.isdecimal() or int(target) > 9:
        raise AnnotationError(f"the target is a digit after a tab, not {target!r}", file, number)
    if not 0 < len(words) <= _MAX_LENGTH:
        raise AnnotationError(f"the expression has {len(words)} tokens; 1 to {_MAX_LENGTH} are expected", file, number)
    return Example((_encode(words),), int(target))


def _encode(words: Sequence[str]) -> Tokens:
    return np.array([_NUMBER[word] for word in words], dtype=np.int16)


def _evaluate(words: Sequence[str]) -> int:
    """The value of an expression."""
    stack: list[list[int]] = [[]]
    operators: list[str] = []
    for word in words:
        if word in _OPERATORS:
            operators.append(word)
            stack.append([])
        elif word == _CLOSE:
            values = stack.pop()
            stack[-1].append(_OPERATORS[operators.pop()](values))
        else:
            stack[-1].append(int(word))
    (value,) = stack[0]
    return value


def _to_pairs(words: Sequence[str]) -> str:
    """The published way to write an expression: `[MAX 2 9 ]` is `( ( ( [MAX 2 ) 9 ) ] )`."""
    stack: list[str] = []
    open_lists: list[str] = []
    for word in words:
        if word in _OPERATORS:
            open_lists.append(word)
            continue
        whole = word
        if word == _CLOSE:
            whole = f"( {open_lists.pop()} {_CLOSE} )"
        if open_lists:
            open_lists[-1] = f"( {open_lists[-1]} {whole} )"
        else:
            stack.append(whole)
    return " ".join(stack)


def _draw_expression(rng: random.Random, lengths: Lengths = LENGTHS) -> list[str]:
    """One expression of an allowed length: drawn again and again until the length fits, as published."""
    shortest, longest = lengths
    while True:
        words: list[str] = []
        _extend(words, 1, rng, longest)
        if shortest < len(words) < longest:
            return words


def _extend(words: list[str], depth: int, rng: random.Random, longest: int = _MAX_LENGTH) -> None:
    if len(words) >= longest:  # too long already, whatever follows
        return
    if depth >= _MAX_DEPTH or rng.random() >= _OPERATOR_PROBABILITY:
        words.append(str(int(10 * rng.random())))
        return
    words.append(list(_OPERATORS)[int(len(_OPERATORS) * rng.random())])
    for _ in range(2 + int((_MAX_ARGUMENTS - 1) * rng.random())):
        _extend(words, depth + 1, rng, longest)
    words.append(_CLOSE)
