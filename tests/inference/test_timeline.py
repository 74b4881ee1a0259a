"""Long videos: the right windows, the right segments, each frame decoded once, memory that does not grow."""

import json
from dataclasses import replace
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest
import torch

from motionformer.data import ClipReader
from motionformer.errors import EvaluationError, VideoError
from motionformer.inference import FeatureExtractor, Prediction, Predictor, Timeline
from motionformer.inference.pictures import _clock, _step, draw_timeline
from motionformer.models import Motionformer
from motionformer.video import open_video
from motionformer.video.container import VideoFile
from motionformer.video.sample import ClipPlan
from tests.inference.conftest import make_model
from tests.literal.sliding_windows import sliding_windows
from tests.video.numbered import write_video


def test_windows_are_predictions_of_their_frames(model: Motionformer, clip: Path) -> None:
    predictor = Predictor(model)
    found = predictor.timeline(clip, hop=7 / 30)
    expected = list(sliding_windows(ClipPlan(4, 3, 30.0), 40, 30.0, 7))
    assert [(round(one.start * 30), round(one.end * 30)) for one in found.windows] == [
        (one.start, one.end) for one in expected
    ]
    single = Predictor(model, views=1)
    with open_video(clip) as video:
        for one, window in zip(found.windows, expected, strict=True):
            alone = single(video.read(range(window.start, window.end)), fps=30.0)
            np.testing.assert_allclose(one.views["class"], alone.views["class"], atol=1e-6)


def test_seconds_of_a_variable_rate_are_those_of_its_frames(model: Motionformer, tmp_path: Path) -> None:
    times = [*range(0, 1000, 100), *range(1000, 16000, 500)]
    path = write_video(tmp_path / "x.mkv", num_frames=40, times=times, tick=Fraction(1, 1000))
    seconds = [time / 1000 for time in times]
    for batch in (1, 30):
        found = Predictor(model, crops=1, batch_size=batch).timeline(path).windows
        assert len(found) > 2
        for one, after in pairwise(found):
            assert one.start in seconds
            assert one.end in seconds
            assert after.start <= one.end, "windows that share frames, or lie side by side, touch"
    clips = FeatureExtractor(model, segments=0.5)(path)
    assert len(clips.times) > 1
    assert set(clips.times[:-1].flatten().tolist()) <= set(seconds)
    assert clips.times[-1, 0] in seconds
    views = ClipReader(model.config.input).read(path)
    assert {start for start, _ in views.times} <= set(seconds)


def test_a_stream_is_a_timeline(model: Motionformer, clip: Path) -> None:
    predictor = Predictor(model, crops=1)
    with open_video(clip) as video:
        frames = video.read(range(40))
    found = list(predictor.stream(iter(frames), 30.0, every=0.2))
    expected = predictor.timeline(clip, hop=0.2).windows
    assert [(one.start, one.end) for one in found] == [(one.start, one.end) for one in expected]
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one.scores["class"], other.scores["class"], atol=1e-6)


def test_watch_takes_a_file_for_a_camera(model: Motionformer, clip: Path) -> None:
    predictor = Predictor(model, crops=1)
    found = list(predictor.watch(str(clip), every=0.1))
    assert found
    ends = [round(one.end * 30) for one in found]
    assert ends == sorted(set(ends))
    with open_video(clip) as video:  # whatever the timing was: each is of ten consecutive frames
        for one in found:
            first, last = round(one.start * 30), round(one.end * 30)
            assert last - first == 10
            alone = Predictor(model, views=1, crops=1)(video.read(range(first, last)), fps=30.0)
            np.testing.assert_allclose(one.scores["class"], alone.scores["class"], atol=1e-6)


def test_each_frame_is_decoded_once(model: Motionformer, clip: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    decoded = 0
    frames_of = VideoFile.frames

    def counting(*words: Any) -> Any:
        nonlocal decoded
        for frame in frames_of(*words):
            decoded += 1
            yield frame

    monkeypatch.setattr(VideoFile, "frames", counting)
    assert len(Predictor(model, crops=1).timeline(clip, hop=1 / 30).windows) == 31
    assert decoded == 40


def made(scores: list[list[float]], hop: float = 1.0, length: float = 2.0) -> Timeline:
    names = {"class": tuple("abc")}
    windows = tuple(
        Prediction("x.mp4", names, {"class": np.array([[row]], dtype=np.float32)}, i * hop, i * hop + length)
        for i, row in enumerate(scores)
    )
    return Timeline("x.mp4", windows[-1].end or 0.0, windows)


def test_segments() -> None:
    timeline = made([[0.9, 0.1, 0], [0.6, 0.4, 0], [0.1, 0.9, 0], [0.7, 0.3, 0], [0.5, 0.5, 0]])
    found = [(one.start, one.end, one.label, round(one.score, 3)) for one in timeline.segments(0.5)]
    assert found == [(0.0, 3.0, "a", 0.9), (2.0, 4.0, "b", 0.9), (3.0, 6.0, "a", 0.7), (4.0, 6.0, "b", 0.5)]
    assert timeline.segments(0.95) == []
    apart = made([[0.9, 0.1, 0], [0.9, 0.1, 0]], hop=3.0)  # between the windows nobody looked
    assert [(one.start, one.end) for one in apart.segments(0.5)] == [(0.0, 2.0), (3.0, 5.0)]
    with pytest.raises(EvaluationError, match=r"threshold` \(1\.5\) must be above 0 and at most 1"):
        timeline.segments(1.5)


def test_segments_equal_a_plain_loop() -> None:
    """Every class and second by itself: a second is inside a segment if some window over it reaches the threshold."""
    scores = np.random.default_rng(0).random((40, 3)).tolist()
    timeline = made(scores)
    for index in range(3):
        inside = {s for s in range(42) for w in range(40) if w <= s < w + 2 and scores[w][index] >= np.float32(0.7)}
        segments = [one for one in timeline.segments(0.7) if one.index == index]
        assert {s for one in segments for s in range(int(one.start), int(one.end))} == inside
        # two runs may overlap by the second that both windows cover, never more
        assert all(b.start - a.start >= 2 for a, b in pairwise(segments))


def test_files_and_picture(tmp_path: Path) -> None:
    timeline = made([[0.9, 0.1, 0], [0.6, 0.4, 0], [0.1, 0.9, 0]])
    assert timeline.to_csv(0.5).splitlines()[1] == "0.0,3.0,class,0,a,0.9"
    plain = json.loads(timeline.to_json(0.5, top=1))
    assert [one["label"] for one in plain["segments"]] == ["a", "b"]
    assert [one["top"][0]["label"] for one in plain["windows"]] == ["a", "a", "b"]
    picture = draw_timeline(timeline, tmp_path / "new" / "t.png", 0.5)
    assert picture.read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
    assert draw_timeline(timeline, tmp_path / "none.png", 1.0).stat().st_size > 0
    assert [_clock(s) for s in (0.0, 61.5, 3600.0)] == ["0:00", "1:01.5", "1:00:00"]
    assert [_step(s) for s in (0.5, 10.3, 3000.0, 1e6)] == [0.1, 2.0, 300.0, 100800.0]


def test_dollars_in_names_are_dollars(tmp_path: Path) -> None:
    timeline = made([[0.9, 0.1, 0], [0.6, 0.4, 0]])
    windows = tuple(replace(one, labels={"class": ("$_$", "US$5 or US$_", "c")}) for one in timeline.windows)
    picture = draw_timeline(replace(timeline, video="price$_$1.mp4", windows=windows), tmp_path / "t.svg", 0.3)
    assert picture.stat().st_size > 0


def test_a_short_and_a_broken_video(model: Motionformer, tmp_path: Path) -> None:
    short = write_video(tmp_path / "short.mp4", num_frames=3)
    found = Predictor(model).timeline(short)
    assert [(one.start, round(one.end, 3)) for one in found.windows] == [(0.0, 0.1)]
    (tmp_path / "bad.mp4").write_text("no video")
    with pytest.raises(VideoError, match=r"bad\.mp4: Invalid data"):
        Predictor(model).timeline(tmp_path / "bad.mp4")


def write_hour(path: Path) -> Path:
    """3,600 flat pictures of 96 × 128, one a second."""
    with av.open(str(path), "w") as container:
        out = container.add_stream("mpeg4", rate=1)
        out.height, out.width, out.pix_fmt = 96, 128, "yuv420p"
        for number in range(3600):
            picture = np.full((144, 128), number % 250, np.uint8)
            container.mux(out.encode(av.VideoFrame.from_ndarray(picture, format="yuv420p")))
        container.mux(out.encode())
    return path


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="asks /proc for the memory")
def test_memory_is_flat(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An hour of frames would be 133 MB if all were kept."""
    predictor = Predictor(make_model(fps=1.0, stride=1, height=96, width=96, patch=48), crops=1)
    shrink, memory, seen = predictor._resize, [], 0

    def watched(frame: torch.Tensor) -> torch.Tensor:
        nonlocal seen
        seen += 1
        if seen % 400 == 0:
            status = Path("/proc/self/status").read_text().splitlines()
            memory.append(1024 * int(next(line for line in status if line.startswith("VmRSS:")).split()[1]))
        return shrink(frame)

    monkeypatch.setattr(predictor, "_resize", watched)
    found = predictor.timeline(write_hour(tmp_path / "hour.mkv"), hop=60.0)
    assert seen == 3600
    assert len(found.windows) == 61
    assert found.duration == 3600.0
    assert memory[-1] - memory[0] < 30e6, f"grew by {(memory[-1] - memory[0]) / 1e6:.0f} MB"


def test_the_bounds_of_a_segment() -> None:
    """A score that just reaches the threshold counts; windows that just touch are one run; every score reaches 0."""
    only_just = made([[0.5, 0.25, 0], [0.25, 0.25, 0]])
    assert [(one.label, one.start, one.end) for one in only_just.segments(0.5)] == [("a", 0.0, 2.0)]
    side_by_side = made([[0.9, 0, 0], [0.9, 0, 0], [0, 0, 0.9]], hop=2.0)
    assert [(one.label, one.start, one.end) for one in side_by_side.segments(0.5)] == [("a", 0.0, 4.0), ("c", 4.0, 6.0)]
    assert made([[1.0, 0, 0]]).segments(1.0)
    with pytest.raises(EvaluationError, match=r"threshold` \(0\) must be above 0 and at most 1"):
        only_just.segments(0.0)
