"""Names of a model's classes (from the weights, a file, or the data set's own files), and how they match the data's."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from motionformer.data import open_dataset
from motionformer.data.lists import (
    WHOLE_NUMBER,
    names_by_index,
    original_name,
    read_class_names,
    read_json,
    read_lines,
    read_rows,
)
from motionformer.data.published import EPIC_CLASS_FILES, SOMETHING_LABELS, UCF101_CLASSES
from motionformer.data.record import ClassNames
from motionformer.errors import AnnotationError, EvaluationError
from motionformer.inference.scorer import SINGLE
from motionformer.logging import show_count, show_some
from motionformer.models import ModelConfig
from motionformer.weights.download import cache_folder
from motionformer.weights.released import RELEASED

Names = dict[str, tuple[str, ...]]
"""Names of the classes of every task; a model with one head has the task "class"."""

LabelSource = str | Path | Sequence[str] | Mapping[str, Sequence[str]]
_KINETICS_LABELS = ("kinetics_classnames.json",)


@dataclass(frozen=True)
class _DatasetClasses:
    """Where a data set of released weights keeps the names of its classes. Its lists are its publishers': none is
    copied into this package."""

    title: str
    num_classes: int | dict[str, int]
    files: tuple[str, ...]
    """Of the data set, as they are called where they are published."""
    where: str

    def find(self, folder: Path) -> Path | None:
        """The data set's own file in a folder; the folder where it has one a task."""
        if isinstance(self.num_classes, Mapping):
            return folder if all((folder / name).is_file() for name in self.files) else None
        return next((folder / name for name in self.files if (folder / name).is_file()), None)


_KINETICS = "https://storage.googleapis.com/deepmind-media/Datasets"
_DATASETS: dict[str, _DatasetClasses] = {
    "k400": _DatasetClasses(
        "Kinetics-400",
        400,
        _KINETICS_LABELS,
        "https://dl.fbaipublicfiles.com/pyslowfast/dataset/class_names/kinetics_classnames.json, or the train.csv in"
        f" {_KINETICS}/kinetics400.tar.gz",
    ),
    "k600": _DatasetClasses("Kinetics-600", 600, (), f"the train.csv in {_KINETICS}/kinetics600.tar.gz"),
    "ssv2": _DatasetClasses(
        "Something-Something V2",
        174,
        SOMETHING_LABELS[:1],
        "the labels.json (something-something-v2-labels.json) of the data set's download of labels",
    ),
    "ek": _DatasetClasses(
        "EPIC-Kitchens-100",
        {"verb": 97, "noun": 300},
        tuple(names[0] for names in EPIC_CLASS_FILES.values()),
        "EPIC_100_verb_classes.csv and EPIC_100_noun_classes.csv of"
        " https://github.com/epic-kitchens/epic-kitchens-100-annotations, in one folder",
    ),
}
"""By the prefix of the released models."""


def find_names(
    config: ModelConfig, labels: LabelSource | None = None, weights: str | Path | None = None
) -> tuple[Names, str | None]:
    """The names of a model's classes.

    Args:
        config: of the model; its own names are taken where nothing else is given.
        labels: names, or a file or folder that holds them (`_read_labels`).
        weights: where the model is from; a released checkpoint may have the data set's own file beside it.

    Returns:
        The names by task, and a note: from which of the user's files the names of a released model are, or how to get
        them where there are none and classes are numbered.

    Raises:
        EvaluationError: the names do not fit the model; it has no classes.
        AnnotationError: a file that holds no names.
    """
    sizes = _sizes(config)
    if labels is None and weights is not None:
        labels = _labels_beside(weights, config)
    if labels is not None:
        return _fitting(_by_task(_read_labels(labels)), sizes, labels), None
    if own := _own_names(config):
        return own, None
    key = _dataset_of(config)
    found = None if key is None else _find_kept(key)
    if key is not None and found is not None:
        names = _fitting(_by_task(_read_labels(found)), sizes, found)
        return names, f"names of the classes ({_DATASETS[key].title}) are from {found}."
    return _numbered(sizes), "the weights do not name their classes, so they are numbered; " + _how_to_get(key)


def _labels_beside(source: str | Path, config: ModelConfig) -> Path | None:
    """The data set's own file of class names beside a released checkpoint that is given by its path."""
    path, key = Path(source).expanduser(), _dataset_of(config)
    if key is None or config.labels is not None or not path.is_file():
        return None
    return _DATASETS[key].find(path.parent)


def known_labels(source: str | Path, config: ModelConfig) -> tuple[str, ...] | None:
    """The names of the classes of a single head: in the weights, or of released ones in the data set's own file."""
    if config.labels is not None or isinstance(config.num_classes, Mapping):
        return config.labels
    beside = _labels_beside(source, config)
    key = _dataset_of(config)
    if beside is None and (key is None or _find_kept(key) is None):
        return None
    return tuple(find_names(config, beside)[0][SINGLE])


def match_classes(
    config: ModelConfig | None, names: ClassNames
) -> tuple[dict[str, list[int]], dict[str, tuple[str, ...]]]:
    """For every task, which output of the model is the data's class 0, 1, …; and the names of these classes.

    By name where both know names, by number otherwise, also for a model without a configuration. Data without classes
    takes the model's.
    """
    if not isinstance(config, ModelConfig):
        wanted = _by_task(names)
        return {task: list(range(len(of_task))) for task, of_task in wanted.items()}, wanted
    sizes, wanted = _sizes(config), _by_task(names)
    if wanted == {SINGLE: ()}:
        wanted = _own_names(config) or _numbered(sizes)
    if set(wanted) != set(sizes):
        raise EvaluationError(
            f"the model predicts {' and '.join(sizes)}, the data is labelled by {' and '.join(wanted)}."
        )
    for task, size in sizes.items():
        if size != len(wanted[task]):
            what = "" if task == SINGLE else f" of {task}"
            raise EvaluationError(
                f"the model has {show_count(size, 'class')}{what},"
                f" the data has {len(wanted[task])} ({show_some(wanted[task])})." + _names_hint(config)
            )
    columns = {task: list(range(size)) for task, size in sizes.items()}
    if config.labels is not None and SINGLE in wanted:
        columns[SINGLE] = _by_name(config.labels, wanted[SINGLE])
    return columns, wanted


def order_note(config: ModelConfig, names: ClassNames) -> str | None:
    """A note where only the order tells which output is which class."""
    if config.labels is not None or not names:
        return None
    shown = "; ".join(f"{show_some(of_task)}" for of_task in _by_task(names).values())
    return f"note: the model does not name its classes; its outputs are taken to be in the data's order: {shown}"


def _read_labels(source: LabelSource) -> ClassNames:
    """From names, or from a file or folder that holds them.

    A text file has a name a line, numbered or not (`classInd.txt` of UCF101); JSON a list, an object from name to
    number (`labels.json` of Something-Something), or one list a task; csv the columns id and name (or key: EPIC). Of a
    data set's folder, and of a list of videos, the classes are taken.
    """
    if isinstance(source, Mapping):
        return {task: read_class_names(list(names)) for task, names in source.items()}
    if not isinstance(source, (str, Path)):
        return read_class_names(source)
    path = Path(source)
    if not path.exists():
        raise AnnotationError("no such file or folder of labels.", path)
    if path.is_dir():
        return _from_folder(path)
    kind = path.suffix.lower()
    if kind == ".json":
        value = read_json(path)
        if isinstance(value, dict) and value and all(isinstance(names, list) for names in value.values()):
            return {str(task): read_class_names(names) for task, names in value.items()}
    if kind == ".csv":
        return _from_csv(path)
    return read_class_names(path) if kind == ".json" else _from_text(path)


def _by_task(names: ClassNames) -> dict[str, tuple[str, ...]]:
    """Names of the classes of every task."""
    return {task: tuple(of) for task, of in names.items()} if isinstance(names, Mapping) else {SINGLE: tuple(names)}


def _sizes(config: ModelConfig) -> dict[str, int]:
    """Numbers of classes by task."""
    sizes = config.num_classes if isinstance(config.num_classes, Mapping) else {SINGLE: config.num_classes}
    if not all(sizes.values()):
        raise EvaluationError("the model has no classes (num_classes=0) to score; use `motionformer features` instead.")
    return dict(sizes)


def _own_names(config: ModelConfig) -> Names | None:
    single = not isinstance(config.num_classes, Mapping)
    return {SINGLE: tuple(config.labels)} if single and config.labels is not None else None


def _numbered(sizes: Mapping[str, int]) -> Names:
    return {task: tuple(f"{task} {index}" for index in range(size)) for task, size in sizes.items()}


def _classes_folder() -> Path:
    """Where names of released models' classes are looked for: `classes` in the folder of downloaded weights."""
    return cache_folder() / "classes"


def _find_kept(key: str) -> Path | None:
    """In the folder of classes: `k400.json`, `.csv` or `.txt`, a folder `k400`, or the data set's own file."""
    named = (_classes_folder() / f"{key}{suffix}" for suffix in ("", ".json", ".csv", ".txt"))
    return next((path for path in named if path.exists()), None) or _DATASETS[key].find(_classes_folder())


def _dataset_of(config: ModelConfig) -> str | None:
    """The data set that released weights were trained on: by their name, or for a file by the number of classes."""
    if config.source in RELEASED:
        key: str = RELEASED[config.source].dataset
        return key if _DATASETS[key].num_classes == config.num_classes else None
    if config.source != "released":
        return None
    return next((key for key, one in _DATASETS.items() if one.num_classes == config.num_classes), None)


def _how_to_get(key: str | None) -> str:
    if key is None:
        return "labels=FILE (--labels) names them."
    known = _DATASETS[key]
    return (
        f"the names of {known.title} are in {known.where}: give it by labels=FILE (--labels), or put it at"
        f" {_classes_folder() / key} (a folder, or a file with its suffix), where it is found from then on."
    )


def _from_folder(folder: Path) -> ClassNames:
    files = {
        task: next((folder / name for name in names if (folder / name).exists()), None)
        for task, names in EPIC_CLASS_FILES.items()
    }
    if all(files.values()):
        return {task: _by_key(file) for task, file in files.items() if file is not None}
    if (folder / UCF101_CLASSES).exists():
        return _from_text(folder / UCF101_CLASSES)
    names = (*SOMETHING_LABELS, *_KINETICS_LABELS)
    for file in (parent / name for parent in (folder, folder / "labels") for name in names):
        if file.exists():
            return read_class_names(file)
    return _from_dataset(folder)


def _from_csv(file: Path) -> ClassNames:
    columns = [cell.strip().strip('"') for cell in read_lines(file)[0][1].split(",")]
    if {"id", "name"} <= set(columns):
        return read_class_names(file)
    if {"id", "key"} <= set(columns):
        return _by_key(file)
    return _from_dataset(file)  # a list of videos and their labels


def _from_dataset(path: Path) -> ClassNames:
    names = open_dataset(path, missing="keep").class_names
    if not names:
        raise AnnotationError("the videos have no classes, so there are no names.", path)
    if all(WHOLE_NUMBER.fullmatch(name) for of_task in _by_task(names).values() for name in of_task):
        raise AnnotationError("labels its videos by number: it has no names of classes.", path)
    return names


def _by_key(file: Path) -> tuple[str, ...]:
    return names_by_index(((row.text("key"), row.text("id"), row.line) for row in read_rows(file, ["id", "key"])), file)


def _from_text(file: Path) -> tuple[str, ...]:
    lines = [(number, re.fullmatch(r"(\d+)[\s,]+(.+)", line), line) for number, line in read_lines(file)]
    numbers = {int(found[1]) for _, found, _ in lines if found}
    for first in (0, 1):
        if len(numbers) == len(lines) and numbers == set(range(first, first + len(lines))):
            return names_by_index(((found[2], found[1], number) for number, found, _ in lines if found), file, first)
    return read_class_names([line for *_, line in lines])


def _fitting(names: Names, sizes: Mapping[str, int], source: LabelSource) -> Names:
    where = f"{source}: " if isinstance(source, (str, Path)) else ""
    if set(names) != set(sizes):
        raise EvaluationError(
            f"{where}names classes of {' and '.join(names)}; the model predicts {' and '.join(sizes)}."
            + (" Give a JSON file with a list of names for each." if len(sizes) > 1 else "")
        )
    for task, size in sizes.items():
        if len(names[task]) != size:
            raise EvaluationError(
                f"{where}holds {show_count(len(names[task]), 'name')}; the model has {show_count(size, 'class')}"
                + (f" of {task}." if task != SINGLE else ".")
            )
    return {task: names[task] for task in sizes}


def _by_name(have: Sequence[str], wanted: Sequence[str]) -> list[int]:
    """Positions in `have` of the names in `wanted`; `7` and `class 7` are the same name."""
    known, asked = ([original_name(name) for name in names] for names in (have, wanted))
    numbers = [str(index) for index in range(len(asked))]
    if asked == numbers and set(known) != set(numbers):  # a list with numbers for labels: no names to compare
        return list(range(len(asked)))
    position = {name: index for index, name in enumerate(known)}
    strange = [name for name in asked if name not in position]
    if strange:
        missing = [name for name in known if name not in set(asked)]
        raise EvaluationError(
            f"model and data have {len(have)} classes each, but not the same: the data has {show_some(strange)}, which"
            f" the model does not know; the model has {show_some(missing)}, which the data does not."
        )
    return [position[name] for name in asked]


def _names_hint(config: ModelConfig) -> str:
    known = "" if config.labels is None else f" The model knows {show_some(config.labels)}."
    return known + " Give the data whose classes it was trained for (class names of a list: --class-names)."
