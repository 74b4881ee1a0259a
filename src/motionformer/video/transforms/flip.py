"""Mirroring a clip, and what that does to its label: a left swipe becomes a right swipe.

Class names say which: two names that differ by left and right (or by clockwise and counter-clockwise) are twins.
"""

import re
from collections.abc import Sequence
from typing import Any

from jaxtyping import Num
from torch import Generator, Tensor

from motionformer.video.transforms.base import Label, Transform, uniform

MIRRORED = {
    "left": "right",
    "leftward": "rightward",
    "leftwards": "rightwards",
    "clockwise": "counterclockwise",
    "cw": "ccw",
    "links": "rechts",
    "gauche": "droite",
    "izquierda": "derecha",
}
UNSURE = frozenset({"links"})
"""Words of a side in one language and of something else in another: a side only where the twin is a class too."""
MIRRORED |= {there: here for here, there in MIRRORED.items()}


class HorizontalFlip(Transform):
    """Mirrors the clip with some probability. The label stays: only for data whose classes have no sides."""

    def __init__(self, probability: float = 0.5) -> None:
        self.probability = probability

    def __call__(self, clip: Num[Tensor, "3 t H W"], generator: Generator | None = None) -> Num[Tensor, "3 t H W"]:
        return clip.flip(-1) if uniform(0.0, 1.0, generator, self) < self.probability else clip


class LabelAwareFlip(Transform):
    """Mirrors the clip with some probability, and swaps the label of classes that have a side with their twin's.

    If any class has a side but no twin, nothing is ever mirrored: a mirrored clip of that class, or of one that looks
    like its mirror image, would get a wrong label.
    """

    def __init__(self, class_names: Sequence[str], probability: float = 0.5) -> None:
        self.twins, self.without_twin = find_twins(class_names)
        self.probability = 0.0 if self.without_twin else probability
        self._names = tuple(class_names)

    @property
    def pairs(self) -> tuple[tuple[str, str], ...]:
        """The names of classes that are each other's mirror image."""
        return tuple((self._names[a], self._names[b]) for a, b in enumerate(self.twins) if a < b)

    def __call__(self, clip: Num[Tensor, "3 t H W"], generator: Generator | None = None) -> Num[Tensor, "3 t H W"]:
        raise TypeError("LabelAwareFlip may change the label: call `with_label(clip, label, generator)`.")

    def with_label(
        self, clip: Num[Tensor, "3 t H W"], label: Label, generator: Generator | None = None
    ) -> tuple[Num[Tensor, "3 t H W"], Label]:
        """The clip and its label, or the mirrored clip and its twin's label; of several classes, the twin of each."""
        classes: tuple[Any, ...] = label if isinstance(label, tuple) else (label,)
        if not all(isinstance(one, int) and 0 <= one < len(self.twins) for one in classes):
            raise ValueError(f"label {label!r} is not one of the {len(self.twins)} classes this flip was made for.")
        if uniform(0.0, 1.0, generator, self) >= self.probability:
            return clip, label
        twins = [self.twins[one] for one in classes]
        mirrored: Any = tuple(sorted(twins)) if isinstance(label, tuple) else twins[0]
        return clip.flip(-1), mirrored

    def __repr__(self) -> str:
        if self.without_twin:
            return f"LabelAwareFlip(off: no class is the mirror image of {', '.join(map(repr, self.without_twin))})"
        pairs = [f"{here} ↔ {there}" for here, there in self.pairs]
        return f"LabelAwareFlip(probability={self.probability}, {', '.join(pairs) or 'no class has a side'})"


def find_twins(class_names: Sequence[str]) -> tuple[tuple[int, ...], tuple[str, ...]]:
    """For each class the one its mirror image belongs to (mostly itself), and the names whose mirror is no class."""
    words = [_words(name) for name in class_names]
    index = {name: place for place, name in enumerate(words)}
    mirrors = [_mirror(name) for name in words]
    mirrors = [
        mirror if mirror in index else _mirror(name, UNSURE) for name, mirror in zip(words, mirrors, strict=True)
    ]
    twins = tuple(
        place if name == mirror else index.get(mirror, place)
        for place, (name, mirror) in enumerate(zip(words, mirrors, strict=True))
    )
    return twins, tuple(name for name, mirror in zip(class_names, mirrors, strict=True) if mirror not in index)


def _mirror(words: tuple[str, ...], but: frozenset[str] = frozenset()) -> tuple[str, ...]:
    return tuple(word if word in but else MIRRORED.get(word, word) for word in words)


def _words(name: str) -> tuple[str, ...]:
    """`SwipeLeft`, `swipe_left` and `Swipe left` are the same words."""
    name = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", name).lower()
    name = re.sub(r"\b(counter|anti)[\s_-]*clockwise", "counterclockwise", name.replace("_", " "))
    return tuple(re.findall(r"[^\W\d_]+|\d+", name))
