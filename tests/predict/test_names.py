"""Names of classes, from whatever holds them."""

import json
from pathlib import Path

import pytest

from motionformer.errors import AnnotationError, EvaluationError
from motionformer.predict.names import find_names, read_labels
from tests.predict.conftest import make_model

NAMES = ("wave", "clap", "jump", "run", "sit")


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("plain.txt", "wave\nclap\njump\nrun\nsit\n"),
        ("classInd.txt", "2 clap\n1 wave\n3 jump\n4 run\n5 sit\n"),
        ("from_zero.txt", "0 wave\n1 clap\n2 jump\n3 run\n4 sit\n"),
        ("list.json", json.dumps(NAMES)),
        ("labels.json", json.dumps({name: str(index) for index, name in enumerate(NAMES)})),
        ("names.csv", "id,name\n1,clap\n0,wave\n2,jump\n4,sit\n3,run\n"),
        ("keys.csv", "id,key,instances\n" + "".join(f"{i},{name},[]\n" for i, name in enumerate(NAMES))),
    ],
)
def test_files(file: str, text: str, tmp_path: Path) -> None:
    (tmp_path / file).write_text(text)
    assert read_labels(tmp_path / file) == NAMES


def test_numbers_in_names_stay(tmp_path: Path) -> None:
    (tmp_path / "names.txt").write_text("100 metres\n200 metres\n")
    assert read_labels(tmp_path / "names.txt") == ("100 metres", "200 metres")


def test_tasks(tmp_path: Path) -> None:
    expected = {"verb": ("take", "put"), "noun": ("cup", "pan", "lid")}
    (tmp_path / "both.json").write_text(json.dumps(expected))
    assert read_labels(tmp_path / "both.json") == expected
    for task, names in expected.items():
        lines = "".join(f"{i},{name}\n" for i, name in enumerate(names))
        (tmp_path / f"EPIC_100_{task}_classes.csv").write_text("id,key\n" + lines)
    assert read_labels(tmp_path) == expected
    config = make_model(num_classes={"noun": 3, "verb": 2}, labels=None).config
    assert find_names(config, tmp_path)[0] == expected


def test_a_data_set_names_its_classes(tmp_path: Path) -> None:
    (tmp_path / "train.csv").write_text("a.mp4,wave\nb.mp4,clap\n")
    assert read_labels(tmp_path / "train.csv") == ("clap", "wave")
    for name in ("sit", "run"):
        (tmp_path / "set" / name).mkdir(parents=True)
        (tmp_path / "set" / name / "x.mp4").touch()
    assert read_labels(tmp_path / "set") == ("run", "sit")


def test_the_weights_name_them_unless_told(tmp_path: Path) -> None:
    config = make_model().config
    assert find_names(config) == ({"class": NAMES}, None)
    assert find_names(config, list("abcde")) == ({"class": tuple("abcde")}, None)
    names, note = find_names(make_model(labels=None).config)
    assert names["class"][3] == "class 3"
    assert "--labels" in note


def test_refuses_names_that_do_not_fit(tmp_path: Path) -> None:
    (tmp_path / "two.txt").write_text("a\nb\n")
    with pytest.raises(EvaluationError, match=r"two\.txt: holds 2 names; the model has 5 classes"):
        find_names(make_model().config, tmp_path / "two.txt")
    with pytest.raises(EvaluationError, match="names classes of class; the model predicts verb and noun"):
        find_names(make_model(num_classes={"verb": 2, "noun": 2}, labels=None).config, tmp_path / "two.txt")
    with pytest.raises(AnnotationError, match="no such file"):
        find_names(make_model().config, tmp_path / "nowhere.txt")
