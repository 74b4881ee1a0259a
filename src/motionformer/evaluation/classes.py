"""Do the model's classes and the data's mean the same, and in which order?"""

from collections.abc import Mapping, Sequence

from torch import nn

from motionformer.data.lists import original_name
from motionformer.data.record import ClassNames
from motionformer.errors import EvaluationError
from motionformer.evaluation.aggregate import Scoring, Sigmoid, find_scoring
from motionformer.evaluation.views import VideoSource
from motionformer.models import ModelConfig

SINGLE = "class"
"""What the only task of a model with one head is called."""

Columns = dict[str, list[int]]


def by_task(names: ClassNames) -> dict[str, tuple[str, ...]]:
    """Names of the classes of every task."""
    return {task: tuple(of) for task, of in names.items()} if isinstance(names, Mapping) else {SINGLE: tuple(names)}


def match_classes(config: ModelConfig, names: ClassNames) -> tuple[Columns, dict[str, tuple[str, ...]]]:
    """For every task, which output of the model is the data's class 0, 1, …; and the names of these classes.

    By name where both know names, by number otherwise. Data without classes takes the model's.
    """
    sizes = config.num_classes if isinstance(config.num_classes, Mapping) else {SINGLE: config.num_classes}
    if any(size == 0 for size in sizes.values()):
        raise EvaluationError("the model has no classes (num_classes=0): it gives features, which cannot be scored.")
    wanted = by_task(names)
    if wanted == {SINGLE: ()}:
        wanted = {task: _own_names(config, task, size) for task, size in sizes.items()}
    if set(wanted) != set(sizes):
        raise EvaluationError(
            f"the model predicts {' and '.join(sizes)}, the data is labelled by {' and '.join(wanted)}."
        )
    for task, size in sizes.items():
        if size != len(wanted[task]):
            what = "" if task == SINGLE else f" of {task}"
            raise EvaluationError(
                f"the model has {size} classes{what}, the data has {len(wanted[task])} ({_some(wanted[task])})."
                + _names_hint(config)
            )
    columns = {task: list(range(size)) for task, size in sizes.items()}
    if config.labels is not None and SINGLE in wanted:
        columns[SINGLE] = _by_name(config.labels, wanted[SINGLE])
    return columns, wanted


def fit_scoring(model: nn.Module, source: VideoSource) -> Scoring:
    """The model's own way of scoring, which must be one for labels like the data's."""
    scoring = find_scoring(model)
    labels = [entry.label for entry in source.entries if entry.label is not None]
    has_several, expects_several = any(isinstance(label, tuple) for label in labels), isinstance(scoring, Sigmoid)
    if labels and expects_several and not has_several:
        raise EvaluationError(
            "the model was trained for any number of classes a video, the data has one each: call the column of the"
            " list `labels` if these are all the classes that its videos show."
        )
    if has_several and not expects_several:
        raise EvaluationError(
            "the data has any number of classes a video, the model was trained to choose one (softmax): train it on"
            " such data (`motionformer finetune LIST --from MODEL`), or pass scoring=Sigmoid() in Python."
        )
    return scoring


def names_for_lists(config: ModelConfig) -> tuple[str, ...] | None:
    """The class names to read data with: the model's, where it knows some. The data need not hold every class then.

    `class 7` is called `7`, as it is in the data and in results of models that know no names.
    """
    return None if config.labels is None else tuple(original_name(name) for name in config.labels)


def order_note(config: ModelConfig, names: ClassNames) -> str | None:
    """What to tell the user where only the order says which output is which class."""
    if config.labels is not None or not names:
        return None
    shown = "; ".join(f"{_some(of_task)}" for of_task in by_task(names).values())
    return f"note: the model does not name its classes; its outputs are taken to be in the data's order: {shown}"


def _by_name(have: Sequence[str], wanted: Sequence[str]) -> list[int]:
    """Places in `have` of the names in `wanted`; `7` and `class 7` are the same name."""
    known, asked = ([original_name(name) for name in names] for names in (have, wanted))
    numbers = [str(index) for index in range(len(asked))]
    if asked == numbers and set(known) != set(numbers):  # a list with numbers for labels: no names to compare
        return list(range(len(asked)))
    place = {name: index for index, name in enumerate(known)}
    strange = [name for name in asked if name not in place]
    if strange:
        missing = [name for name in known if name not in set(asked)]
        raise EvaluationError(
            f"model and data have {len(have)} classes each, but not the same: the data has {_some(strange)}, which the"
            f" model does not know; the model has {_some(missing)}, which the data does not."
        )
    return [place[name] for name in asked]


def _own_names(config: ModelConfig, task: str, size: int) -> tuple[str, ...]:
    if config.labels is not None and task == SINGLE:
        return tuple(config.labels)
    return tuple(f"{task} {index}" for index in range(size))


def _names_hint(config: ModelConfig) -> str:
    known = "" if config.labels is None else f" The model knows {_some(config.labels)}."
    return known + " Give the data whose classes it was trained for (class names of a list: --classes)."


def _some(names: Sequence[str], count: int = 4) -> str:
    shown = ", ".join(repr(name) for name in names[:count])
    return shown + (f" and {len(names) - count} more" if len(names) > count else "")
