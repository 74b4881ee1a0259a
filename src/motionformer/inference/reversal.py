"""Clips backwards: does a model know the order of frames, or only what is on them?

A model that gives a clip and its reverse the same class either saw no order or needs none. Most classes stay what they
are when time runs backwards; for pairs such as *open* and *close* the class of the reverse can be given.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from motionformer.data import Failure
from motionformer.errors import EvaluationError
from motionformer.inference import metrics
from motionformer.inference.results import Results
from motionformer.inference.scorer import SINGLE
from motionformer.inference.views import Entry, ReadVideo, VideoSource


class ReversedVideos:
    """A source whose clips run backwards: the same frames, views and crops, the last frame first.

    Args:
        source: of `open_source`, with one class per video.
        reverse_of: the class of a reversed clip, where it is another one than the clip's: `{"open": "close"}` holds
            both ways.

    Raises:
        EvaluationError: a class that the source does not have, two reverses of one class, or several classes a video.

    Example:
        ```python
        source = open_source("videos/", model.config.input)
        forwards, backwards = evaluate(model, source), evaluate(model, ReversedVideos(source, {"open": "close"}))
        compare_reversed(forwards, backwards)["same"]["share"]  # 1.0: the order of frames makes no difference
        ```
    """

    def __init__(self, source: VideoSource, reverse_of: Mapping[str, str] | None = None) -> None:
        names = source.class_names
        if isinstance(names, Mapping) or any(isinstance(entry.label, tuple) for entry in source.entries):
            raise EvaluationError("reversed clips are compared by their one class; these videos have several each.")
        self.source, self.class_names = source, names
        self.reverse_of = _both_ways(reverse_of or {}, names)
        self.name = f"{source.name}, reversed"
        self.num_views, self.num_crops = source.num_views, source.num_crops
        self.entries = tuple(self._reverse_label(entry) for entry in source.entries)

    def protocol(self) -> dict[str, Any]:
        return {**self.source.protocol(), "reversed": True, "reverse_of": self.reverse_of}

    def read(self, index: int) -> Any:
        found = self.source.read(index)
        if isinstance(found, Failure):
            return found
        if isinstance(found, ReadVideo):
            return found._replace(views=found.views.flip(2))
        return found.flip(2)

    def _reverse_label(self, entry: Entry) -> Entry:
        if not isinstance(entry.label, int):
            return entry
        name = self.class_names[entry.label]
        return replace(entry, label=self.class_names.index(self.reverse_of.get(name, name)))


def compare_reversed(forwards: Results, backwards: Results) -> dict[str, Any]:
    """What reversing the clips changed.

    Args:
        forwards: results of a source.
        backwards: results of `ReversedVideos` of it, by the same model.

    Returns:
        `same`: videos that keep their prediction, of those that could be read; `top1` and `top1_reversed`: accuracy on
        clips and on their reverses (failed videos are wrong), each with its 95 % confidence interval; `reverse_of`;
        and the `classes`, each with the prediction that its reverses get most.

    Raises:
        EvaluationError: results of other videos or of another model.

    Example:
        ```python
        compare_reversed(forwards, backwards)["top1_reversed"]["share"]
        ```
    """
    if forwards.ids != backwards.ids or forwards.header.model_fingerprint != backwards.header.model_fingerprint:
        raise EvaluationError("the two results are not of one model on the same videos.")
    names = forwards.header.class_names[SINGLE]
    ahead, back = (one.averaged(SINGLE).argmax(axis=1) for one in (forwards, backwards))
    readable = forwards.readable & backwards.readable
    labels, labels_back = forwards.labels[SINGLE], backwards.labels[SINGLE]
    known = labels >= 0
    right = (ahead == labels) & forwards.readable & known
    right_back = (back == labels_back) & backwards.readable & known
    same = (ahead == back) & readable
    found: dict[str, Any] = {
        "same": _share(int(same.sum()), int(readable.sum())),
        "reverse_of": dict(backwards.header.protocol.get("reverse_of", {})),
    }
    if known.any():
        found["top1"] = _share(int(right.sum()), int(known.sum()))
        found["top1_reversed"] = _share(int(right_back.sum()), int(known.sum()))
        found["classes"] = [
            _of_class(name, known & (labels == number), right, right_back, same, [names[i] for i in back], readable)
            for number, name in enumerate(names)
            if (labels == number).any()
        ]
    return found


def describe_reversed(found: Mapping[str, Any], show: int = 10) -> list[str]:
    """Sentences for people, and `show` classes, those that change the most first."""
    pairs = sorted({tuple(sorted(pair)) for pair in found["reverse_of"].items()})
    means = "a reversed clip keeps its class"
    if pairs:
        means += ", except " + ", ".join(f"{a} ↔ {b}" for a, b in pairs)
    same = found["same"]
    lines = [f"reversed clips: {metrics.show_share(same['correct'], same['videos'])} keep their prediction"]
    if "top1" in found:
        ahead, back = (
            metrics.show_share(found[key]["correct"], found[key]["videos"]) for key in ("top1", "top1_reversed")
        )
        lines.append(f"top-1 forwards {ahead}; reversed {back} ({means})")
        changed = sorted(found["classes"], key=lambda one: one["same"] / one["videos"])
        for one in changed[:show]:
            ahead, back = (f"{one[key]} of {one['videos']}" for key in ("right", "right_reversed"))
            lines.append(f"  {one['class']}: {ahead} forwards, {back} reversed, mostly called {one['becomes']}")
        lines += [f"  … and {len(changed) - show} more"] if show < len(changed) else []
    return lines


def parse_pairs(words: list[str]) -> dict[str, str]:
    """`A=B` of the command line.

    Raises:
        EvaluationError: a word of another form.
    """
    pairs = {}
    for word in words:
        name, equals, other = word.partition("=")
        if not (name and equals and other):
            raise EvaluationError(f"--reverse-of {word}: write a class and the class of its reverse, as in open=close.")
        pairs[name] = other
    return pairs


def _both_ways(pairs: Mapping[str, str], names: tuple[str, ...]) -> dict[str, str]:
    found: dict[str, str] = {}
    for a, b in pairs.items():
        for name, other in ((a, b), (b, a)):
            if name not in names:
                raise EvaluationError(f"reverse_of: there is no class {name!r}; there are {', '.join(names[:20])}.")
            if found.setdefault(name, other) != other:
                raise EvaluationError(f"reverse_of: {name!r} has two reverses, {found[name]!r} and {other!r}.")
    return found


def _share(correct: int, videos: int) -> dict[str, Any]:
    low, high = metrics.wilson(correct, videos) if videos else (None, None)
    return {
        "share": correct / videos if videos else None,
        "low": low,
        "high": high,
        "correct": correct,
        "videos": videos,
    }


def _of_class(
    name: str, mine: Any, right: Any, right_back: Any, same: Any, called: list[str], readable: Any
) -> dict[str, Any]:
    counts = Counter(called[i] for i in np.flatnonzero(mine & readable))
    return {
        "class": name,
        "videos": int(mine.sum()),
        "right": int((right & mine).sum()),
        "right_reversed": int((right_back & mine).sum()),
        "same": int((same & mine).sum()),
        "becomes": counts.most_common(1)[0][0] if counts else None,
    }
