"""Pathfinder: the label is true of the scene, contours keep apart, and files come back."""

from fractions import Fraction
from pathlib import Path

import av
import numpy as np
import pytest

from motionformer.errors import AnnotationError
from motionformer.experiments.lra.pathfinder import (
    _CLEARANCE,
    _CONTOUR_LENGTH,
    _DASH,
    _DISTRACTOR_LENGTH,
    _GAP,
    _NUM_DISTRACTORS,
    _PADDING,
    _SIZE,
    Pathfinder,
    _draw_scene,
    _paint,
    read_pathfinder,
    write_pathfinder,
)


@pytest.mark.parametrize("joined", [True, False])
def test_the_label_is_true_of_the_scene(joined: bool) -> None:
    for seed in range(4):
        contours, markers = _draw_scene(joined, np.random.default_rng(seed))
        lengths = [len(contour) for contour in contours]
        assert lengths == [_CONTOUR_LENGTH] * 2 + [_DISTRACTOR_LENGTH] * _NUM_DISTRACTORS
        owners = [
            [i for i, c in enumerate(contours) if any(np.allclose(end, m) for end in (c[0, 0], c[-1, 1]))]
            for m in markers
        ]
        assert all(len(owner) == 1 for owner in owners)
        assert (owners[0] == owners[1]) is joined
        assert not np.allclose(*markers)


def test_dashes_have_their_length_and_gap_and_contours_keep_apart() -> None:
    contours, _ = _draw_scene(True, np.random.default_rng(5))
    for contour in contours:
        np.testing.assert_allclose(np.linalg.norm(contour[:, 1] - contour[:, 0], axis=-1), _DASH)
        np.testing.assert_allclose(np.linalg.norm(contour[1:, 0] - contour[:-1, 1], axis=-1), _GAP)
        assert contour.min() >= _PADDING
        assert contour.max() <= _SIZE - _PADDING
    for i, one in enumerate(contours):
        for other in contours[:i]:
            for a in one:
                for b in other:
                    nearest = min(
                        float(np.linalg.norm(a[0] + s * (a[1] - a[0]) - b[0] - t * (b[1] - b[0])))
                        for s in (0, 0.5, 1)
                        for t in (0, 0.5, 1)
                    )
                    assert nearest >= _CLEARANCE - 1e-9


def test_paint_covers_what_a_dash_covers() -> None:
    """A level dash through pixel centres: those pixels are lit, two rows away nothing is."""
    picture = _paint([np.array([[[10.5, 8.5], [12.5, 8.5]]])], np.array([[25.0, 25.0], [28.0, 28.0]]))
    assert (picture[8, 10:13] == 255).all()
    assert (picture[10, :20] == 0).all()
    assert picture[25, 25] == 255
    assert picture[:20, 16:].max() == 0


def test_an_example_depends_on_seed_split_and_number_only() -> None:
    first, label = Pathfinder("val", 10).picture(3)
    assert label == 1
    assert (first == Pathfinder("val", 99).picture(3)[0]).all()
    assert (first != Pathfinder("train", 10).picture(3)[0]).any()
    tokens = Pathfinder("val", 10)[3].texts[0]
    assert tokens.shape == (_SIZE * _SIZE,)
    assert tokens.min() == 1
    assert (tokens.reshape(_SIZE, _SIZE) - 1 == first).all()


def test_written_files_hold_what_is_made(tmp_path: Path) -> None:
    counts = {"train": 3, "val": 2, "test": 1}
    assert list(write_pathfinder(tmp_path, counts, 3)) == [1, 2, 3, 4, 5, 6]
    splits = read_pathfinder(tmp_path)
    assert [len(part) for part in (splits.train, splits.dev, splits.test)] == [3, 2, 1]
    assert splits.dev[1].label == 1
    assert splits.dev[1].texts[0].tolist() == Pathfinder("val", 2, 3)[1].texts[0].tolist()


def write_png(file: Path, picture: "np.ndarray") -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    encoder = av.CodecContext.create("png", "w")
    encoder.height, encoder.width, encoder.pix_fmt, encoder.time_base = *picture.shape, "gray", Fraction(1)
    frame = av.VideoFrame.from_ndarray(picture, format="gray")
    file.write_bytes(b"".join(bytes(packet) for packet in [*encoder.encode(frame), *encoder.encode(None)]))


def test_published_folders_are_read(tmp_path: Path) -> None:
    made = Pathfinder("test", 10)
    lines = []
    for index in range(10):
        picture, label = made.picture(index)
        write_png(tmp_path / f"imgs/0/sample_{index}.png", picture)
        lines.append(f"imgs/0 sample_{index}.png {index} {label} 1.0 20 2 1")
    (tmp_path / "metadata").mkdir()
    (tmp_path / "metadata/0.npy").write_text("\n".join(lines) + "\n")
    splits = read_pathfinder(tmp_path)
    assert [len(part) for part in (splits.train, splits.dev, splits.test)] == [8, 1, 1]
    assert splits.test[0].texts[0].tolist() == made[9].texts[0].tolist()
    assert splits.test[0].label == made[9].label
    (tmp_path / "metadata/0.npy").write_text("\n".join(lines[:4]) + "\n")
    with pytest.raises(AnnotationError, match="gives 3 training, 0 development and 1 test examples"):
        read_pathfinder(tmp_path)
    (tmp_path / "metadata/0.npy").write_text("\n".join(lines) + "\n")
    (tmp_path / "imgs/0/sample_4.png").unlink()
    with pytest.raises(AnnotationError, match=r"sample_4\.png") as caught:
        read_pathfinder(tmp_path)
    assert caught.value.line == 5


def test_a_broken_picture_of_a_published_folder_is_named(tmp_path: Path) -> None:
    picture = tmp_path / "imgs/0/a.png"
    write_png(picture, Pathfinder("test", 1).picture(0)[0])
    (tmp_path / "metadata").mkdir()
    (tmp_path / "metadata/0.npy").write_text("imgs/0 a.png 0 1\n")
    whole = picture.read_bytes()
    for content in (b"", whole[:20], whole[: len(whole) // 2], b"nothing"):
        picture.write_bytes(content)
        with pytest.raises(AnnotationError, match=r"0\.npy:1: .*imgs/0/a\.png: \w+") as caught:
            read_pathfinder(tmp_path)
        assert str(caught.value).count("a.png") == 1
    (tmp_path / "metadata/0.npy").write_text("imgs/0 a.gif 0 1\n")
    with pytest.raises(AnnotationError, match=r"a\.gif is no picture by its name"):
        read_pathfinder(tmp_path)


def test_cut_and_foreign_files_are_named(tmp_path: Path) -> None:
    list(write_pathfinder(tmp_path, {"train": 40, "val": 1, "test": 1}))
    file = tmp_path / "train.npz"
    whole = file.read_bytes()
    middle = len(whole) // 2
    for content in (b"", b"nothing", whole[:3], whole[:middle], whole[:middle] + bytes(20) + whole[middle + 20 :]):
        file.write_bytes(content)
        with pytest.raises(AnnotationError, match="cut, or not a Pathfinder file") as caught:
            read_pathfinder(tmp_path)
        assert caught.value.file == file
    with file.open("wb") as one:
        np.save(one, np.zeros(3))
    with pytest.raises(AnnotationError, match="cut, or not a Pathfinder file"):
        read_pathfinder(tmp_path)


def test_wrong_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(AnnotationError, match="lra make pathfinder"):
        read_pathfinder(tmp_path)
    np.savez(tmp_path / "train.npz", pictures=np.zeros((2, 16, 16), np.uint8), labels=np.zeros(2))
    with pytest.raises(AnnotationError, match=r"\(2, 16, 16\)"):
        read_pathfinder(tmp_path)
    np.savez(tmp_path / "train.npz", pictures=np.zeros((_SIZE, _SIZE), np.uint8), labels=np.zeros(()))
    with pytest.raises(AnnotationError, match=r"labels \(\)"):
        read_pathfinder(tmp_path)
    for split in ("train", "val", "test"):
        np.savez(tmp_path / f"{split}.npz", pictures=np.zeros((0, _SIZE, _SIZE), np.uint8), labels=np.zeros(0))
    with pytest.raises(AnnotationError, match="gives 0 training"):
        read_pathfinder(tmp_path)
    (tmp_path / "metadata").mkdir()
    (tmp_path / "metadata/0.npy").write_text("imgs/0 a.png 1\n")
    with pytest.raises(AnnotationError, match="label"):
        read_pathfinder(tmp_path)


def test_a_picture_is_drawn_once(monkeypatch: pytest.MonkeyPatch) -> None:
    examples = Pathfinder("train", 4)
    first = examples[2]
    monkeypatch.setattr("motionformer.experiments.lra.pathfinder._draw_scene", None)
    assert (examples[2].texts[0] == first.texts[0]).all()
    assert examples[2].label == first.label
