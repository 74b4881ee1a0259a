"""Lists whose videos have any number of classes: what is read, what is batched, what a mirror does, what is refused."""

from pathlib import Path
from typing import Any

import pytest
import torch

from motionformer.data import Annotations, Record, collate_clips, open_dataset
from motionformer.data.check import ScanReport
from motionformer.errors import AnnotationError
from motionformer.video.transforms.geometry import LabelAwareFlip


def read(folder: Path, text: str, **options: Any) -> Annotations:
    file = folder / "list.csv"
    file.write_text(text, encoding="utf-8")
    return open_dataset(file, missing="keep", **options)


def test_names_are_numbered_by_the_alphabet_and_an_empty_cell_is_no_class(tmp_path: Path) -> None:
    found = read(tmp_path, "path,labels,start,end\na.mp4,run|jump,,\nb.mp4, fly ,1,2\nb.mp4,,2,3\nc.mp4,run,,\n")
    assert found.class_names == ("fly", "jump", "run")
    assert [record.label for record in found] == [(1, 2), (0,), (), (2,)]
    assert found.records[1].start == 1
    assert found.is_multi_label
    assert found.counts() == {"fly": 1, "jump": 1, "run": 2}
    assert [found.label_name(record.label) for record in found] == ["jump|run", "fly", "", "run"]
    assert "1 of them of no class, up to 2 classes each" in found.how


def test_numbers_and_given_names(tmp_path: Path) -> None:
    numbered = read(tmp_path, "path,labels\na.mp4,3|0\nb.mp4,1\n")
    assert numbered.class_names == ("0", "1", "2", "3")
    assert numbered.records[0].label == (0, 3)
    given = read(tmp_path, "path,labels\na.mp4,run|0\n", class_names=["fly", "jump", "run"])
    assert given.records[0].label == (0, 2)
    nobody = read(tmp_path, "path,labels\na.mp4,\n", class_names=["fly"])
    assert nobody.records[0].label == ()


def test_the_name_of_the_column_decides(tmp_path: Path) -> None:
    """A list where every video happens to have one class is of several all the same; a | in a name stays in it."""
    assert [record.label for record in read(tmp_path, "path,labels\na.mp4,run\nb.mp4,fly\n")] == [(1,), (0,)]
    one = read(tmp_path, "path,label\na.mp4,run|jump\nb.mp4,fly\n")
    assert one.class_names == ("fly", "run|jump")
    assert not one.is_multi_label
    assert "call the column 'labels'" in one.notes[0]
    assert read(tmp_path, "path,label\na.mp4,run\n").notes == ()


@pytest.mark.parametrize(
    ("text", "line", "reason"),
    [
        ("path,labels\na.mp4,run|run\n", 2, "class 'run' is given twice"),
        ("path,labels\na.mp4,run\nb.mp4,1|1\n", 2, "is a name, others are numbers"),
        ("path,labels\na.mp4,run||fly\n", 2, "nothing on one side"),
        ("path,labels\na.mp4,run|\n", 2, "nothing on one side"),
        ("path,labels\na.mp4,0\nb.mp4,1|-1\n", 3, "label -1 is outside the list of 2 classes"),
        ("path,labels\na.mp4,run\nb.mp4\n", 3, "no value for 'labels'"),
        ("path,labels\na.mp4,run\na.mp4,fly\n", 3, "the same as line 2"),
        ("path,label,labels\na.mp4,run,fly\n", 1, "which of them is meant"),
        ("file,labels,extra\na.mp4,run,1,2\n", 2, "4 values for 3 columns"),
        ("labels,x\nrun,a.mp4\n", 1, "no column 'path'"),
        ("path,labels\na.mp4,\n", None, "no line names a class"),
    ],
)
def test_wrong_cells_have_their_place(tmp_path: Path, text: str, line: int | None, reason: str) -> None:
    with pytest.raises(AnnotationError, match=reason.replace("|", r"\|")) as caught:
        read(tmp_path, text)
    assert (caught.value.file, caught.value.line) == (tmp_path / "list.csv", line)


@pytest.mark.parametrize(
    ("cell", "reason"),
    [
        ("swim", "'swim' is not among the 2 classes"),
        ("2", "label 2 is outside"),
        ("run|1", "class 'run' is given twice"),
    ],
)
def test_wrong_cells_of_given_classes(tmp_path: Path, cell: str, reason: str) -> None:
    with pytest.raises(AnnotationError, match=reason) as caught:
        read(tmp_path, f"path,labels\na.mp4,fly\nb.mp4,{cell}\n", class_names=["fly", "run"])
    assert caught.value.line == 3


def test_lists_made_by_hand_are_checked_too() -> None:
    with pytest.raises(AnnotationError, match="other videos have any number"):
        Annotations((Record(Path("a"), (0,)), Record(Path("b"), 0)), ("x",), "made")
    with pytest.raises(AnnotationError, match="stands between classes"):
        Annotations((Record(Path("a"), (0,)),), ("x|y",), "made")


def test_a_batch_lists_the_classes_of_each_clip() -> None:
    def item(label: tuple[int, ...]) -> dict[str, Any]:
        return {"clip": torch.zeros(1), "label": label, "index": 0, "path": ""}

    assert collate_clips([item((1, 4)), item(()), item((2,))])["label"].tolist() == [[1, 4], [-1, -1], [2, -1]]
    assert collate_clips([item(()), item(())])["label"].shape == (2, 0)


def test_a_mirror_swaps_the_twin_of_each_class() -> None:
    flip = LabelAwareFlip(("left", "right", "up"), probability=1.0)
    clip = torch.arange(12.0).reshape(3, 1, 2, 2)
    generator = torch.Generator().manual_seed(0)
    for label, twin in (((0, 2), (1, 2)), ((0, 1), (0, 1)), ((), ()), ((2,), (2,))):
        mirrored, found = flip.with_label(clip, label, generator)
        assert found == twin
        assert torch.equal(mirrored, clip.flip(-1))
    with pytest.raises(ValueError, match="not one of the 3 classes"):
        flip.with_label(clip, (0, 3), generator)


def test_the_check_writes_all_classes_of_a_video(tmp_path: Path) -> None:
    from motionformer.data.check import _FileReport

    found = read(tmp_path, "path,labels\na.mp4,run|jump\n")
    report = ScanReport((found,), (_FileReport(tmp_path / "a.mp4", "ok"),))
    report.write_csv(tmp_path / "report.csv")
    assert "jump|run" in (tmp_path / "report.csv").read_text()
