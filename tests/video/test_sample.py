"""Golden indices, worked out by hand from method.md §6 in the comments."""

import pytest
import torch
from tests.literal.sliding_windows import sliding_windows

from motionformer.video.sample import (
    ClipPlan,
    random_segment_indices,
    random_start,
    segment_indices,
    strided_clip,
    view_starts,
)

BASE = ClipPlan(16, 4)  # 16×4 at 30 fps


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def test_sixteen_by_four_at_thirty_frames_a_second() -> None:
    # 10, then every fourth: the last is 10 + 15·4 = 70.
    assert strided_clip(BASE, 300, 30.0, 10) == [10, 14, 18, 22, 26, 30, 34, 38, 42, 46, 50, 54, 58, 62, 66, 70]


def test_a_video_at_half_the_rate_is_stepped_half_as_far() -> None:
    # 15 fps: 4 frames at 30 fps are 2 of the video's own.
    assert strided_clip(BASE, 300, 15.0, 0) == [0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30]


def test_a_rate_that_does_not_divide_rounds_each_frame_downwards() -> None:
    # 25 fps: a step of 4·25/30 = 10/3, so k·10/3 = 0, 3⅓, 6⅔, 10, 13⅓, 16⅔, 20, 23⅓.
    assert strided_clip(ClipPlan(8, 4), 300, 25.0, 0) == [0, 3, 6, 10, 13, 16, 20, 23]


def test_twelve_frames_a_second_repeats_none_at_stride_four() -> None:
    # 12 fps (SSv2): a step of 4·12/30 = 1.6 → 0, 1.6, 3.2, 4.8, 6.4, 8, 9.6, 11.2.
    assert strided_clip(ClipPlan(8, 4), 300, 12.0, 0) == [0, 1, 3, 4, 6, 8, 9, 11]


def test_broadcast_rate_is_its_fraction() -> None:
    # 30000/1001 fps: k·4000/1001 lies just below 4k, so every index after the first is one less than at 30 fps.
    assert strided_clip(ClipPlan(4, 4), 300, 30000 / 1001, 0) == [0, 3, 7, 11]


def test_own_frames_ignore_the_rate() -> None:
    assert strided_clip(ClipPlan(4, 8, fps=None), 300, 59.94, 5) == [5, 13, 21, 29]


def test_short_video_repeats_its_last_frame() -> None:
    # 6 frames at stride 4: 0, 4, then 8 and beyond are past the end.
    assert strided_clip(ClipPlan(4, 4), 6, 30.0, 0) == [0, 4, 5, 5]
    assert strided_clip(BASE, 1, 30.0, 0) == [0] * 16


def test_ten_views_of_ten_seconds() -> None:
    # 300 frames, a clip spans 15·4 + 1 = 61, so the last start is 239; view i starts at ⌊239·i/9⌋.
    # 239/9 = 26.56: 0, 26.56, 53.11, 79.67, 106.22, 132.78, 159.33, 185.89, 212.44, 239.
    starts = view_starts(BASE, 300, 30.0, 10)
    assert starts == [0, 26, 53, 79, 106, 132, 159, 185, 212, 239]
    assert strided_clip(BASE, 300, 30.0, starts[-1])[-1] == 299


def test_one_view_is_the_middle_and_short_videos_have_one_start() -> None:
    assert view_starts(BASE, 300, 30.0, 1) == [119]  # ⌊239/2⌋
    assert view_starts(BASE, 40, 30.0, 3) == [0, 0, 0]


def test_thirty_two_by_three() -> None:
    # span 31·3 + 1 = 94; 100 − 94 = 6.
    assert view_starts(ClipPlan(32, 3), 100, 30.0, 3) == [0, 3, 6]


def test_random_start_reaches_every_place_and_no_other() -> None:
    # 64 frames, span 61: starts 0, 1, 2, 3.
    generator = seeded()
    assert {random_start(BASE, 64, 30.0, generator) for _ in range(200)} == {0, 1, 2, 3}
    assert random_start(BASE, 10, 30.0, generator) == 0


def test_random_start_is_the_generators() -> None:
    draws = [[random_start(BASE, 1000, 30.0, g) for _ in range(5)] for g in (seeded(3), seeded(3))]
    assert draws[0] == draws[1]


def test_middles_of_sixteen_segments() -> None:
    # 48 frames: parts of 3, middles 1, 4, 7, …
    assert segment_indices(48, 16) == [1, 4, 7, 10, 13, 16, 19, 22, 25, 28, 31, 34, 37, 40, 43, 46]
    # 40 frames: parts of 2.5, middles at 1.25 + 2.5k = 1.25, 3.75, 6.25, 8.75, …, 38.75.
    assert segment_indices(40, 16) == [1, 3, 6, 8, 11, 13, 16, 18, 21, 23, 26, 28, 31, 33, 36, 38]


def test_middles_of_a_video_shorter_than_its_segments() -> None:
    # 3 frames in 8 parts of 0.375: middles at 0.1875 + 0.375k = 0.19, 0.56, 0.94, 1.31, 1.69, 2.06, 2.44, 2.81.
    assert segment_indices(3, 8) == [0, 0, 0, 1, 1, 2, 2, 2]


def test_random_segments_stay_in_their_parts_and_reach_all_of_them() -> None:
    # 10 frames in 4 parts that begin at ⌊2.5k⌋: 0–1, 2–4, 5–6, 7–9.
    generator = seeded()
    draws = [random_segment_indices(10, 4, generator) for _ in range(200)]
    assert [sorted(set(part)) for part in zip(*draws, strict=True)] == [[0, 1], [2, 3, 4], [5, 6], [7, 8, 9]]
    # 2 frames in 4 parts that begin at ⌊k/2⌋.
    assert random_segment_indices(2, 4, generator) == [0, 0, 1, 1]


def test_windows_cover_a_long_video_and_the_last_ends_with_it() -> None:
    # span 3·2 + 1 = 7 of 20 frames: starts 0, 5, 10; 13 is the last that fits, and 17–19 are not yet shown.
    windows = list(sliding_windows(ClipPlan(4, 2), 20, 30.0, hop=5))
    assert [(w.start, w.end) for w in windows] == [(0, 7), (5, 12), (10, 17), (13, 20)]
    assert [w.indices for w in windows] == [[0, 2, 4, 6], [5, 7, 9, 11], [10, 12, 14, 16], [13, 15, 17, 19]]


def test_windows_that_end_evenly_have_no_extra_one() -> None:
    # last start 20 − 7 = 13 is no multiple of 6; of 19 − 7 = 12 it is.
    assert [w.start for w in sliding_windows(ClipPlan(4, 2), 19, 30.0, hop=6)] == [0, 6, 12]
    assert [w.start for w in sliding_windows(ClipPlan(4, 2), 20, 30.0, hop=6)] == [0, 6, 12, 13]


def test_a_video_shorter_than_a_window_has_one() -> None:
    (window,) = sliding_windows(ClipPlan(4, 2), 5, 30.0, hop=3)
    assert (window.start, window.end, window.indices) == (0, 5, [0, 2, 4, 4])


def test_windows_come_one_at_a_time() -> None:
    windows = sliding_windows(BASE, 10**12, 30.0, hop=1)  # a list of them would not fit in memory
    assert next(windows).start == 0
    assert next(windows).start == 1


@pytest.mark.parametrize("num_frames", [1, 2, 15, 61, 300])
@pytest.mark.parametrize("fps", [0.5, 12.0, 23.976, 30.0, 59.94, 240.0])
def test_never_out_of_range(num_frames: int, fps: float) -> None:
    generator = seeded()
    clips = [
        *(strided_clip(BASE, num_frames, fps, start) for start in view_starts(BASE, num_frames, fps, 10)),
        strided_clip(BASE, num_frames, fps, random_start(BASE, num_frames, fps, generator)),
        segment_indices(num_frames, 16),
        random_segment_indices(num_frames, 16, generator),
        *(window.indices for window in sliding_windows(BASE, num_frames, fps, 16)),
    ]
    for clip in clips:
        assert len(clip) == 16
        assert clip == sorted(clip)
        assert clip[0] >= 0
        assert clip[-1] < num_frames


def test_refuses_nonsense() -> None:
    with pytest.raises(ValueError, match="at least 1 frame"):
        ClipPlan(0, 4)
    with pytest.raises(ValueError, match="positive number of frames per second"):
        strided_clip(BASE, 10, 0.0, 0)
    with pytest.raises(ValueError, match="at least one frame"):
        segment_indices(0, 8)
    with pytest.raises(ValueError, match="at least one view"):
        view_starts(BASE, 10, 30.0, 0)
