"""From masks to the figures of a results table, by the semi-supervised protocol of DAVIS 2017.

For each object of each sequence: J (overlap of regions; Perazzi et al., 2016) and F (overlap of outlines; Martin et
al., 2004) in every frame but the first, which was given, and the last; of each their mean, recall and decay. The
figures of a data set are means over objects.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Bool, UInt8
from torch import Tensor

from motionformer.errors import MaskError
from motionformer.tracking.masks import object_numbers, outline


def jaccard(predicted: Bool[Tensor, "H W"], truth: Bool[Tensor, "H W"]) -> float:
    """J, the region measure: intersection over union; 1 where both masks are empty."""
    union = int((predicted | truth).sum())
    return int((predicted & truth).sum()) / union if union else 1.0


_TOLERANCE = 0.008


def _boundary_f(predicted: Bool[Tensor, "H W"], truth: Bool[Tensor, "H W"], tolerance: float = _TOLERANCE) -> float:
    """F, the boundary measure: the harmonic mean of precision and recall of outline pixels (Martin et al., 2004).

    A pixel is right if the other outline comes within `tolerance`, a share of the diagonal rounded up to whole pixels.
    """
    radius = math.ceil(tolerance * math.hypot(*truth.shape))
    found, wanted = outline(predicted), outline(truth)
    precision, recall = _share_near(found, wanted, radius), _share_near(wanted, found, radius)
    return 2 * precision * recall / (precision + recall) if precision + recall else 0.0


def _share_near(outline: Bool[Tensor, "H W"], other: Bool[Tensor, "H W"], radius: int) -> float:
    """The share of `outline` with a pixel of `other` within `radius`; an outline without pixels is all right.

    The same as covering `other` with discs, for the outline's pixels only, which are few: a disc is a stack of
    stretches of rows, and running sums show whether a stretch holds a pixel.
    """
    y, x = outline.nonzero(as_tuple=True)
    if len(y) == 0:
        return 1.0
    sums = F.pad(other, (radius + 1, radius, radius, radius)).cumsum(dim=1, dtype=torch.int32)
    near = torch.zeros(len(y), dtype=torch.bool)
    for down in range(-radius, radius + 1):
        reach = math.isqrt(radius**2 - down**2)
        row, centre = y + radius + down, x + radius + 1
        near |= sums[row, centre + reach] > sums[row, centre - reach - 1]
    return int(near.sum()) / len(y)


@dataclass(frozen=True)
class _Statistics:
    """One measure over the frames of one object, or over objects."""

    mean: float
    recall: float
    """The share of frames above 0.5."""
    decay: float
    """The mean of the first quarter less that of the last: what is lost on the way."""

    @classmethod
    def average(cls, each: Sequence["_Statistics"]) -> "_Statistics":
        return cls(*(_mean([getattr(one, name) for one in each]) for name in ("mean", "recall", "decay")))


@dataclass(frozen=True)
class ObjectScore:
    sequence: str
    number: int
    num_frames: int
    J: _Statistics
    F: _Statistics


@dataclass(frozen=True)
class Scores:
    """The figures of a data set."""

    objects: tuple[ObjectScore, ...]

    @property
    def J(self) -> _Statistics:  # noqa: N802, the measure's name
        return _Statistics.average([score.J for score in self.objects])

    @property
    def F(self) -> _Statistics:  # noqa: N802
        return _Statistics.average([score.F for score in self.objects])

    @property
    def J_and_F(self) -> float:  # noqa: N802
        """The mean of the means of J and F: the figure methods are ranked by."""
        return (self.J.mean + self.F.mean) / 2

    def to_dict(self) -> dict[str, Any]:
        return {
            "J&F": self.J_and_F,
            "J": asdict(self.J),
            "F": asdict(self.F),
            "objects": [asdict(score) for score in self.objects],
        }


def score_sequence(
    name: str,
    predicted: Iterable[UInt8[Tensor, "_ _"]],  # sizes are compared here, with a message
    truth: Iterable[UInt8[Tensor, "_ _"]],
    *,
    single_object: bool = False,
) -> list[ObjectScore]:
    """One score for each object of the first true mask. Masks are taken one pair at a time.

    `single_object` takes all objects for one, which is the protocol of DAVIS 2016.
    """
    region: dict[int, list[float]] = {}
    contour: dict[int, list[float]] = {}
    for index, (pred, mask) in enumerate(zip(predicted, truth, strict=True)):
        if single_object:
            pred, mask = pred.clamp(max=1), mask.clamp(max=1)
        if index == 0:
            region = {number: [] for number in object_numbers(mask)}
            contour = {number: [] for number in region}
            if not region:
                raise MaskError(f"{name}: the first mask shows no object, so there is nothing to follow.")
        _check_pair(name, index, pred, mask, list(region))
        for number in region:
            region[number].append(jaccard(pred == number, mask == number))
            contour[number].append(_boundary_f(pred == number, mask == number))
    if any(len(values) < 3 for values in region.values()):
        raise MaskError(f"{name}: a sequence is scored without its first and last frame, so it needs three or more.")
    return [
        ObjectScore(name, number, len(values), _summarise(values[1:-1]), _summarise(contour[number][1:-1]))
        for number, values in region.items()
    ]


def _summarise(values: Sequence[float]) -> _Statistics:
    """Mean, recall and decay of one measure over frames.

    Quarters share their border frames: they reach from frame 1 to N in four equal steps, borders rounded half up.
    """
    if not values:
        raise MaskError("a sequence is scored without its first and last frame, so it needs three or more.")
    last = len(values) - 1
    borders = [math.floor(last * quarter / 4 + 0.5) for quarter in range(5)]
    first_quarter, last_quarter = values[: borders[1] + 1], values[borders[3] :]
    return _Statistics(
        mean=_mean(values),
        recall=_mean([float(value > 0.5) for value in values]),
        decay=_mean(first_quarter) - _mean(last_quarter),
    )


def _check_pair(name: str, index: int, pred: Tensor, mask: Tensor, known: list[int]) -> None:
    if pred.shape != mask.shape:
        raise MaskError(
            f"{name}, frame {index}: the prediction is {pred.shape[1]} × {pred.shape[0]}, the truth "
            f"{mask.shape[1]} × {mask.shape[0]}."
        )
    unknown = sorted(set(object_numbers(pred)) - set(known))
    if unknown:
        raise MaskError(
            f"{name}, frame {index}: the prediction shows object {', '.join(map(str, unknown))}; the first true mask "
            f"has {', '.join(map(str, known))}. To compare them as one object, use --single-object."
        )


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
