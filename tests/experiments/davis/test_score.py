"""J and F on masks whose answers are known, against loops, and against the reference evaluation's own figures."""

import json
import math
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from motionformer.errors import MaskError
from motionformer.experiments.davis import find_sequences, score_folders
from motionformer.experiments.davis.score import Scores, _boundary_f, _Statistics, _summarise, jaccard, score_sequence
from motionformer.tracking.masks import outline


def square(top: int, left: int, side: int = 20, size: tuple[int, int] = (60, 80)) -> Tensor:
    """A square of side 20. The image's diagonal is 100, so the tolerance is 0.8, rounded up: 1 pixel."""
    mask = torch.zeros(size, dtype=torch.bool)
    mask[top : top + side, left : left + side] = True
    return mask


EMPTY = torch.zeros(60, 80, dtype=torch.bool)


@pytest.mark.parametrize("shift", [0, 1, 5, 20, 30])
def test_region_of_a_shifted_square(shift: int) -> None:
    common = max(0, 20 - shift) * 20
    assert jaccard(square(20, 20 + shift), square(20, 20)) == pytest.approx(common / (800 - common))


def test_nothing_against_nothing_is_right_and_against_something_wrong() -> None:
    for measure in (jaccard, _boundary_f):
        assert measure(EMPTY, EMPTY) == 1.0
        assert measure(EMPTY, square(20, 20)) == measure(square(20, 20), EMPTY) == 0.0


def test_a_shift_within_the_tolerance_costs_no_boundary() -> None:
    assert _boundary_f(square(20, 21), square(20, 20)) == 1.0
    assert _boundary_f(square(21, 21), square(20, 20)) < 1.0  # a diagonal step is longer than one pixel
    assert _boundary_f(square(21, 21), square(20, 20), tolerance=0.02) == 1.0


def test_boundary_of_a_shift_beyond_the_tolerance_by_hand() -> None:
    # Outlines of 20 + 20 + 20 + 20 pixels and two corners to the upper left: 21 × 21 less 19 × 19 = 80.
    # Moved 10 to the right: of each horizontal side of 21 pixels, 11 lie on the other outline and 1 beside it; of the
    # vertical sides only the pixels that belong to those rows or lie a pixel from them.
    found, wanted = outline(square(20, 30)), outline(square(20, 20))
    assert int(found.sum()) == int(wanted.sum()) == 80
    near = loop_share(found, wanted, 1)
    assert _boundary_f(square(20, 30), square(20, 20)) == pytest.approx(near)  # precision and recall are equal
    assert near == pytest.approx((11 + 1 + 11 + 1 + 2) / 80)


def test_an_object_cut_off_by_the_image_has_no_outline_along_the_cut() -> None:
    whole = torch.ones(60, 80, dtype=torch.bool)
    assert not outline(whole).any()
    corner = outline(square(40, 60))
    assert int(corner.sum()) == 20 + 20 + 1
    assert not corner[41:, 60:].any()


def test_outline_and_discs_equal_loops() -> None:
    torch.manual_seed(3)
    for _ in range(3):
        a, b = (torch.nn.functional.avg_pool2d(torch.randn(1, 21, 28), 7, 1, 3)[0] > 0.05 for _ in range(2))
        assert torch.equal(outline(a), loop_outline(a))
        for tolerance in (0.008, 0.06, 0.12):
            radius = math.ceil(tolerance * math.hypot(21, 28))
            precision = loop_share(loop_outline(a), loop_outline(b), radius)
            recall = loop_share(loop_outline(b), loop_outline(a), radius)
            expected = 2 * precision * recall / (precision + recall)
            assert _boundary_f(a, b, tolerance) == pytest.approx(expected, abs=1e-12)


def test_quarters_are_those_of_the_protocol() -> None:
    for count in range(1, 120):
        values = torch.rand(count).tolist()
        borders = (np.round(np.linspace(1, count, 5) + 1e-10) - 1).astype(int)
        first, last = values[: borders[1] + 1], values[borders[3] :]
        assert _summarise(values).decay == pytest.approx(np.mean(first) - np.mean(last), abs=1e-12)


def test_statistics() -> None:
    assert _summarise([1.0, 1.0, 0.5, 0.0]) == _Statistics(mean=0.625, recall=0.5, decay=0.75)


def test_first_and_last_frame_do_not_count_and_objects_are_apart() -> None:
    truth = square(5, 5).to(torch.uint8) + 2 * square(35, 50).to(torch.uint8)
    lost = square(5, 5).to(torch.uint8)
    one, two = score_sequence("pair", [lost, truth, lost, lost], [truth] * 4)
    assert (one.number, one.J.mean, one.F.mean) == (1, 1.0, 1.0)
    assert (two.number, two.J.mean, two.F.mean, two.num_frames) == (2, 0.5, 0.5, 4)
    scores = Scores((one, two))
    assert scores.J.mean == scores.J_and_F == 0.75
    assert scores.to_dict()["objects"][1]["J"]["recall"] == 0.5
    [merged] = score_sequence("pair", [truth] * 4, [truth] * 4, single_object=True)
    assert merged.J.mean == 1.0


def test_what_cannot_be_scored_is_refused() -> None:
    mask = square(5, 5).to(torch.uint8)
    with pytest.raises(MaskError, match="dog, frame 1: the prediction is 80 × 50, the truth 80 × 60"):
        score_sequence("dog", [mask, mask[:50], mask], [mask] * 3)
    with pytest.raises(MaskError, match=r"shows object 3; the first true mask has 1.*--single-object"):
        score_sequence("dog", [mask, 3 * mask, mask], [mask] * 3)
    with pytest.raises(MaskError, match="nothing to follow"):
        score_sequence("dog", [mask] * 3, [mask * 0] * 3)
    with pytest.raises(MaskError, match=r"^dog: .*three or more"):
        score_sequence("dog", [mask] * 2, [mask] * 2)


@pytest.mark.shared
@pytest.mark.parametrize("name", ["blackswan", "dog", "libby", "car-roundabout"])
def test_reference_scores_of_a_published_method(shared: Path, name: str) -> None:
    root = shared / "data" / "davis"
    expected = json.loads((root / "osvos" / "expected_scores.json").read_text())[name]
    [(_, [score])] = score_folders(root / "osvos", find_sequences(root, names=(name,)))
    for measure in ("J", "F"):
        for figure in ("mean", "recall", "decay"):
            ours = getattr(getattr(score, measure), figure)
            assert ours == pytest.approx(expected[f"{measure}_{figure}"], abs=1e-9)


def loop_outline(mask: Tensor) -> Tensor:
    height, width = mask.shape
    edge = torch.zeros_like(mask)
    for y in range(height):
        for x in range(width):
            for below, right in ((0, 1), (1, 0), (1, 1)):
                other = mask[min(y + below, height - 1), min(x + right, width - 1)]
                edge[y, x] |= mask[y, x] != other
    return edge


def loop_share(outline: Tensor, other: Tensor, radius: int) -> float:
    points, targets = outline.nonzero().tolist(), other.nonzero().tolist()
    near = [any((y - v) ** 2 + (x - u) ** 2 <= radius**2 for v, u in targets) for y, x in points]
    return sum(near) / len(near)
