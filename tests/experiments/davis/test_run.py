"""The whole path on discs whose masks are known: following beats copying, streams, and writes what it says."""

from itertools import count
from pathlib import Path

import pytest
import torch
from torch import Tensor

from motionformer.errors import MaskError
from motionformer.experiments.davis.layout import find_sequences
from motionformer.experiments.davis.run import evaluate, score_folders
from motionformer.experiments.davis.score import Scores
from motionformer.tracking.affinity import Affinity, FrameTokens
from motionformer.tracking.features import ClipFeatures, TokenReadout
from motionformer.tracking.masks import one_hot, read_mask, write_mask
from motionformer.tracking.overlay import OverlayWriter, paint
from motionformer.tracking.propagation import decide, propagate_mask, to_grid
from motionformer.tracking.tracker import CopyFirst, LabelPropagation, Tracker, open_backbone
from motionformer.video import open_video
from tests.tracking.discs import disc_clip, write_davis


def total(root: Path, tracker: Tracker, **options: Path) -> Scores:
    done = evaluate(find_sequences(root), tracker, **options)  # type: ignore[arg-type]
    return Scores(tuple(score for _, found, _ in done for score in found))


def untrained() -> LabelPropagation:
    """Random tokens of pixels: enough for a disc whose texture moves with it."""
    features = ClipFeatures(open_backbone("joint-tiny", seed=0), TokenReadout(0), clip=1, height=192)
    return LabelPropagation(features, Affinity())


def test_following_beats_copying_and_files_say_the_same(tmp_path: Path) -> None:
    root = write_davis(tmp_path / "davis", {"left": 4, "right": 0}, frames=6, size=96)
    copied = total(root, CopyFirst())
    followed = total(root, untrained(), masks=tmp_path / "masks", overlays=tmp_path / "overlays")
    assert copied.J.mean < 0.4
    assert followed.J.mean > 0.7
    assert followed.F.mean > copied.F.mean + 0.2
    again = score_folders(tmp_path / "masks", find_sequences(root))
    assert Scores(tuple(score for _, found in again for score in found)) == followed
    with open_video(tmp_path / "overlays" / "left.mp4") as video:
        assert (video.metadata.num_frames, video.metadata.height) == (6, 96)


def test_a_weak_label_wins_where_it_is_strongest() -> None:
    """Layers are compared after each is stretched to 0 … 1; one that is the same everywhere wins nowhere."""
    label = torch.full((3, 4, 4), 0.2)
    label[0] = 0.7
    label[0, :, 3] = 0.6  # the background gives way a little in the last column, where object 5 is never ahead of it
    label[1, :, 3] = 0.3
    found = decide(label, [5, 9], (4, 4))
    assert found[:, 3].tolist() == [5] * 4
    assert (found[:, :3] == 0).all()


def test_a_layer_without_differences_is_not_stretched() -> None:
    """Rounding would become a mask; an object that fills the frame would become the background."""
    gone = torch.stack((torch.ones(4, 4), torch.zeros(4, 4)))
    gone[1, 0, 0] = 1e-6
    assert (decide(gone, [5], (8, 8)) == 0).all()
    assert (decide(gone.flip(0), [5], (8, 8)) == 5).all()


def test_without_the_stretch_what_has_left_stays_away() -> None:
    left = torch.stack((torch.full((4, 4), 0.9), torch.full((4, 4), 0.1)))
    left[:, 0, 0] = torch.tensor([0.8, 0.2])
    assert (decide(left, [5], (4, 4)) == 5).any()
    assert (decide(left, [5], (4, 4), stretch=False) == 0).all()


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
    expected = decide(to_grid(one_hot(masks[0], [1]), (12, 12)), [1], (96, 96))
    assert torch.equal(last, expected)  # all that is lost is what the grid cannot show


def test_streams_with_a_bounded_context() -> None:
    """An endless video: one frame is read for one mask, and no more tokens are alive than the context holds."""
    import gc
    import weakref

    alive: list[weakref.ref[Tensor]] = []

    def endless() -> object:
        for _ in count():
            key = torch.randn(1, 4, 4, 8)
            alive.append(weakref.ref(key))
            yield FrameTokens(key, key)
            del key

    first = torch.zeros(16, 16, dtype=torch.uint8)
    first[4:12, 4:12] = 1
    masks = propagate_mask(endless(), first, Affinity(), context=3)  # type: ignore[arg-type]
    for _ in range(20):
        next(masks)
    gc.collect()
    assert len(alive) == 20
    assert sum(ref() is not None for ref in alive) <= 1 + 3 + 1


def test_the_first_frame_is_remembered() -> None:
    """Tokens like the first frame's take its labels, even if the frames between had lost the object."""
    tokens = torch.nn.functional.normalize(torch.randn(1, 4, 4, 32), dim=-1)
    noise = [torch.nn.functional.normalize(torch.randn(1, 4, 4, 32), dim=-1) for _ in range(6)]
    first = torch.zeros(16, 16, dtype=torch.uint8)
    first[4:12, 4:12] = 1
    frames = [FrameTokens(key, key) for key in (tokens, *noise, tokens)]
    *_, lost, last = propagate_mask(frames, first, Affinity(top_k=1), context=2)
    expected = decide(to_grid(one_hot(first, [1]), (4, 4)), [1], (16, 16))
    assert torch.equal(last, expected)
    assert not torch.equal(lost, expected)


def test_paint_shows_frame_mask_and_outline() -> None:
    frame, mask = torch.full((12, 12, 3), 100, dtype=torch.uint8), torch.zeros(12, 12, dtype=torch.uint8)
    mask[3:9, 3:9] = 1
    picture = paint(frame, mask, opacity=0.5)
    assert picture[0, 0].tolist() == [100, 100, 100]
    assert picture[5, 5].tolist() == [114, 50, 50]
    assert picture[2, 5].tolist() == [255, 255, 255]


def test_predictions_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    root = write_davis(tmp_path / "davis", {"dog": 0}, frames=4, size=16)
    total(root, CopyFirst(), masks=tmp_path / "masks")
    (tmp_path / "masks" / "dog" / "00002.png").unlink()
    with pytest.raises(MaskError, match=r"dog: 00002\.png is missing \(1 in all\)"):
        list(score_folders(tmp_path / "masks", find_sequences(root)))
    with pytest.raises(MaskError, match="no such folder"):
        list(score_folders(tmp_path / "nothing", find_sequences(root)))


def test_what_does_not_count_may_be_missing(tmp_path: Path) -> None:
    root = write_davis(tmp_path / "davis", {"dog": 0}, frames=5, size=32)
    whole = total(root, CopyFirst(), masks=tmp_path / "masks")
    for name in ("00000.png", "00004.png"):
        (tmp_path / "masks/dog" / name).unlink()
    again = score_folders(tmp_path / "masks", find_sequences(root))
    assert Scores(tuple(score for _, found in again for score in found)) == whole


def test_nothing_runs_before_every_first_mask_is_checked(tmp_path: Path) -> None:
    root = write_davis(tmp_path / "davis", {"bear": 0, "dog": 1}, frames=4, size=16)
    write_mask(root / "Annotations/480p/dog/00000.png", torch.zeros(16, 16, dtype=torch.uint8))
    with pytest.raises(MaskError, match=r"dog.00000\.png: the mask shows no object"):
        evaluate(find_sequences(root), CopyFirst(), masks=tmp_path / "masks")
    assert not (tmp_path / "masks").exists()


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


@pytest.mark.shared
def test_image_weights_follow_a_real_object(shared: Path) -> None:
    """DINOv2 on small frames and the first eight of one sequence; the whole of it is docs/davis.md's."""
    weights = shared / "weights" / "dinov2_vits14_fp16.safetensors"
    [dog] = find_sequences(shared / "data" / "davis", names=("dog",))
    tracker = LabelPropagation(ClipFeatures(open_backbone(weights, from_image=True), clip=1, height=126), Affinity())
    with open_video(dog.folder) as video:
        *_, last = tracker.track(video.read(range(0, 60, 8)), read_mask(dog.masks[0]))
    truth, first = read_mask(dog.masks[56]) > 0, read_mask(dog.masks[0]) > 0
    followed = ((last > 0) & truth).sum() / ((last > 0) | truth).sum()
    assert followed > (first & truth).sum() / (first | truth).sum() + 0.3
