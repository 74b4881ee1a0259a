"""Frames and sizes as the authors' programs choose them (tests/parity/protocol.json; the whole of it where it is)."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.parity_files import PARITY

from motionformer.video.sample import (
    ClipPlan,
    _kinetics_clip,
    _piece_clip,
    _random_in_segments,
    _ReleasedRandomClip,
    _ReleasedRandomSegments,
    _segment_bounds,
    _Start,
    piece_frames,
    segment_middles,
)
from motionformer.video.source import Clock, Header
from motionformer.video.transforms.geometry import SideCrop, released_cover

Case = dict[str, Any]


@pytest.fixture(params=["kept", pytest.param("whole", marks=pytest.mark.shared)])
def figures(request: pytest.FixtureRequest) -> dict[str, list[Case]]:
    """The figures kept here, and all of them where they lie beside the checkout."""
    if request.param == "kept":
        found: dict[str, list[Case]] = json.loads((PARITY / "protocol.json").read_text())
        return found
    folder: Path = request.getfixturevalue("shared") / "parity" / "protocol"
    whole = json.loads((folder / "protocol.json").read_text())
    return {**whole, "geometry": json.loads((folder / "geometry.json").read_text())["test"]}


def regular_clock(case: Case, *, has_duration: bool) -> Clock:
    count, step, fps = case["num_frames"], case["pts_step"], case["fps"][0] / case["fps"][1]
    return Clock(count, fps, header=Header(range(0, count * step, step), count, count * step * has_duration, fps))


def plan_of(case: Case) -> ClipPlan:
    return ClipPlan(case["frames"], case["stride"])


def views(case: Case, clock: Clock) -> list[list[int]]:
    return [_kinetics_clip(plan_of(case), clock, _Start(i, case["views"])) for i in range(case["views"])]


@pytest.mark.parametrize(
    ("section", "has_duration"),
    [
        ("kinetics_test", True),
        ("kinetics_test_one_tick_per_frame", True),
        ("kinetics_test_unknown_duration", False),
        ("kinetics_test_unknown_duration_rounding", False),
    ],
)
def test_views_of_kinetics(figures: dict[str, list[Case]], section: str, has_duration: bool) -> None:
    for case in figures[section]:
        assert views(case, regular_clock(case, has_duration=has_duration)) == case["indices"], case


def test_views_of_odd_clocks(figures: dict[str, list[Case]]) -> None:
    for case in figures["kinetics_test_odd_clocks"]:
        fps = case["fps"][0] / case["fps"][1]
        header = Header(case["pts"], case["header_frames"], case["header_duration"], fps)
        assert views(case, Clock(case["num_frames"], fps, header=header)) == case["indices"], case["kind"]


def test_training_clips_of_kinetics(figures: dict[str, list[Case]]) -> None:
    for case in figures["kinetics_train"]:
        known, unknown = (regular_clock(case, has_duration=known) for known in (True, False))
        for draw in case["draws"]:
            assert _kinetics_clip(plan_of(case), known, _Start(draw["u"])) == draw["indices"]
            assert _kinetics_clip(plan_of(case), unknown, _Start(draw["u"])) == draw["indices_unknown_duration"]


def test_pieces_of_epic(figures: dict[str, list[Case]]) -> None:
    for case in figures["epic"]:
        clock = Clock(10**6, float(case["assumed_fps"]))
        piece = piece_frames(clock, _seconds(case["start"]), _seconds(case["stop"]))
        assert (piece.start, piece.stop) == (case["start_frame"], case["end_frame"])
        for start, wanted in _starts(case):
            assert [i + 1 for i in _piece_clip(plan_of(case), clock, piece, start)] == wanted  # files count from 1


def test_segments_of_something_something(figures: dict[str, list[Case]]) -> None:
    for case in figures["something_something"]:
        assert segment_middles(case["num_frames"], case["frames"]) == case["test"]
        bounds = [list(pair) for pair in _segment_bounds(case["num_frames"], case["frames"])]
        assert bounds == case["train_low_high_inclusive"]


def test_training_frames_of_segments_reach_both_ends() -> None:
    generator = torch.Generator().manual_seed(0)
    drawn = [_random_in_segments(40, 4, generator) for _ in range(300)]
    for k, (low, high) in enumerate(_segment_bounds(40, 4)):
        assert {frames[k] for frames in drawn} == set(range(low, high + 1))


def test_sizes_and_crops(figures: dict[str, list[Case]]) -> None:
    for case in figures["geometry"]:
        size = case["size"]
        resized = released_cover((case["height"], case["width"]), (size, size))
        assert list(resized) == case["resized"]
        rows, columns = (torch.arange(side) for side in resized)
        place = torch.stack([rows[:, None].expand(*resized), columns.expand(*resized), columns.expand(*resized)])
        corners = [SideCrop(size, i)(place[:, None].int())[:2, 0, 0, 0].tolist() for i in range(3)]
        assert corners == case["offsets_y_x"]


def test_a_header_that_announces_a_duration_and_no_frames_is_counted() -> None:
    """The authors' program fails on such a file (MPEG transport streams have it)."""
    plan = ClipPlan(4, 2)
    lying = Clock(30, 30.0, header=Header(range(0, 3000, 100), 0, 3000, 30.0))
    assert _kinetics_clip(plan, lying, _Start(1, 2)) == _kinetics_clip(plan, Clock(30, 30.0), _Start(1, 2))


def test_a_header_that_announces_a_window_behind_the_last_frame_is_counted() -> None:
    plan = ClipPlan(4, 2)
    lying = Clock(10, 30.0, header=Header(range(0, 1000, 100), 1000, 100_000, 30.0))
    assert max(_kinetics_clip(plan, lying, _Start(9, 10))) < 10


def test_samplers_draw_from_the_generator_and_need_one() -> None:
    clock = Clock(300, 30.0)
    for sampler in (_ReleasedRandomClip(ClipPlan(8, 4)), _ReleasedRandomSegments(8)):
        drawn = {tuple(sampler(clock, torch.Generator().manual_seed(seed))) for seed in (1, 1, 2, 3)}
        assert len(drawn) == 3
        with pytest.raises(ValueError, match=r"pass a torch\.Generator"):
            sampler(clock)


def _seconds(text: str) -> float:
    hours, minutes, seconds = text.split(":")
    whole, digits = seconds.split(".")
    return int(hours) * 3600 + int(minutes) * 60 + int(whole) + int(digits) / 100


def _starts(case: Case) -> Iterator[tuple[_Start, list[int]]]:
    yield from ((_Start(i, case["views"]), wanted) for i, wanted in enumerate(case["file_numbers"]))
    yield from ((_Start(draw["u"]), draw["file_numbers"]) for draw in case["training_draws"])
