"""DAVIS on discs whose masks are known: folders of 2016 and 2017, tracking beats copying, and files give the same."""

import shutil
from pathlib import Path

import pytest
import torch

from motionformer.errors import MaskError
from motionformer.experiments.davis import _mask_files, evaluate, find_sequences, score_folders
from motionformer.experiments.davis.score import Scores
from motionformer.tracking.masks import read_mask, write_mask
from motionformer.tracking.propagation import Affinity, ClipFeatures
from motionformer.tracking.tracker import CopyFirst, LabelPropagation, Tracker, open_backbone
from motionformer.video import open_video
from motionformer.video.images import list_frames
from tests.tracking.discs import write_davis
from tests.tracking.test_tracker import untrained


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return write_davis(tmp_path, {"dog": 0, "bear": 1, "camel": 2}, frames=3, size=16)


def names(root: Path, **options: object) -> list[str]:
    return [sequence.name for sequence in find_sequences(root, **options)]  # type: ignore[arg-type]


def write_list(root: Path, place: str, text: str) -> None:
    (root / "ImageSets" / place).parent.mkdir(parents=True, exist_ok=True)
    (root / "ImageSets" / place).write_text(text)


def test_all_sequences_that_have_masks(root: Path) -> None:
    assert names(root) == ["bear", "camel", "dog"]
    [dog] = find_sequences(root, names=("dog",))
    assert [file.name for file in dog.masks] == ["00000.png", "00001.png", "00002.png"]


def test_names_as_a_shell_completes_them(root: Path) -> None:
    """Once each; what other programs hide in the folder is no sequence."""
    assert names(root, names=("dog/", "bear", "dog")) == ["dog", "bear"]
    (root / "Annotations/480p/.ipynb_checkpoints").mkdir()
    assert names(root) == ["bear", "camel", "dog"]


def test_numbers_without_leading_zeros(tmp_path: Path) -> None:
    root = write_davis(tmp_path, {"dog": 0}, frames=12, size=16)
    for kind in ("JPEGImages", "Annotations"):
        for file in list((root / kind / "480p/dog").iterdir()):
            file.rename(file.with_stem(str(int(file.stem))))
    [dog] = find_sequences(root)
    assert [file.stem for file in dog.masks] == [file.stem for file in list_frames(dog.folder)]
    assert [file.stem for file in dog.masks] == [str(i) for i in range(12)]
    assert _mask_files(root / "Annotations/480p/dog") == dog.masks


def test_a_sequence_too_short_to_score_is_named(root: Path) -> None:
    for kind in ("JPEGImages", "Annotations"):
        (root / kind / "480p/camel/00002.png").unlink()
    with pytest.raises(MaskError, match=r"^camel: .*camel holds 2 frames.* it needs 3 or more"):
        find_sequences(root)
    assert names(root, names=("dog", "bear")) == ["dog", "bear"]


def test_lists_of_both_years(root: Path) -> None:
    write_list(root, "2017/val.txt", "dog\n\ncamel\n")
    lines = [f"/JPEGImages/480p/bear/{i:05d}.jpg /Annotations/480p/bear/{i:05d}.png\n" for i in range(3)]
    write_list(root, "480p/val.txt", "".join(lines))
    assert names(root, split="val") == names(root, split="val", year=2017) == ["dog", "camel"]
    assert names(root, split="val", year=2016) == ["bear"]


def test_what_is_missing_is_named(root: Path, tmp_path: Path) -> None:
    with pytest.raises(MaskError, match="is not a DAVIS folder: it has no JPEGImages/480p"):
        find_sequences(tmp_path / "ImageSets")
    with pytest.raises(MaskError, match="there is no list of 'test-dev'"):
        find_sequences(root, split="test-dev")
    with pytest.raises(MaskError, match="2016 and 2017, not in 2018"):
        find_sequences(root, split="val", year=2018)
    with pytest.raises(MaskError, match="cat: there is no such sequence"):
        find_sequences(root, names=("cat",))
    (root / "Annotations/480p/dog/00001.png").unlink()
    with pytest.raises(MaskError, match="no mask for 1 frame, 00001 the first"):
        find_sequences(root)
    shutil.copy(root / "Annotations/480p/camel/00001.png", root / "Annotations/480p/camel/00003.png")
    with pytest.raises(MaskError, match=r"no frame in .*camel for 1 mask, 00003\.png the first"):
        find_sequences(root, names=("camel",))


def test_lists_that_do_not_hold_what_was_asked_for(root: Path) -> None:
    write_list(root, "2017/val.txt", "dog\n")
    assert names(root, split="val", names=("dog",)) == ["dog"]
    with pytest.raises(MaskError, match="bear: there is no such sequence in the list 'val'"):
        names(root, split="val", names=("bear",))
    with pytest.raises(MaskError, match="no list of 'test'"):
        names(root, split="test", names=("bear",))
    with pytest.raises(MaskError, match="not in 1999"):
        names(root, year=1999)
    write_list(root, "2017/none.txt", "\n")
    with pytest.raises(MaskError, match=r"none\.txt: the list is empty"):
        names(root, split="none")


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
