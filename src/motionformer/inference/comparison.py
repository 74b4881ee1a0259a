"""Two results of the same videos side by side: which classes gained and which lost (paper, A3), and is it chance?"""

import json
from dataclasses import asdict, dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Bool, Int64

from motionformer.errors import EvaluationError
from motionformer.inference.metrics import is_action_in_top, is_in_top, paired_difference, wilson
from motionformer.inference.results import ACTION, Header, Results
from motionformer.logging import show_count
from motionformer.runs import write_csv

_UNLABELLED = -1


@dataclass(frozen=True)
class _ClassChange:
    """Top-1 of one class in A and in B."""

    name: str
    videos: int
    a: float
    b: float

    @property
    def gain(self) -> float:
        return self.b - self.a


@dataclass(frozen=True, repr=False)
class Comparison:
    """Top-1 of B against A on the videos that both have; a video that one could not read is wrong there.

    `p_value` is of McNemar's exact test: how likely such an uneven split of the disagreements is if both are equally
    good. `classes` has the largest gain first.
    """

    a: str
    b: str
    task: str
    videos: int
    only_in_a: int
    only_in_b: int
    both_right: int
    a_right: int
    b_right: int
    neither: int
    p_value: float
    classes: tuple[_ClassChange, ...]
    notes: tuple[str, ...] = ()

    @property
    def a_top1(self) -> float:
        return (self.both_right + self.a_right) / self.videos

    @property
    def b_top1(self) -> float:
        return (self.both_right + self.b_right) / self.videos

    @property
    def interval(self) -> tuple[float, float]:
        """95 % confidence interval of the gain in top-1, B minus A, on the same videos (Newcombe)."""
        return paired_difference(self.both_right, self.a_right, self.b_right, self.neither)

    def to_dict(self) -> dict[str, Any]:
        values = asdict(self)
        values["classes"] = [{**asdict(one), "gain": one.gain} for one in self.classes]
        low, high = self.interval
        sides = {
            name: wilson(self.both_right + alone, self.videos)
            for name, alone in (("a_top1", self.a_right), ("b_top1", self.b_right))
        }
        return {
            **values,
            "a_top1": self.a_top1,
            "b_top1": self.b_top1,
            "intervals": {
                **{name: {"low": bounds[0], "high": bounds[1]} for name, bounds in sides.items()},
                "gain": {"low": low, "high": high},
            },
        }

    def __repr__(self) -> str:
        change = f"top-1 {self.a_top1:.3f} → {self.b_top1:.3f}"
        return (
            f"Comparison({self.a!r} → {self.b!r}, {show_count(self.videos, 'video')}: {change}, p = {self.p_value:.2g})"
        )

    def write_csv(self, file: Path) -> None:
        """One line per class."""
        rows = [[one.name, str(one.videos), f"{one.a:.6f}", f"{one.b:.6f}", f"{one.gain:.6f}"] for one in self.classes]
        write_csv(file, [["class", "videos", "a", "b", "gain"], *rows])


def compare(a: Results, b: Results, task: str | None = None) -> Comparison:
    """Compare two results of the same videos, class by class.

    Args:
        a: results to start from.
        b: results to compare with them; videos are matched by name.
        task: "verb", "noun" or "action" where there are several tasks. [default: the last of these]

    Raises:
        EvaluationError: no video in common, other classes or labels, no labels, any number of classes per video.

    Example:
        ```python
        comparison = compare(Results.load("results/joint"), Results.load("results/trajectory"))
        comparison.b_top1 - comparison.a_top1, comparison.interval, comparison.p_value
        ```
    """
    task = _choose_task(a, b, task)
    positions = {name: index for index, name in enumerate(a.ids)}
    shared = [(positions[name], index) for index, name in enumerate(b.ids) if name in positions]
    if not shared:
        raise EvaluationError(
            f"the two results have no video in common: A is of {a.header.data} ({a.ids[0]}, …), B of {b.header.data}"
            f" ({b.ids[0]}, …)."
        )
    in_a, in_b = (np.array(side, dtype=np.int64) for side in zip(*shared, strict=True))
    names, labels = _labels(a, in_a, task)
    names_b, labels_b = _labels(b, in_b, task)
    mapped = {name: index for index, name in enumerate(names)}
    if set(names) != set(names_b):
        raise EvaluationError("the two results are of different classes: they cannot be compared class by class.")
    labels_b = np.array([_UNLABELLED if label < 0 else mapped[names_b[label]] for label in labels_b], dtype=np.int64)
    if not np.array_equal(labels, labels_b):
        first = int(np.flatnonzero(labels != labels_b)[0])
        raise EvaluationError(
            f"labels differ between A and B in {show_count(int((labels != labels_b).sum()), 'video')}; the first is"
            f" {a.ids[int(in_a[first])]}. Results of different labels cannot be compared."
        )
    known = labels >= 0
    if not known.any():
        raise EvaluationError("the videos have no labels: no metric can be computed.")
    right_a, right_b = _right(a, task)[in_a][known], _right(b, task)[in_b][known]
    return Comparison(
        a=a.header.model,
        b=b.header.model,
        task=task,
        videos=int(known.sum()),
        only_in_a=len(a) - len(shared),
        only_in_b=len(b) - len(shared),
        both_right=int((right_a & right_b).sum()),
        a_right=int((right_a & ~right_b).sum()),
        b_right=int((~right_a & right_b).sum()),
        neither=int((~right_a & ~right_b).sum()),
        p_value=_mcnemar(int((right_a & ~right_b).sum()), int((~right_a & right_b).sum())),
        classes=_by_class(names, labels[known], right_a, right_b),
        notes=_notes(a, b, same_videos=len(shared) == len(a) == len(b)),
    )


def _mcnemar(a_alone: int, b_alone: int) -> float:
    """Two-sided exact p: each disagreement falls to A or B like a fair coin."""
    total = a_alone + b_alone
    ways = tail = 1  # of choosing k out of all; of choosing at most k
    for k in range(min(a_alone, b_alone)):
        ways = ways * (total - k) // (k + 1)
        tail += ways
    return min(1.0, float(Fraction(2 * tail, 2**total)))


def _choose_task(a: Results, b: Results, task: str | None) -> str:
    if set(a.tasks) != set(b.tasks):
        raise EvaluationError(f"A predicts {', '.join(a.tasks)}, B {', '.join(b.tasks)}: they cannot be compared.")
    there = [*a.tasks, ACTION] if a.is_epic else list(a.tasks)
    chosen = task or there[-1]
    if chosen not in there:
        raise EvaluationError(f"there is no task {chosen!r} in these results; there are {', '.join(there)}.")
    if any(labels.ndim == 2 for labels in a.labels.values()):
        raise EvaluationError("videos of several classes each have no top-1: such results cannot be compared.")
    return chosen


def _labels(
    results: Results, rows: Int64[np.ndarray, " m"], task: str
) -> tuple[tuple[str, ...], Int64[np.ndarray, " m"]]:
    """Of an action, the pair: its classes are all pairs, named `verb / noun`."""
    if task != ACTION:
        return results.header.class_names[task], results.labels[task][rows]
    verbs, nouns = (results.header.class_names[one] for one in ("verb", "noun"))
    verb, noun = (results.labels[one][rows] for one in ("verb", "noun"))
    pairs = np.where((verb < 0) | (noun < 0), _UNLABELLED, verb * len(nouns) + noun)
    return tuple(f"{v} / {n}" for v in verbs for n in nouns), pairs


def _right(results: Results, task: str) -> Bool[np.ndarray, " n"]:
    if task != ACTION:
        return is_in_top(results.averaged(task), results.labels[task], 1)
    verb, noun = (results.averaged(one) for one in ("verb", "noun"))
    return is_action_in_top(verb, noun, results.labels["verb"], results.labels["noun"], 1)


def _by_class(names: tuple[str, ...], labels: Any, right_a: Any, right_b: Any) -> tuple[_ClassChange, ...]:
    """Classes with videos; largest gain first, among equals the larger class."""
    changes = []
    for label in np.unique(labels):
        of_class = labels == label
        a, b = float(right_a[of_class].mean()), float(right_b[of_class].mean())
        changes.append(_ClassChange(names[label], int(of_class.sum()), a, b))
    return tuple(sorted(changes, key=lambda one: (-one.gain, -one.videos, one.name)))


def _notes(a: Results, b: Results, same_videos: bool) -> tuple[str, ...]:
    """What else differs: it may be the reason, and not the model."""
    different = _differences(a.header, b.header)
    if same_videos and "data" in different:  # the header holds labels as numbers, and models order classes differently
        different.remove("data")
    notes = [f"they also differ in {', '.join(different)}"] if different else []
    if a.header.model_fingerprint == b.header.model_fingerprint:
        notes.append("both are the same model")
    return (
        *notes,
        *(f"{n}: {r.overlap['note']}" for n, r in (("A", a), ("B", b)) if r.overlap.get("videos")),
        *(
            f"{show_count(len(r.failures), 'video')} could not be read in {n}"
            for n, r in (("A", a), ("B", b))
            if r.failures
        ),
    )


def _differences(a: Header, b: Header) -> list[str]:
    """By the names that people know: `data`, `views`, and what of the protocol is not the same (`stride`, `seed`)."""
    found = []
    for key in a.differences(b):
        if key == "protocol":
            mine, theirs = json.loads(a.to_json())["protocol"], json.loads(b.to_json())["protocol"]
            found += [name for name in {**mine, **theirs} if mine.get(name) != theirs.get(name)]
        elif key not in ("model fingerprint", "class names"):
            found.append(key.removesuffix(" fingerprint"))
    return list(dict.fromkeys(found))
