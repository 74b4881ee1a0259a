"""What the classes of a model are called: the weights say it, or a file, or the data set's own files, or nobody."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from motionformer.data import open_dataset
from motionformer.data.class_names import names_by_index, read_class_names
from motionformer.data.epic import CLASS_FILES
from motionformer.data.record import ClassNames
from motionformer.data.table import read_json, read_lines, read_rows
from motionformer.data.ucf101 import CLASS_FILE
from motionformer.errors import AnnotationError, EvaluationError
from motionformer.evaluation.classes import SINGLE, by_task
from motionformer.models import ModelConfig

Names = dict[str, tuple[str, ...]]
"""Names of the classes of every task; a model with one head has the task "class"."""

LabelSource = str | Path | Sequence[str] | Mapping[str, Sequence[str]]


def find_names(config: ModelConfig, labels: LabelSource | None = None) -> tuple[Names, str | None]:
    """The names, and what to tell the user where there are none: classes then go by their numbers."""
    sizes = config.num_classes if isinstance(config.num_classes, Mapping) else {SINGLE: config.num_classes}
    if any(size == 0 for size in sizes.values()):
        raise EvaluationError(
            "the model has no classes (num_classes=0), so it predicts nothing; `motionformer features` suits it."
        )
    if labels is not None:
        return _fitting(by_task(read_labels(labels)), sizes, labels), None
    if config.labels is not None and set(sizes) == {SINGLE}:
        return {SINGLE: tuple(config.labels)}, None
    numbered = {task: tuple(f"{task} {index}" for index in range(size)) for task, size in sizes.items()}
    return numbered, "the weights do not name their classes, so they go by number; labels=FILE (--labels) names them."


def read_labels(source: LabelSource) -> ClassNames:
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
    if kind == ".json" and isinstance(value := read_json(path), dict) and _is_by_task(value):
        return {str(task): read_class_names(names) for task, names in value.items()}
    if kind == ".csv":
        return _from_csv(path)
    return read_class_names(path) if kind == ".json" else _from_text(path)


def _from_folder(folder: Path) -> ClassNames:
    files = {
        task: next((folder / name for name in names if (folder / name).exists()), None)
        for task, names in CLASS_FILES.items()
    }
    if all(files.values()):
        return {task: _by_key(file) for task, file in files.items() if file is not None}
    if (folder / CLASS_FILE).exists():
        return _from_text(folder / CLASS_FILE)
    names = open_dataset(folder, missing="keep").class_names
    if not names:
        raise AnnotationError("a folder of videos without classes names none.", folder)
    return names


def _from_csv(file: Path) -> ClassNames:
    columns = [cell.strip().strip('"') for cell in read_lines(file)[0][1].split(",")]
    if {"id", "name"} <= set(columns):
        return read_class_names(file)
    if {"id", "key"} <= set(columns):
        return _by_key(file)
    return open_dataset(file, missing="keep").class_names  # a list of videos and their labels


def _by_key(file: Path) -> tuple[str, ...]:
    return names_by_index(((row.text("key"), row.text("id"), row.line) for row in read_rows(file, ["id", "key"])), file)


def _from_text(file: Path) -> tuple[str, ...]:
    lines = [(number, re.fullmatch(r"(\d+)[\s,]+(.+)", line), line) for number, line in read_lines(file)]
    numbers = {int(found[1]) for _, found, _ in lines if found}
    for first in (0, 1):
        if len(numbers) == len(lines) and numbers == set(range(first, first + len(lines))):
            return names_by_index(((found[2], found[1], number) for number, found, _ in lines if found), file, first)
    return read_class_names([line for *_, line in lines])


def _is_by_task(value: Mapping[str, object]) -> bool:
    return bool(value) and all(isinstance(names, list) for names in value.values())


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
                f"{where}holds {len(names[task])} names; the model has {size} classes"
                + (f" of {task}." if task != SINGLE else ".")
            )
    return {task: names[task] for task in sizes}
