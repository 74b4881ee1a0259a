"""Pixels to tokens and back: equal to what the model's own transform does to a frame."""

from pathlib import Path

import pytest
import torch

from motionformer.errors import TraceError
from motionformer.models import InputSpec, ModelConfig
from motionformer.tracing.clip import _sample_around, find_geometry, open_clip
from motionformer.video import Clock
from motionformer.video.transforms import eval_transform
from tests.video.numbered import read_number, write_lying_video

SIZES = [(48, 48), (60, 100), (100, 60), (33, 47), (240, 320), (49, 48)]


def config(height: int = 48, width: int = 48, patch: int = 8) -> ModelConfig:
    return ModelConfig(patch=patch, input=InputSpec(frames=8, height=height, width=width))


class TestGeometry:
    @pytest.mark.parametrize("frame", SIZES)
    @pytest.mark.parametrize("want", [(48, 48), (32, 64)])
    def test_centres_are_where_the_transform_takes_the_patches_from(
        self, frame: tuple[int, int], want: tuple[int, int]
    ) -> None:
        """Frames whose colour is their own coordinate: what the model is shown says where it comes from."""
        height, width = frame
        y, x = torch.meshgrid(torch.arange(height) + 0.5, torch.arange(width) + 0.5, indexing="ij")
        coordinates = torch.stack((x, y, x), dim=-1)[None].float()
        spec = InputSpec(height=want[0], width=want[1], mean=(0.0, 0.0, 0.0), std=(1.0, 1.0, 1.0))
        seen = eval_transform(spec)(coordinates)[:2, 0]
        patches = torch.nn.functional.avg_pool2d(seen, 8).flatten(1).T
        centres = find_geometry(config(*want), frame).patch_centres().float()
        rows, columns = want[0] // 8, want[1] // 8
        inner = torch.zeros(rows, columns, dtype=torch.bool)
        inner[1:-1, 1:-1] = True  # at the border of the frame, resizing repeats pixels
        assert torch.allclose(patches[inner.flatten()], centres[inner.flatten()], atol=1e-3 * max(frame))

    @pytest.mark.parametrize("frame", SIZES)
    def test_every_patch_is_found_at_its_own_centre(self, frame: tuple[int, int]) -> None:
        geometry = find_geometry(config(), frame)
        found = [geometry.patch_at(x, y) for x, y in geometry.patch_centres().tolist()]
        assert found == [(row, column) for row in range(6) for column in range(6)]

    def test_token_counts_frame_row_column(self) -> None:
        query = find_geometry(config(), (48, 48)).query((20.0, 9.0), 5)
        assert (query.token_frame, query.row, query.column) == (2, 1, 2)
        assert query.token == 2 * 36 + 1 * 6 + 2

    def test_the_visible_part_of_a_wide_frame_is_its_middle(self) -> None:
        left, top, right, bottom = find_geometry(config(), (240, 320)).visible
        assert (left, top, right, bottom) == (40, 0, 280, 240)

    @pytest.mark.parametrize("at", [(-1.0, 5.0), (320.0, 5.0), (5.0, 240.0), (float("nan"), 5.0)])
    def test_outside_the_frame(self, at: tuple[float, float]) -> None:
        with pytest.raises(TraceError, match=r"outside the frame.*320 × 240"):
            find_geometry(config(), (240, 320)).patch_at(*at)

    @pytest.mark.parametrize("x", [39.9, 280.0])
    def test_cut_off_by_the_crop(self, x: float) -> None:
        with pytest.raises(TraceError, match="x from 40 to 280 and y from 0 to 240"):
            find_geometry(config(), (240, 320)).patch_at(x, 100.0)


class TestSampleAround:
    spec = InputSpec(frames=8, stride=4, fps=30.0)

    @pytest.mark.parametrize("fps", [30.0, 25.0, 29.97, 12.0])
    def test_the_frame_asked_about_is_shown_wherever_there_is_room(self, fps: float) -> None:
        for frame in (*range(0, 200, 9), *range(190, 200)):
            indices, index = _sample_around(self.spec, Clock(200, fps), frame)
            assert indices[index] == frame
            assert len(indices) == 8
            assert 0 <= indices[0] <= indices[-1] < 200

    def test_in_the_middle_of_the_clip_if_it_can_be(self) -> None:
        assert _sample_around(self.spec, Clock(200, 30.0), 100) == ([84, 88, 92, 96, 100, 104, 108, 112], 4)
        assert _sample_around(self.spec, Clock(200, 30.0), 0)[1] == 0
        assert _sample_around(self.spec, Clock(200, 30.0), 199)[1] == 7

    def test_without_a_frame_the_middle_clip(self) -> None:
        indices, index = _sample_around(self.spec, Clock(101, 30.0), None)
        assert indices == [36, 40, 44, 48, 52, 56, 60, 64]
        assert index == 4

    @pytest.mark.parametrize("frame", range(9))
    def test_in_a_short_video_the_nearest_frame_shown(self, frame: int) -> None:
        indices, index = _sample_around(self.spec, Clock(9, 30.0), frame)
        assert abs(indices[index] - frame) == min(abs(i - frame) for i in indices)

    def test_segments_cover_the_video(self) -> None:
        spec = InputSpec(frames=4, sampling="segments")
        assert _sample_around(spec, Clock(80, 30.0), 55) == ([10, 30, 50, 70], 2)
        assert _sample_around(spec, Clock(80, 30.0), None) == ([10, 30, 50, 70], 2)


def test_a_clip_of_a_video_that_announces_too_many_frames(tmp_path: Path) -> None:
    """20, two of which do not exist: the clip is placed in the 18 that do."""
    path = write_lying_video(tmp_path / "x.mp4", num_frames=18, places=(7, 12))
    config = ModelConfig(tubelet=2, input=InputSpec(frames=16, stride=1, fps=30.0))
    for frame in (8, 17):
        clip = open_clip(path, config, frame)
        assert clip.numbers[clip.query_index] == frame
        assert [read_number(one) for one in clip.frames] == list(clip.numbers)
    with pytest.raises(TraceError, match="there is no frame 19; it has 18"):
        open_clip(path, config, frame=19)
