"""Trackers on discs whose masks are known, and what is written of them."""

from collections.abc import Iterable
from pathlib import Path

import pytest
import torch

import motionformer
from motionformer import Predictor, create_model
from motionformer.data.motion import write_video
from motionformer.tracking import (
    Affinity,
    ClipFeatures,
    CopyFirst,
    LabelPropagation,
    TokenReadout,
    make_tracker,
    open_backbone,
    read_mask,
    write_mask,
)
from motionformer.tracking.masks import OverlayWriter, paint
from motionformer.tracking.propagation import _decide, _one_hot, _to_grid
from motionformer.video import read_frames
from tests.tracking.discs import disc_clip


def untrained() -> LabelPropagation:
    """Random tokens of pixels: enough for a disc whose texture moves with it."""
    features = ClipFeatures(open_backbone("joint-tiny", seed=0), TokenReadout(0), clip=1, height=192)
    return LabelPropagation(features, Affinity())


def test_several_objects_stay_apart(tmp_path: Path) -> None:
    frames, masks = disc_clip(4, frames=4, size=96)
    other, other_masks = disc_clip(1, frames=4, size=96)
    wide, first = torch.cat((frames, other), dim=2), torch.cat((3 * masks[0], 7 * other_masks[0]), dim=1)
    *_, last = untrained().track(wide, first)
    for number, truth in (
        (3, torch.cat((masks[-1], 0 * masks[-1]), 1)),
        (7, torch.cat((0 * masks[-1], other_masks[-1]), 1)),
    ):
        found = last == number
        assert (found & (truth > 0)).sum() / (found | (truth > 0)).sum() > 0.6
    assert set(last.unique().tolist()) == {0, 3, 7}


def test_a_still_video_keeps_its_mask() -> None:
    frames, masks = disc_clip(0, frames=1, size=96)
    features = ClipFeatures(open_backbone("joint-tiny"), TokenReadout(0), clip=1, height=96)
    tracker = LabelPropagation(features, Affinity(top_k=1))
    *_, last = tracker.track(frames.expand(5, -1, -1, -1), masks[0])
    expected = _decide(_to_grid(_one_hot(masks[0], [1]), (12, 12)), [1], (96, 96))
    assert torch.equal(last, expected)  # all that is lost is what the grid cannot show


class TestTrack:
    """`motionformer.track`: from files to masks in memory or on disk."""

    @pytest.fixture
    def clip(self, tmp_path: Path) -> Path:
        frames, masks = disc_clip(4, frames=5, size=96)
        write_video(tmp_path / "disc.mp4", frames.numpy(), 8)
        write_mask(tmp_path / "first.png", masks[0])
        return tmp_path / "disc.mp4"

    def test_masks_in_memory_are_those_of_the_tracker(self, clip: Path) -> None:
        options = {"clip": 1, "height": 96, "block": 0}
        found = motionformer.track(Predictor(create_model("joint-tiny")), clip, clip.parent / "first.png", **options)
        assert found.masks is not None
        assert found.masks.shape == (5, 96, 96)
        assert (found.num_frames, found.objects) == (5, {1: 5})
        assert repr(found) == "TrackResult('disc.mp4', 5 frames, visible {1: 5})"
        tracker = make_tracker("joint-tiny", **options)
        first = read_mask(clip.parent / "first.png")
        expected = torch.stack(list(tracker.track(read_frames(clip, range(5)), first)))
        again = motionformer.track(tracker, clip, first)
        assert torch.equal(again.masks, expected)
        assert not torch.equal(again.masks, found.masks)  # other random weights

    def test_written_masks_are_not_held(self, clip: Path, tmp_path: Path) -> None:
        seen: list[int] = []

        def progress(masks: Iterable[torch.Tensor], total: int) -> Iterable[torch.Tensor]:
            seen.append(total)
            return masks

        found = motionformer.track("copy", clip, clip.parent / "first.png", output=tmp_path / "out", progress=progress)
        assert found.masks is None
        assert found.output == tmp_path / "out"
        assert len(list(found.output.iterdir())) == seen[0] == 5

    def test_the_temperature_and_the_radius_are_those_asked_for(self) -> None:
        tracker = make_tracker("joint-tiny", affinity="attention", radius=None, top_k=None, context=2, stretch=False)
        assert tracker.affinity == Affinity(None, None, 1.0)
        assert (tracker.context, tracker.stretch) == (2, False)
        assert make_tracker("joint-tiny", temperature=0.3).affinity == Affinity(temperature=0.3)


def test_paint_shows_frame_mask_and_outline() -> None:
    frame, mask = torch.full((12, 12, 3), 100, dtype=torch.uint8), torch.zeros(12, 12, dtype=torch.uint8)
    mask[3:9, 3:9] = 1
    picture = paint(frame, mask, opacity=0.5)
    assert picture[0, 0].tolist() == [100, 100, 100]
    assert picture[5, 5].tolist() == [114, 50, 50]
    assert picture[2, 5].tolist() == [255, 255, 255]


def test_a_full_disk_names_the_video_and_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "o.mp4.part").symlink_to("/dev/full")
    frame, mask = torch.zeros(64, 64, 3, dtype=torch.uint8), torch.zeros(64, 64, dtype=torch.uint8)

    def write() -> None:
        with OverlayWriter(tmp_path / "o.mp4") as writer:
            for _ in range(80):
                writer.add(torch.randint_like(frame, 255), mask)

    with pytest.raises(OSError, match=r"No space left on device: '.*o\.mp4'"):
        write()
    assert not list(tmp_path.iterdir())


def test_unknown_and_unused_arguments_are_errors_of_the_public_function() -> None:
    with pytest.raises(TypeError, match=r"^track\(\) has no argument `heigth`; .*overlay, .*\bheight\b"):
        motionformer.track("motion-tiny", "a.mp4", "a.png", heigth=240)
    with pytest.raises(TypeError, match=r"^height: options of `make_tracker`; this tracker is made already"):
        motionformer.track(CopyFirst(), "a.mp4", "a.png", height=240)
