"""Every mistake a list can hold gets one kind of error that says where it is."""

import pickle
from pathlib import Path

import pytest

from motionformer.data.folders import read_class_folders
from motionformer.data.lists import read_class_names, read_json, read_plain_list, read_rows
from motionformer.data.source import open_dataset, recognise
from motionformer.errors import AnnotationError

CLASSES = ["clap", "wave"]


@pytest.mark.parametrize(
    ("text", "line", "reason"),
    [
        ("path,label\nx.mp4,2\n", 2, "label 2 is outside the list of 2 classes"),
        ("x.mp4 0\ny.mp4 -1\n", 2, "label -1 is outside"),
        ("path,label\nx.mp4,jump\n", 2, "label 'jump' is not among the 2 classes"),
        ("path,class_name\nx.mp4,0\n", 1, "no column 'label'"),
        ("path,label\nx.mp4\n", 2, "no value for 'label'"),
        ("x.mp4 0\ny.mp4\n", 2, "has no label"),
        ("path,label,start,end\nx.mp4,0,one,2\n", 2, "start is 'one', not a number"),
        ("path,label,start,end\nx.mp4,0,nan,2\n", 2, "start is 'nan', not a number"),
        ("path,label,start,end\nx.mp4,0,5,2\n", 2, r"end \(2 s\) is not after start \(5 s\)"),
        ("path,label,start,end\nx.mp4,0,-1,2\n", 2, "cannot be negative"),
        ("x.mp4,0,1,2,3,4\n", 1, "6 values for 4 columns"),
        ("x.mp4 0\ny.mp4 1\nx.mp4 0\n", 3, "the same as line 1"),
        ("path,label\n", None, "no line below"),
        ("", None, "empty"),
        (" \n\n", None, "empty"),
    ],
)
def test_a_wrong_line_is_named(tmp_path: Path, text: str, line: int | None, reason: str) -> None:
    file = tmp_path / "a list.csv"
    file.write_text(text)
    with pytest.raises(AnnotationError, match=reason) as caught:
        read_plain_list(file, class_names=CLASSES)
    assert caught.value.line == line
    assert caught.value.file == file
    place = str(file) if line is None else f"{file}:{line}"
    assert str(caught.value).startswith(f"{place}: ")


def test_names_and_numbers_do_not_mix(tmp_path: Path) -> None:
    (tmp_path / "l.csv").write_text("x.mp4,0\ny.mp4,1x\n")
    with pytest.raises(AnnotationError, match=r"l\.csv:2: label '1x' is a name"):
        read_plain_list(tmp_path / "l.csv")


def test_byte_order_mark_spaces_and_unicode(tmp_path: Path) -> None:
    file = tmp_path / "l.csv"
    file.write_bytes("\ufeffpath,label\r\nEin Ordner/Füße 走る.mp4, wave \r\n".encode())
    (record,) = read_plain_list(file, class_names=CLASSES)
    assert record.path == tmp_path / "Ein Ordner" / "Füße 走る.mp4"
    assert record.label == 1


def test_not_text(tmp_path: Path) -> None:
    file = tmp_path / "l.csv"
    file.write_bytes(b"caf\xe9.mp4,0\n")
    with pytest.raises(AnnotationError, match="not UTF-8 text"):
        read_plain_list(file)
    (tmp_path / "l.json").write_text('{"a":\n 1,')
    with pytest.raises(AnnotationError, match=r"l\.json:2: not JSON"):
        read_json(tmp_path / "l.json")


def test_missing_list_folder_column(tmp_path: Path) -> None:
    with pytest.raises(AnnotationError, match="cannot be read: No such file"):
        read_plain_list(tmp_path / "nowhere.csv")
    with pytest.raises(AnnotationError, match="no such file or folder"):
        open_dataset(tmp_path / "nowhere")
    (tmp_path / "l.csv").write_text("a,b\n1,2\n")
    with pytest.raises(AnnotationError, match=r"l\.csv:1: no column 'c'"):
        list(read_rows(tmp_path / "l.csv", ["a", "c"]))


@pytest.mark.parametrize(
    ("name", "text", "reason"),
    [
        ("c.txt", "a\na\n", "'a' is listed twice"),
        ("c.json", '{"a": 0, "b": 2}', "no class has the index 1"),
        ("c.json", '{"a": 0, "b": 0}', "index 0 belongs to 'a' and to 'b'"),
        ("c.json", '{"a": "x"}', "not a whole number"),
        ("c.json", "3", "list of names or an object"),
        ("c.csv", "number,name\n0,a\n", "no column 'id'"),
    ],
)
def test_wrong_class_files(tmp_path: Path, name: str, text: str, reason: str) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(AnnotationError, match=reason):
        read_class_names(tmp_path / name)


def test_class_folder_without_videos(tmp_path: Path, touch) -> None:
    touch(tmp_path / "a" / "x.mp4", tmp_path / "b" / "notes.txt")
    with pytest.raises(AnnotationError, match="no video in the class folder 'b'"):
        read_class_folders(tmp_path)
    with pytest.raises(AnnotationError, match="no class folders here"):
        read_class_folders(tmp_path / "a")
    (tmp_path / "l.csv").write_text("x.mp4,0\n")
    with pytest.raises(AnnotationError, match=r"l\.csv: a file, not a folder of class folders; leave the kind out"):
        open_dataset(tmp_path / "l.csv", "folders")


def test_a_folder_that_is_no_given_class_is_named(tmp_path: Path, touch) -> None:
    touch(tmp_path / "clap" / "x.mp4", tmp_path / "jump" / "y.mp4")
    with pytest.raises(AnnotationError, match=r"class folder 'jump' is not among the 2 classes \(clap, wave\)"):
        open_dataset(tmp_path, class_names=CLASSES)


def test_a_folder_of_another_split_is_none_of_our_business(tmp_path: Path, touch) -> None:
    touch(tmp_path / "train" / "clap" / "x.mp4", tmp_path / "val" / "jump" / "y.mp4")
    assert [record.label for record in open_dataset(tmp_path, split="train", class_names=CLASSES)] == [0]
    with pytest.raises(AnnotationError, match="class folder 'jump'"):
        open_dataset(tmp_path, split="val", class_names=CLASSES)


def test_missing_videos(tmp_path: Path, touch) -> None:
    (tmp_path / "l.csv").write_text("x.mp4,0\ny.mp4,1\nz.mp4,1\n")
    with pytest.raises(AnnotationError, match=r"x\.mp4 \(3 of 3 videos are not there\); .* None is left to use"):
        open_dataset(tmp_path / "l.csv", missing="drop")
    touch(tmp_path / "x.mp4", tmp_path / "z.mp4")
    with pytest.raises(
        AnnotationError, match=r"l\.csv:2: no such video: .*y\.mp4 \(1 of 3.* Remove its line, or .*--missing drop"
    ):
        open_dataset(tmp_path / "l.csv")
    kept = open_dataset(tmp_path / "l.csv", missing="drop")
    assert [record.path.name for record in kept] == ["x.mp4", "z.mp4"]
    assert "1 of 3 videos are not there" in kept.notes[0]
    assert len(open_dataset(tmp_path / "l.csv", missing="keep")) == 3
    touch(tmp_path / "folders" / "a" / "x.mp4")
    (tmp_path / "folders" / "a" / "dead.mp4").symlink_to("nowhere")
    with pytest.raises(AnnotationError, match=r"dead\.mp4 \(1 of 2.* Remove it, or .*--missing drop"):
        open_dataset(tmp_path / "folders")


def test_errors_survive_the_way_out_of_a_process() -> None:
    error = AnnotationError("why", Path("l.csv"), 3)
    again = pickle.loads(pickle.dumps(error))
    assert (str(again), again.line) == ("l.csv:3: why", 3)


def test_recognition(tmp_path: Path, touch) -> None:
    def kind_of(name: str, text: str) -> str:
        (tmp_path / name).write_text(text)
        return recognise(tmp_path / name)

    assert kind_of("a.csv", "label,youtube_id,time_start,time_end,split\n") == "kinetics"
    assert kind_of("b.csv", "uid,narration_id,participant_id,video_id\n") == "epic"
    assert kind_of("c.csv", "path,label\n") == "list"
    assert kind_of("c.txt", "x.mp4 3\n") == "list"
    assert kind_of("d.json", "[]") == "something"
    assert kind_of("e.MP4", "") == "files"
    for bad, reason in (("e.pkl", "pickle"), ("f.tar", "ShardDataset")):
        with pytest.raises(AnnotationError, match=reason):
            kind_of(bad, "")

    def kind_of_folder(*names: str) -> str:
        folder = tmp_path / f"folder {len(list(tmp_path.iterdir()))}"
        touch(*(folder / name for name in names))
        return recognise(folder)

    assert kind_of_folder("a/x.mp4", "b/y.mp4", "README.txt") == "folders"
    assert kind_of_folder("train/a/x.mp4", "test/a/y.mp4") == "folders"
    assert kind_of_folder("x.mp4", "y.avi", "README.txt") == "files"
    assert kind_of_folder("0001.jpg", "0002.jpg") == "files"
    assert kind_of_folder("video1/0001.jpg", "video2/0001.jpg") == "files"
    assert kind_of_folder("a/video1/0001.jpg", "b/video2/0001.jpg") == "folders"
    assert kind_of_folder("a/x.mp4", "a/x.jpg", "b/y.mp4", "b/y.jpg") == "folders"
    assert kind_of_folder("a/x.mp4", "b/y.mp4", "preview.png") == "folders"
    assert kind_of_folder("x.mp4", "0001.jpg") == "files"
    assert kind_of_folder("ucfTrainTestlist/classInd.txt", "UCF-101/a/x.avi") == "ucf101"
    assert kind_of_folder("testTrainMulti_7030_splits/a_test_split1.txt", "a/x.avi") == "hmdb51"
    assert kind_of_folder("EPIC_100_train.csv", "EPIC_100_video_info.csv") == "epic"
    assert kind_of_folder("labels/labels.json", "labels/train.json") == "something"
    assert kind_of_folder("train.csv", "val.csv") == "list"


def test_pictures_beside_videos_are_no_frames(tmp_path: Path, touch) -> None:
    videos = [tmp_path / name / f"{index}.mp4" for name in ("cat", "dog") for index in range(2)]
    touch(*videos, tmp_path / "dog" / "0.jpg", tmp_path / "preview.png")
    opened = open_dataset(tmp_path)
    assert [(record.path, record.label) for record in opened] == list(zip(videos, (0, 0, 1, 1), strict=True))
    strays = f"2 pictures have videos beside or below them: not taken for frames; the first is {tmp_path}/dog/0.jpg"
    assert opened.notes == (strays,)
    alike = open_dataset(tmp_path, "files")
    assert ([record.path for record in alike], alike.notes) == (videos, (strays,))
    touch(tmp_path / "cat" / "frames" / "0001.jpg")
    assert tmp_path / "cat" / "frames" in {record.path for record in open_dataset(tmp_path)}


def test_open_dataset_reads_what_it_recognised(tmp_path: Path, touch) -> None:
    touch(tmp_path / "a" / "x.mp4", tmp_path / "b" / "y.mp4")
    opened = open_dataset(tmp_path)
    assert opened.how == f"{tmp_path}: a folder of 2 class folders, not split"
    alone = open_dataset(tmp_path / "a" / "x.mp4")
    assert [record.label for record in alone] == [None]
    assert len(open_dataset(tmp_path, "files")) == 2
    touch(tmp_path / "loose.mp4")
    assert "videos lie beside folders" in open_dataset(tmp_path).notes[0]
    assert open_dataset(tmp_path, "folders").num_classes == 2
    (tmp_path / "train.csv").write_text("a/x.mp4 0\n")
    assert open_dataset(tmp_path, split="train").records[0].line == 1
    with pytest.raises(AnnotationError, match="no split 'holdout'"):
        open_dataset(tmp_path, split="holdout")
    with pytest.raises(AnnotationError, match=r"val\.csv: cannot be read"):
        open_dataset(tmp_path, split="val")
