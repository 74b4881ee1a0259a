"""Which head, and how good is it: cross-validation, the choice, and the learning curve.

Folds are stratified by class and grouped by file and by `Record.group`: no group is on both sides of a fold. The head
and its setting are chosen by cross-validation alone; the held-out clips are scored once, by the chosen head.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor

from motionformer.data.record import Annotations, classes_of
from motionformer.errors import AnnotationError
from motionformer.finetuning.split import stratified_folds
from motionformer.logging import show_count
from motionformer.probing.cache import FeatureCache
from motionformer.probing.heads import HeadKind, Setting

CURVE = (1, 2, 5, 10, 20)
"""Clips per class of the learning curve; all of them come last."""
_DRAWS = 2
"""Subsets of each size in each fold."""


@dataclass(frozen=True)
class Clips:
    """The readable clips: positions in the cache, classes, and how they are split."""

    annotations: Annotations
    class_names: tuple[str, ...]
    train: list[int]
    test: list[int]
    train_labels: Int64[Tensor, " n"]
    test_labels: Int64[Tensor, " m"]
    folds: Int64[Tensor, " n"]
    """The fold that holds a training clip out; −1 for one that every fold trains on."""
    notes: tuple[str, ...]

    @classmethod
    def of(cls, every: Annotations, num_train: int, failures: Sequence[int], num_folds: int, seed: int) -> "Clips":
        """Of all videos, those for training first; without those that could not be read."""
        labels = [classes_of(record.label)[0] for record in every]
        train, test = (
            [i for i in part if i not in failures] for part in (range(num_train), range(num_train, len(every)))
        )
        known = sorted({labels[i] for i in train})
        lost = sorted({*labels} - {*known})
        if lost or not test:
            what = f"training video of class {every.label_name(lost[0])!r}" if lost else "held-out video"
            raise AnnotationError(
                f"no {what} can be read ({show_count(len(failures), 'video')} failed): `motionformer data check` names"
                " them.",
                every.records[0].source,
            )
        numbers = {label: number for number, label in enumerate(known)}
        records = [every.records[i] for i in train]
        held = stratified_folds(records, num_folds, seed)
        folds = [next((number for number, ids in enumerate(held) if id(record) in ids), -1) for record in records]
        never = [every.label_name(records[i].label) for i, fold in enumerate(folds) if fold < 0]
        notes = []
        if never:
            some = ", ".join(sorted(set(never))[:5])
            notes.append(
                f"{show_count(len(never), 'video')} of {some} cannot be cross-validated: too few, or of one group"
            )
        return cls(
            every,
            tuple(every.label_name(label) for label in known),
            train,
            test,
            torch.tensor([numbers[labels[i]] for i in train]),
            torch.tensor([numbers[labels[i]] for i in test]),
            torch.tensor(folds),
            tuple(notes),
        )

    @cached_property
    def held(self) -> Bool[Tensor, "folds n"]:
        """Of each fold that holds something out, which clips."""
        return torch.stack([self.folds == number for number in self.folds.unique().tolist() if number >= 0])

    @property
    def num_crossed(self) -> int:
        """Training clips that some fold holds out."""
        return int(self.held.sum())


@dataclass(frozen=True)
class CurvePoint:
    """Cross-validated accuracy with so many clips of each class."""

    clips: float
    """Of each class; for all of them, the mean."""
    correct: int
    total: int

    @property
    def accuracy(self) -> float:
        return self.correct / self.total


@dataclass(frozen=True)
class Tried:
    """What became of one kind of head."""

    kind: HeadKind
    sweep: list[tuple[Setting, int]]
    """Of every setting, how many cross-validated clips were right."""
    best: Setting
    right: Bool[Tensor, " n"]
    """Of every training clip, whether the best setting was right in the fold that held it out."""
    curve: list[CurvePoint]
    """With all clips; of some heads with fewer too."""
    parameters: int
    cpu_seconds: float
    """Of the sweep in all folds."""

    @property
    def correct(self) -> int:
        return int(self.right.sum())


def try_kind(kind: HeadKind, features: FeatureCache, data: Clips, seed: int) -> Tried:
    """Every setting in every fold."""
    began = time.process_time()
    solver = kind.solver(features, data.train, data.train_labels, data.class_names, seed)
    right = _right_where_held(solver.logits(~data.held, kind.settings)[:, None], data)[0]
    counts = right.sum(dim=1).tolist()
    which = _best(kind.settings, counts)
    mean = float((~data.held).sum(dim=1).float().mean()) / len(data.class_names)
    curve = [CurvePoint(mean, counts[which], data.num_crossed)]
    sweep = list(zip(kind.settings, counts, strict=True))
    seconds = time.process_time() - began
    return Tried(kind, sweep, kind.settings[which], right[which], curve, solver.parameters, seconds)


def add_curve(tried: Tried, features: FeatureCache, data: Clips, seed: int) -> Tried:
    """With fewer clips of each class, cross-validated; of a linear head, each size with the one of three settings that
    suits it. Heads that learn have no curve: it would take as long as everything else."""
    if not tried.kind.is_linear:
        return tried
    solver = tried.kind.solver(features, data.train, data.train_labels, data.class_names, seed)
    settings, generator = tried.kind.settings[1::2], torch.Generator().manual_seed(seed)
    points = []
    for size in [size for size in CURVE if size < _largest_class(data)]:
        subsets = [_draw(data, ~held, size, generator) for held in data.held for _ in range(_DRAWS)]
        logits = solver.logits(torch.stack(subsets), settings).unflatten(0, (-1, _DRAWS))
        found = _right_where_held(logits, data).sum(dim=(0, 2)).tolist()
        points.append(CurvePoint(float(size), max(found), _DRAWS * data.num_crossed))
    return replace(tried, curve=[*points, *tried.curve])


def extrapolate(points: Sequence[CurvePoint], factors: Sequence[float] = (2.0, 4.0)) -> dict[str, float] | None:
    """What more clips would bring, if errors keep falling as a power of their number.

    The power is fitted to the curve from 2 clips per class on; the last point, all clips, is what is extended.

    Returns:
        `exponent`, and the accuracy with each of `factors` times as many clips, as `x2`. None where the curve has fewer
        than three points or errors do not fall.
    """
    used = [point for point in points if point.clips >= 2]
    if len(used) < 3:
        return None
    # half an error more than there are: a curve that reaches none would fall for ever
    errors = [(point.total - point.correct + 0.5) / (point.total + 1) for point in used]
    slope = float(np.polyfit(np.log([point.clips for point in used]), np.log(errors), 1)[0])
    if slope >= 0:
        return None
    return {"exponent": -slope, **{f"x{factor:g}": 1 - errors[-1] * factor**slope for factor in factors}}


def _best(settings: Sequence[Setting], counts: Sequence[int]) -> int:
    """The setting with the most clips right; of equal ones that with the strongest decay."""
    return max(range(len(settings)), key=lambda i: (counts[i], settings[i].decay))


def _right_where_held(logits: Float[Tensor, "folds draws s n k"], data: Clips) -> Bool[Tensor, "draws s n"]:
    """Whether a clip is right in the fold that held it out."""
    right = logits.argmax(dim=-1) == data.train_labels
    found: Tensor = (right & data.held[:, None, None]).any(dim=0)
    return found


def _largest_class(data: Clips) -> int:
    """Clips that every fold has of some class."""
    return min(int(data.train_labels[~held].bincount().max()) for held in data.held)


def _draw(data: Clips, allowed: Bool[Tensor, " n"], per_class: int, generator: torch.Generator) -> Bool[Tensor, " n"]:
    """`per_class` clips of each class among those allowed, or all of a class that has fewer."""
    chosen = torch.zeros_like(allowed)
    order = torch.randperm(len(allowed), generator=generator)
    order = order[allowed[order]]
    for label in range(len(data.class_names)):
        chosen[order[data.train_labels[order] == label][:per_class]] = True
    return chosen
