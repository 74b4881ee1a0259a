"""Frames and seconds: by the rate where it is constant, by the frames' own times where it varies."""

import math
from fractions import Fraction
from pathlib import Path

import pytest
from numbered import write_images, write_video

from motionformer.video import Clock, open_video
from motionformer.video.source import StreamClock

SLOW_AFTER_FAST = [*range(0, 990, 33), *range(1000, 10000, 500)]
"""Milliseconds: 30 frames in the first second, two in each of nine more."""


@pytest.fixture(scope="module")
def varied(tmp_path_factory: pytest.TempPathFactory) -> Clock:
    path = tmp_path_factory.mktemp("clock") / "x.mkv"
    write_video(path, num_frames=48, times=SLOW_AFTER_FAST, tick=Fraction(1, 1000), b_frames=2)
    with open_video(path) as video:
        assert video.metadata.variable_rate
        return video.clock


@pytest.mark.parametrize("fps", [30.0, 30000 / 1001, 12.0, 59.9400599400599])
def test_a_constant_rate_counts_frames(fps: float) -> None:
    clock = Clock(1000, fps)
    for i in range(1000):
        at = i / fps
        assert (clock.seconds(i), clock.frame_at(at)) == (at, i)
        assert [clock.frame_at(at + d / fps) for d in (-1e-7, 1e-7, 0.01, 0.5, 0.99)] == [i, i, i + 1, i + 1, i + 1]
        for seconds in (round(at, 2), round(at, 3)):
            assert clock.frame_at(seconds) == math.ceil(seconds * fps - 1e-6)
    assert clock.duration == 1000 / fps


def test_spans_at_a_constant_rate() -> None:
    clock = Clock(20, 10.0)
    assert clock.span() == range(20)
    assert clock.span(0.5, 1.0) == range(5, 10)
    assert clock.span(0.41, 0.42) == range(5, 6), "at least one"
    assert clock.span(1.9) == clock.span(1.9, 7.0) == range(19, 20)
    assert not clock.span(1.95), "no frame appears any more"
    assert not clock.span(5.0, 6.0)


@pytest.mark.parametrize("name", ["x.mkv", "x.mp4", "x.ts", "x.avi"])
def test_rounded_time_stamps_are_a_constant_rate(name: str, tmp_path: Path) -> None:
    with open_video(write_video(tmp_path / name, b_frames=2)) as video:
        assert video.clock == Clock(40, 30.0)


def test_a_folder_of_images_goes_by_its_rate(tmp_path: Path) -> None:
    with open_video(write_images(tmp_path, "%d.png", num_frames=3, step=2), image_rate=12.0) as video:
        assert video.clock == Clock(3, 12.0)


def test_a_variable_rate_goes_by_the_times_of_the_frames(varied: Clock) -> None:
    for i, time in enumerate(SLOW_AFTER_FAST):
        at = time / 1000
        assert (varied.seconds(i), varied.frame_at(at)) == (at, i)
        assert [varied.frame_at(at - 1e-7), varied.frame_at(at + 1e-7), varied.frame_at(at + 1e-3)] == [i, i, i + 1]
    assert varied.duration == pytest.approx(9.5 + 9.5 / 47)


def test_spans_at_a_variable_rate(varied: Clock) -> None:
    assert [varied.seconds(i) for i in varied.span(5.0, 6.0)] == [5.0, 5.5]
    assert [varied.seconds(i) for i in varied.span(5.1, 6.1)] == [5.5, 6.0]
    assert varied.span(0.0, 1.0) == range(30)
    assert varied.span(9.0) == range(46, 48)
    for start, end in ((5.1, 5.4), (5.0, 5.4), (5.3, 5.5)):
        assert [varied.seconds(i) for i in varied.span(start, end)] == [5.0], "what is on the screen then"
    assert varied.span(9.6) == varied.span(9.6, 12.0) == range(47, 48)
    assert not varied.span(9.8)


def test_times_of_a_stream() -> None:
    steady = StreamClock(25.0)
    steady.add(7)
    assert [steady.seconds(i) for i in (0, 1, 50)] == [0.0, 0.04, 2.0]
    clock = StreamClock(30.0, Fraction(1, 1000))
    for stamp in (1400, 1433, 1467, 1900, None, 1700, 2500):
        clock.add(stamp)
    rate = 1 / 30
    expected = [0.0, rate, 2 * rate, 0.5, 0.5 + rate, 0.5 + 2 * rate, 1.1, 1.1 + rate]
    assert [clock.seconds(i) for i in range(8)] == pytest.approx(expected, abs=1e-12)
    assert [clock.seconds(i) for i in range(3)] == [0.0, 1 / 30, 2 / 30], "exactly, whatever the stamps were rounded to"
