"""ListOps: values against a recursion nobody can misread, the published limits, and files that come back."""

import ast
import random
import statistics
from pathlib import Path

import pytest

from motionformer.errors import AnnotationError
from motionformer.experiments.lra.listops import (
    _NUMBER,
    _OPERATORS,
    LENGTHS,
    ListOps,
    _draw_expression,
    _encode,
    _evaluate,
    _read_tsv,
    _to_pairs,
    read_listops,
    write_listops,
)

HEAD = "Source\tTarget\n"


def literal_value(words: list[str]) -> int:
    """The expression as a Python literal, evaluated by recursion."""
    text = " ".join(words)
    for name in _OPERATORS:
        text = text.replace(name + " ", f"('{name[1:]}', ")
    text = text.replace("]", ")").replace(" ", ", ").replace(",,", ",")

    def value(node: object) -> int:
        if isinstance(node, int):
            return node
        name, *rest = node  # type: ignore[misc]
        values = [value(one) for one in rest]
        if name == "SM":
            return sum(values) % 10
        return {"MIN": min, "MAX": max, "MED": lambda v: int(statistics.median(v))}[name](values)

    return value(ast.literal_eval(text))


def test_known_values() -> None:
    assert _evaluate(["[MAX", "2", "9", "[MIN", "4", "7", "]", "0", "]"]) == 9
    assert _evaluate(["[SM", "7", "8", "9", "]"]) == 4
    assert _evaluate(["[MED", "1", "2", "7", "8", "]"]) == 4  # 4.5 is cut, not rounded
    assert _evaluate(["5"]) == 5


def test_values_equal_the_recursion_and_lengths_are_allowed() -> None:
    operators, depths = set(), []
    for index in range(30):
        words = ListOps("train").words(index)
        assert LENGTHS[0] < len(words) < LENGTHS[1]
        assert _evaluate(words) == literal_value(words)
        depth = deepest = 0
        for at, word in enumerate(words):
            depth += (word in _OPERATORS) - (word == "]")
            deepest = max(deepest, depth)
            if word in _OPERATORS:
                operators.add(word)
                assert 2 <= arguments(words, at) <= 10
        depths.append(deepest)
    assert operators == set(_OPERATORS)
    assert max(depths) == 9  # an operator stands above the tenth level, never on it


def test_shorter_ones_can_be_made() -> None:
    made = ListOps("train", 40, lengths=(100, 200))
    assert all(100 < len(made.words(index)) < 200 for index in range(40))
    for wrong in ((20, 100), (100, 110), (500, 3000)):
        with pytest.raises(ValueError, match=f"more than {wrong[0]} and fewer than {wrong[1]} tokens cannot be made"):
            ListOps("train", 40, lengths=wrong)


def arguments(words: list[str], at: int) -> int:
    depth, count = 0, 0
    for word in words[at + 1 :]:
        if word == "]" and depth == 0:
            return count
        count += depth == 0
        depth += (word in _OPERATORS) - (word == "]")
    raise AssertionError("not closed")


def test_one_node_in_four_is_an_operator() -> None:
    """Over unfiltered draws the probability shows: levels 1 to 9 may hold one."""
    from motionformer.experiments.lra import listops

    rng, operators, nodes = random.Random(0), 0, 0
    for _ in range(4000):
        words: list[str] = []
        listops._extend(words, 9, rng)  # one level above the last: an operator has digits only
        operators += words[0] in _OPERATORS
        nodes += 1
    assert 0.22 < operators / nodes < 0.28


def test_an_example_depends_on_seed_split_and_number_only() -> None:
    assert ListOps("train", 10).words(3) == ListOps("train", 20).words(3)
    others = [ListOps("train", 10).words(4), ListOps("val", 10).words(3), ListOps("train", 10, seed=1).words(3)]
    assert all(ListOps("train", 10).words(3) != other for other in others)


def test_pairs_are_the_published_form() -> None:
    assert _to_pairs(["[MAX", "2", "9", "]"]) == "( ( ( [MAX 2 ) 9 ) ] )"
    assert _to_pairs(["[SM", "1", "[MIN", "2", "3", "]", "]"]) == "( ( ( [SM 1 ) ( ( ( [MIN 2 ) 3 ) ] ) ) ] )"
    words = _draw_expression(random.Random(1))
    assert [word for word in _to_pairs(words).split() if word not in "()"] == words


def test_several_processes_keep_the_order() -> None:
    made = ListOps("val", 50)
    assert list(made.in_order(abs, 2)) == list(made.in_order(abs, 1)) == list(range(50))


def test_written_files_hold_what_is_made(tmp_path: Path) -> None:
    counts = {"train": 5, "val": 2, "test": 3}
    assert list(write_listops(tmp_path, counts, 7)) == list(range(1, 11))
    splits = read_listops(tmp_path)
    for name, split in (("train", splits.train), ("val", splits.dev), ("test", splits.test)):
        made = ListOps(name, counts[name], 7)
        assert len(split) == counts[name]
        for index in range(len(split)):
            assert split[index].label == made[index].label
            assert split[index].texts[0].tolist() == made[index].texts[0].tolist()


def test_tokens_have_numbers_of_their_own_and_none_is_padding() -> None:
    numbers = _encode([*_OPERATORS, "]", *"0123456789"]).tolist()
    assert len(set(numbers)) == 15
    assert 0 not in numbers
    assert _NUMBER["]"] in numbers


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("( [MAX 2 ) 3 ) foo )\t3", "'foo' is no ListOps token"),
        ("( [MAX 2 ) ] )\tx", "not 'x'"),
        ("( [MAX 2 ) ] )", "not ''"),
        ("\t3", "0 tokens"),
        ("1 " * 2001 + "\t3", "2001 tokens"),
    ],
)
def test_a_wrong_line_is_named(tmp_path: Path, line: str, reason: str) -> None:
    file = tmp_path / "basic_train.tsv"
    file.write_text(HEAD + "( [MAX 2 ) ] )\t2\n" + line + "\n")
    with pytest.raises(AnnotationError, match=reason) as caught:
        _read_tsv(file)
    assert caught.value.line == 3


def test_a_file_that_is_not_utf8_is_named(tmp_path: Path) -> None:
    file = tmp_path / "basic_train.tsv"
    file.write_bytes(HEAD.encode() + b"( [MAX 2 ) ] )\t2\n( [MAX \xff ) ] )\t2\n")
    with pytest.raises(AnnotationError, match=r"not UTF-8 text .* at byte 7") as caught:
        _read_tsv(file)
    assert caught.value.line == 3
    file.write_text(HEAD, encoding="utf-16")
    with pytest.raises(AnnotationError, match="not UTF-8 text"):
        _read_tsv(file)


def test_lines_may_end_in_any_system_s_way(tmp_path: Path) -> None:
    (tmp_path / "a.tsv").write_bytes(HEAD.replace("\n", "\r\n").encode() + b"( [MAX 2 ) ] )\t2\r\n5\t5")
    assert [example.label for example in _read_tsv(tmp_path / "a.tsv")] == [2, 5]


def test_missing_and_empty_files(tmp_path: Path) -> None:
    with pytest.raises(AnnotationError, match="lra make listops"):
        read_listops(tmp_path)
    (tmp_path / "a.tsv").write_text(HEAD)
    with pytest.raises(AnnotationError, match="no example"):
        _read_tsv(tmp_path / "a.tsv")
