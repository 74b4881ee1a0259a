"""Names of classes, from whatever holds them."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from motionformer import Predictor
from motionformer.errors import AnnotationError, EvaluationError
from motionformer.inference.classes import _read_labels, find_names
from motionformer.models import ModelConfig
from tests.inference.conftest import make_model

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
    assert _read_labels(tmp_path / file) == NAMES


def test_numbers_in_names_stay(tmp_path: Path) -> None:
    (tmp_path / "names.txt").write_text("100 metres\n200 metres\n")
    assert _read_labels(tmp_path / "names.txt") == ("100 metres", "200 metres")


def test_tasks(tmp_path: Path) -> None:
    expected = {"verb": ("take", "put"), "noun": ("cup", "pan", "lid")}
    (tmp_path / "both.json").write_text(json.dumps(expected))
    assert _read_labels(tmp_path / "both.json") == expected
    for task, names in expected.items():
        lines = "".join(f"{i},{name}\n" for i, name in enumerate(names))
        (tmp_path / f"EPIC_100_{task}_classes.csv").write_text("id,key\n" + lines)
    assert _read_labels(tmp_path) == expected
    config = make_model(num_classes={"noun": 3, "verb": 2}, labels=None).config
    assert find_names(config, tmp_path)[0] == expected


def test_a_data_set_names_its_classes(tmp_path: Path) -> None:
    (tmp_path / "train.csv").write_text("a.mp4,wave\nb.mp4,clap\n")
    assert _read_labels(tmp_path / "train.csv") == ("clap", "wave")
    for name in ("sit", "run"):
        (tmp_path / "set" / name).mkdir(parents=True)
        (tmp_path / "set" / name / "x.mp4").touch()
    assert _read_labels(tmp_path / "set") == ("run", "sit")


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


def words(count: int, what: str = "doing") -> list[str]:
    return [f"{what} {index:03d}" for index in range(count)]


def write_kinetics(file: Path, count: int) -> None:
    """An official csv, not in the order of its classes."""
    lines = [f"{name},id{i:09d},0,10,train\n" for i, name in enumerate(reversed(words(count)))]
    file.write_text("label,youtube_id,time_start,time_end,split\n" + "".join(lines))


def write_classnames(file: Path, count: int) -> None:
    """As `kinetics_classnames.json`: in no order, several words in quotation marks of their own."""
    file.write_text(json.dumps({f'"{name}"': i for i, name in reversed(list(enumerate(words(count))))}))


def write_something(file: Path, count: int) -> None:
    file.write_text(json.dumps({name: str(i) for i, name in reversed(list(enumerate(words(count))))}))


def write_epic(folder: Path, counts: dict[str, int]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for task, count in counts.items():
        lines = [f"{i},{name},\"['{name}']\"\n" for i, name in reversed(list(enumerate(words(count, task))))]
        (folder / f"EPIC_100_{task}_classes.csv").write_text("id,key,instances\n" + "".join(lines))


EPIC = {"verb": 97, "noun": 300}


class TestReleased:
    """Released weights name no classes; the data sets' own files do, where the user has them."""

    @pytest.fixture(autouse=True)
    def classes(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
        monkeypatch.setenv("MOTIONFORMER_CACHE", str(tmp_path / "cache"))
        folder = tmp_path / "cache" / "classes"
        folder.mkdir(parents=True)
        return folder

    @staticmethod
    def config(name: str, num_classes: int | dict[str, int]) -> ModelConfig:
        return replace(make_model(labels=None).config, num_classes=num_classes, source=name)

    @pytest.mark.parametrize(
        ("name", "num_classes", "words"),
        [
            ("k400_motionformer_224_16x4", 400, ("Kinetics-400", "kinetics_classnames.json", "classes/k400")),
            ("released", 600, ("Kinetics-600", "train.csv", "classes/k600")),
            ("ssv2_joint_224_16x4", 174, ("Something-Something V2", "labels.json", "classes/ssv2")),
            ("ek_motionformer_224_16x4", EPIC, ("EPIC-Kitchens-100", "EPIC_100_noun_classes.csv", "classes/ek")),
        ],
    )
    def test_without_names_it_says_which_file_and_where(
        self, name: str, num_classes: int | dict[str, int], words: tuple[str, ...]
    ) -> None:
        names, note = find_names(self.config(name, num_classes))
        first = next(iter(names))
        assert names[first][7] == f"{first} 7"
        assert note is not None
        assert all(word in note for word in (*words, "are numbered", "--labels"))

    @pytest.mark.parametrize(
        "file",
        ["k400.csv", "k400.json", "kinetics_classnames.json", "k400/train.csv", "k400/kinetics_classnames.json"],
    )
    def test_kinetics_in_alphabetical_order(self, file: str, classes: Path) -> None:
        (classes / file).parent.mkdir(exist_ok=True)
        (write_kinetics if file.endswith("csv") else write_classnames)(classes / file, 400)
        names, note = find_names(self.config("released", 400))
        assert list(names["class"]) == words(400)
        assert str(classes / "k") in (note or "")

    def test_something_something_by_its_numbers(self, classes: Path) -> None:
        write_something(classes / "something-something-v2-labels.json", 174)
        names, _ = find_names(self.config("ssv2_motionformer_224_16x4", 174))
        assert list(names["class"]) == words(174)
        write_something(classes / "labels.json", 174)  # the folder itself, as it is published, has no other name
        assert list(_read_labels(classes)) == words(174)

    @pytest.mark.parametrize("place", [".", "ek"])
    def test_epic_by_its_ids(self, place: str, classes: Path) -> None:
        write_epic(classes / place, EPIC)
        names, _ = find_names(self.config("ek_motionformer_224_16x4", EPIC))
        assert list(names["verb"]) == words(97, "verb")
        assert list(names["noun"]) == words(300, "noun")

    def test_a_list_that_lacks_some_is_an_error(self, classes: Path) -> None:
        write_kinetics(classes / "k400.csv", 399)
        with pytest.raises(EvaluationError, match=r"k400\.csv: holds 399 names; the model has 400 classes"):
            find_names(self.config("k400_motionformer_224_16x4", 400))
        write_epic(classes, {"verb": 97, "noun": 299})
        with pytest.raises(EvaluationError, match="holds 299 names; the model has 300 classes of noun"):
            find_names(self.config("ek_motionformer_224_16x4", EPIC))

    def test_a_list_with_numbers_names_nothing(self, tmp_path: Path) -> None:
        file = tmp_path / "train.csv"
        file.write_text("".join(f"v{i}.mp4,{i}\n" for i in range(400)))
        with pytest.raises(AnnotationError, match="by number: it has no names of classes"):
            find_names(self.config("released", 400), file)

    def test_other_models_take_nothing_from_there(self, classes: Path) -> None:
        write_kinetics(classes / "k400.csv", 400)
        names, note = find_names(self.config("mine", 400))
        assert names["class"][0] == "class 0"
        assert "Kinetics" not in (note or "")
        names, _ = find_names(self.config("k400_motionformer_224_16x4", 12))  # another head
        assert names["class"][0] == "class 0"

    def test_beside_a_checkpoint(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        model = make_model(num_classes=174, labels=None)
        model.config = replace(model.config, source="released")
        monkeypatch.setattr("motionformer.export.run.load_model", lambda source, **options: model)
        checkpoint = tmp_path / "ssv2.pyth"
        checkpoint.touch()
        write_something(tmp_path / "something-something-v2-labels.json", 174)
        assert list(Predictor.from_pretrained(checkpoint).labels["class"]) == words(174)
        given = Predictor.from_pretrained(checkpoint, labels=words(174, "given"))
        assert list(given.labels["class"]) == words(174, "given")
