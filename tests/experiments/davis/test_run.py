"""DAVIS on discs whose masks are known: following beats copying, and files say the same."""

from pathlib import Path

import pytest
import torch

from motionformer.errors import MaskError
from motionformer.experiments.davis.layout import find_sequences
from motionformer.experiments.davis.run import evaluate, score_folders
from motionformer.experiments.davis.score import Scores
from motionformer.tracking.masks import read_mask, write_mask
from motionformer.tracking.propagation import Affinity, ClipFeatures
from motionformer.tracking.tracker import CopyFirst, LabelPropagation, Tracker, open_backbone
from motionformer.video import open_video
from tests.tracking.discs import write_davis
from tests.tracking.test_tracker import untrained


def total(root: Path, tracker: Tracker, **options: Path) -> Scores:
    done = evaluate(find_sequences(root), tracker, **options)  # type: ignore[arg-type]
    return Scores(tuple(score for _, found, _ in done for score in found))


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
