"""_Windows of a stream are those of a video whose length is known."""

import math
import threading
from collections.abc import Iterator
from fractions import Fraction

import pytest

from motionformer.errors import EvaluationError
from motionformer.inference import timeline as live
from motionformer.inference.timeline import Windows
from motionformer.models import InputSpec
from motionformer.video.sample import ClipPlan, segment_indices
from tests.literal.sliding_windows import sliding_windows


@pytest.mark.parametrize("num_frames", [1, 5, 60, 61, 62, 200])
@pytest.mark.parametrize(("fps", "hop"), [(30.0, 1), (30.0, 7), (30.0, 100), (25.0, 30), (29.97, 61)])
def test_equal_to_sliding_windows(num_frames: int, fps: float, hop: int) -> None:
    spec = InputSpec(frames=16, stride=4)
    plan = ClipPlan(16, 4, 30.0)
    windows = Windows.of_model(spec, fps)
    windows = Windows(windows.span, Fraction(hop), windows.pick)
    found = [(one.start, one.end, one.frames) for one in windows.slide(iter(range(num_frames)))]
    expected = [(one.start, one.end, one.indices) for one in sliding_windows(plan, num_frames, fps, hop)]
    assert found == expected


def test_a_window_comes_as_soon_as_it_can() -> None:
    seen = 0

    def frames() -> Iterator[int]:
        nonlocal seen
        for number in range(10):
            seen = number
            yield number

    windows = Windows(4, Fraction(2), lambda count: list(range(count)))
    assert [(seen, one.frames) for one in windows.slide(frames())] == [
        (3, [0, 1, 2, 3]),
        (5, [2, 3, 4, 5]),
        (7, [4, 5, 6, 7]),
        (9, [6, 7, 8, 9]),
    ]


def test_seconds_do_not_drift() -> None:
    """0.64 s at 29.97 frames a second are 19.18 frames: rounding each would be 18 s off after an hour."""
    fps = 30000 / 1001
    starts = [one.start for one in Windows.even(InputSpec(frames=16), fps, 0.64).slide(range(5000))]
    assert all(abs(start / fps - 0.64 * i) < 1 / fps for i, start in enumerate(starts[:-1]))
    one = next(Windows.even(InputSpec(frames=16), 25.0, 0.64).slide(range(5000)))
    assert one.frames == list(range(16))


def test_windows_overlap_by_half_by_default() -> None:
    windows = Windows.of_model(InputSpec(frames=16, stride=4), 30.0)
    assert (windows.span, windows.hop) == (61, 30)
    assert Windows.of_model(InputSpec(frames=2, stride=1), 5.0).hop == 1, "a clip within one frame"
    by_frames = Windows.of_model(InputSpec(frames=16, stride=4, fps=None), 5.0)
    assert (by_frames.span, by_frames.pick(61)) == (61, list(range(0, 61, 4)))


def test_segments_have_a_length_of_their_own() -> None:
    spec = InputSpec(frames=8, sampling="segments")
    windows = Windows.of_model(spec, 12.0, seconds=2.0)
    assert (windows.span, windows.hop) == (24, 12)
    assert windows.pick(24) == segment_indices(24, 8)
    assert Windows.of_model(spec, 12.0).span == 48


def test_nothing_and_nonsense() -> None:
    assert list(Windows.even(InputSpec(frames=4), 30.0, 1.0).slide([])) == []
    segments = InputSpec(sampling="segments")
    for wrong in (0.0, -1.0, math.nan, math.inf):
        with pytest.raises(EvaluationError, match=rf"hop \({wrong:g}\) must be a number of seconds above 0"):
            Windows.of_model(InputSpec(), 30.0, hop=wrong)
        with pytest.raises(EvaluationError, match=rf"hop \({wrong:g}\) must be a number of seconds above 0"):
            Windows.of_model(segments, 30.0, hop=wrong)
        with pytest.raises(
            EvaluationError, match=rf"length of a window \({wrong:g}\) must be a number of seconds above 0"
        ):
            Windows.of_model(segments, 30.0, seconds=wrong)
    with pytest.raises(EvaluationError, match="their own length"):
        Windows.of_model(InputSpec(), 30.0, seconds=2.0)


WHOLE = Windows(4, Fraction(2), lambda count: list(range(count)))


def test_live_windows_are_the_newest() -> None:
    """The source hands out 4 frames, then all the rest while the taker is busy: only the newest are seen."""
    busy = threading.Event()
    all_read = threading.Event()

    def frames() -> Iterator[int]:
        yield from range(4)
        busy.wait(10)
        yield from range(4, 100)
        all_read.set()

    found = []
    for one in WHOLE.latest(frames()):
        found.append(one.frames)
        busy.set()
        assert all_read.wait(10)
    assert found == [[0, 1, 2, 3], [96, 97, 98, 99]]


def test_live_ends_and_errors() -> None:
    assert [one.frames for one in WHOLE.latest(iter([1, 2]))] == [[1, 2]]
    assert list(WHOLE.latest(iter([]))) == []

    def breaks() -> Iterator[int]:
        yield 1
        raise OSError("unplugged")

    with pytest.raises(OSError, match="unplugged"):
        list(WHOLE.latest(breaks()))


def test_a_taker_that_leaves_ends_the_thread() -> None:
    def endless() -> Iterator[int]:
        while True:
            yield 0

    newest = WHOLE.latest(endless())
    next(newest)
    newest.close()
    assert not [thread for thread in threading.enumerate() if thread.name == "motionformer-watch"]


def test_a_source_that_hangs_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "_PATIENCE", 0.1)
    goes_on = threading.Event()

    def hangs() -> Iterator[int]:
        yield from range(4)
        goes_on.wait(20)
        yield 4

    newest = WHOLE.latest(hangs())
    next(newest)
    (thread,) = (one for one in threading.enumerate() if one.name == "motionformer-watch")
    newest.close()
    assert thread.is_alive()
    goes_on.set()
    thread.join(20)
    assert not thread.is_alive(), "it ends as soon as it can"


def test_a_window_longer_than_any_video() -> None:
    (one,) = Windows.even(InputSpec(frames=4), 30.0, 1e300).slide(range(50))
    assert (one.start, one.end, one.frames) == (0, 50, segment_indices(50, 4))
