"""The folders of DAVIS 2016 and 2017."""

import shutil
from pathlib import Path

import pytest

from motionformer.errors import MaskError
from motionformer.experiments.davis.layout import find_sequences, mask_files
from motionformer.video.images import list_frames
from tests.tracking.discs import write_davis


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
    assert mask_files(root / "Annotations/480p/dog") == dog.masks


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
    with pytest.raises(MaskError, match="is no DAVIS folder: it has no JPEGImages/480p"):
        find_sequences(tmp_path / "ImageSets")
    with pytest.raises(MaskError, match="there is no list of 'test-dev'"):
        find_sequences(root, split="test-dev")
    with pytest.raises(MaskError, match="2016 and 2017, not in 2018"):
        find_sequences(root, split="val", year=2018)
    with pytest.raises(MaskError, match="cat: there is no such sequence"):
        find_sequences(root, names=("cat",))
    (root / "Annotations/480p/dog/00001.png").unlink()
    with pytest.raises(MaskError, match="1 frames have no mask, 00001 the first"):
        find_sequences(root)
    shutil.copy(root / "Annotations/480p/camel/00001.png", root / "Annotations/480p/camel/00003.png")
    with pytest.raises(MaskError, match=r"1 masks have no frame in .*camel, 00003\.png the first"):
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
