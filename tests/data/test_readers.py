"""Each layout as it is distributed, written out by hand."""

import json
from pathlib import Path

import av
import numpy as np
import pytest

from motionformer.data.folders import find_videos, read_class_folders
from motionformer.data.lists import read_class_names, read_plain_list
from motionformer.data.published import read_epic, read_hmdb51, read_kinetics, read_something, read_ucf101
from motionformer.data.source import _read_files, recognise
from motionformer.errors import AnnotationError
from motionformer.video import open_video

EPIC_HEADER = (
    "narration_id,participant_id,video_id,narration_timestamp,start_timestamp,stop_timestamp,start_frame,stop_frame,"
    "narration,verb,verb_class,noun,noun_class,all_nouns,all_noun_classes\n"
)
EPIC_LINES = (
    "P01_01_0,P01,P01_01,00:00:01.089,00:00:00.14,00:00:03.37,8,202,open door,open,3,door,3,['door'],[3]\n"
    'P01_101_1,P01,P01_101,00:00:02.629,00:01:00.50,01:00:02.00,3025,180100,"a, b",turn-on,6,light,114,['
    "'light'],[114]\n"
)


def test_kinetics_official_csv(tmp_path: Path, touch) -> None:
    file = tmp_path / "val.csv"
    file.write_text(
        "label,youtube_id,time_start,time_end,split\n"
        "testifying,---QUuC4vJs,84,94,validate\n"
        '"eating, fast",--3ouPhoy2A,20,30,validate\n'
    )
    touch(tmp_path / "videos" / "testifying" / "---QUuC4vJs_000084_000094.mp4")
    read = read_kinetics(file, tmp_path / "videos")
    assert read.class_names == ("eating, fast", "testifying")
    assert [record.label for record in read] == [1, 0]
    assert read.records[0].path == tmp_path / "videos" / "testifying" / "---QUuC4vJs_000084_000094.mp4"
    assert read.records[1].path == tmp_path / "videos" / "--3ouPhoy2A_000020_000030.mp4"  # not there: where it belongs
    assert read.records[0].start is None, "the files are already cut"
    assert "2 classes" in read.notes[0]
    assert not read_kinetics(file, class_names=["eating, fast", "other", "testifying"]).notes
    with pytest.raises(AnnotationError, match=r"val\.csv:2: label 'testifying' is not among the 1"):
        read_kinetics(file, class_names=["eating, fast"])


@pytest.mark.parametrize("separator", [" ", ","])
def test_kinetics_path_label_list(tmp_path: Path, separator: str) -> None:
    file = tmp_path / "train.csv"
    file.write_text(f"a b/täst.mp4{separator}3\nc.mp4{separator}0\n")
    read = read_kinetics(file)
    assert read.records[0].path == tmp_path / "a b" / "täst.mp4"
    assert [record.label for record in read] == [3, 0]
    assert read.num_classes == 4


def test_something(tmp_path: Path, touch) -> None:
    labels = {"Holding something next to something": "1", "Closing something": "0"}
    (tmp_path / "something-something-v2-labels.json").write_text(json.dumps(labels))
    train = tmp_path / "something-something-v2-train.json"
    entries = [
        {"id": "78687", "label": "holding potato", "template": "Holding [something] next to [something]"},
        {"id": "9", "label": "closing box", "template": "Closing [something]"},
    ]
    train.write_text(json.dumps(entries))
    touch(tmp_path / "20bn-something-something-v2" / "78687.webm")
    touch(tmp_path / "20bn-something-something-v2" / "9" / "000001.jpg")
    read = read_something(train)
    assert read.class_names == ("Closing something", "Holding something next to something")
    assert [record.label for record in read] == [1, 0]
    assert [record.path.name for record in read] == ["78687.webm", "9"]
    assert read.sampling == "segments"
    assert read.split == "train"
    test = tmp_path / "something-something-v2-test.json"
    test.write_text(json.dumps([{"id": "5"}]))
    assert read_something(test).records[0].label is None
    assert read_something(tmp_path, split="test").split == "test"  # a folder has a list for every split
    (tmp_path / "set" / "labels").mkdir(parents=True)
    for file in (train, tmp_path / "something-something-v2-labels.json"):
        name = file.name.removeprefix("something-something-v2-")
        (tmp_path / "set" / "labels" / name).write_bytes(file.read_bytes())
    assert len(read_something(tmp_path / "set")) == 2  # or keeps its lists in `labels`
    train.write_text(json.dumps([{"id": "1", "template": "Eating [something]"}]))
    with pytest.raises(AnnotationError, match=r"video 1.*Eating"):
        read_something(train)


def test_a_json_list_that_is_not_something_something_is_named(tmp_path: Path) -> None:
    file = tmp_path / "l.json"
    file.write_text(json.dumps([{"path": "x.mp4", "label": "a"}]))
    with pytest.raises(AnnotationError, match=r"l\.json: entry 1 has no 'id': .*x\.mp4.* write others as csv"):
        read_something(file)
    file.write_text(json.dumps([{"id": "1", "template": "Eating [something]"}]))
    with pytest.raises(AnnotationError, match=r"l\.json: there is no something-.*-labels\.json or labels\.json beside"):
        read_something(file)


def test_epic(tmp_path: Path, touch) -> None:
    file = tmp_path / "EPIC_100_train.csv"
    file.write_text(EPIC_HEADER + EPIC_LINES)
    touch(
        tmp_path / "P01" / "rgb_frames" / "P01_01" / "frame_0000000001.jpg", tmp_path / "P01" / "videos" / "P01_101.MP4"
    )
    with pytest.raises(AnnotationError, match="frame rate of P01_01 is needed"):
        read_epic(file)
    (tmp_path / "EPIC_100_video_info.csv").write_text(
        "video_id,duration,fps,resolution\nP01_01,1652.1,59.9400599400599,1920x1080\nP01_101,1831.4,50.0,1920x1080\n"
    )
    read = read_epic(file)
    first, second = read.records
    assert (first.start, first.end, first.fps) == (0.14, 3.37, 59.9400599400599)
    assert (second.start, second.end, second.fps) == (60.5, 3602.0, None)
    assert first.path == tmp_path / "P01" / "rgb_frames" / "P01_01"
    assert second.path == tmp_path / "P01" / "videos" / "P01_101.MP4"
    assert second.label == {"verb": 6, "noun": 114}
    assert read.num_classes == {"verb": 97, "noun": 300}
    assert read.label_name(second.label) == "verb 6 noun 114"
    assert read.counts()["noun: noun 114"] == 1
    (tmp_path / "EPIC_100_verb_classes.csv").write_text('id,key,instances,category\n0,take,"[1]",x\n1,put,"[2]",x\n')
    with pytest.raises(AnnotationError, match="verb 3 is outside the list of 2 classes"):
        read_epic(file)


def test_epic_frames_instead_of_times(tmp_path: Path) -> None:
    (tmp_path / "EPIC_100_video_info.csv").write_text("video_id,duration,fps,resolution\nP01_101,9,50.0,1x1\n")
    file = tmp_path / "mine.csv"
    file.write_text("narration_id,participant_id,video_id,start_frame,stop_frame\nx,P01,P01_101,100,150\n")
    (record,) = read_epic(file)
    assert (record.start, record.end, record.label) == (2.0, 3.0, None)


def test_epic_refuses_a_pickle_without_opening_it(tmp_path: Path) -> None:
    file = tmp_path / "EPIC_100_train.pkl"
    file.write_bytes(b"cos\nsystem\n(S'touch " + bytes(tmp_path / "owned") + b"'\ntR.")
    with pytest.raises(AnnotationError, match=r"EPIC_100_train\.csv"):
        read_epic(file)
    assert not (tmp_path / "owned").exists()


def test_ucf101(tmp_path: Path) -> None:
    lists = tmp_path / "ucfTrainTestlist"
    lists.mkdir()
    (lists / "classInd.txt").write_text("1 ApplyEyeMakeup\r\n2 Archery\r\n")
    (lists / "trainlist01.txt").write_text("Archery/v_Archery_g08_c01.avi 2\r\nApplyEyeMakeup/v_A_g08_c01.avi 1\r\n")
    (lists / "testlist01.txt").write_text("Archery/v_Archery_g01_c01.avi\n")
    train = read_ucf101(lists / "trainlist01.txt", tmp_path / "UCF-101")
    assert [record.label for record in train] == [1, 0]
    assert train.records[0].path == tmp_path / "UCF-101" / "Archery" / "v_Archery_g08_c01.avi"
    assert [record.label for record in read_ucf101(lists / "testlist01.txt")] == [1]
    (lists / "trainlist01.txt").write_text("Archery/v_Archery_g08_c01.avi 1\n")
    with pytest.raises(AnnotationError, match=r"trainlist01\.txt:1: Archery has the number 2"):
        read_ucf101(lists / "trainlist01.txt")


def test_hmdb51(tmp_path: Path) -> None:
    (tmp_path / "wave_test_split1.txt").write_text("a.avi 1 \nb c.avi 2 \nd.avi 0 \n")
    (tmp_path / "cartwheel_test_split1.txt").write_text("e.avi 2 \nf.avi 1 \n")
    train, test = (read_hmdb51(tmp_path, tmp_path, split) for split in ("train", "test"))
    assert train.class_names == ("cartwheel", "wave")
    assert [(record.path.name, record.label) for record in train] == [("f.avi", 0), ("a.avi", 1)]
    assert [(record.path.name, record.label) for record in test] == [("e.avi", 0), ("b c.avi", 1)]
    (tmp_path / "wave_test_split1.txt").write_text("a.avi 1\nb.avi 3\n")
    with pytest.raises(AnnotationError, match=r"wave_test_split1\.txt:2:"):
        read_hmdb51(tmp_path)
    with pytest.raises(AnnotationError, match="train and test, not 'val'"):
        read_hmdb51(tmp_path, split="val")


def test_plain_csv_with_and_without_header(tmp_path: Path) -> None:
    file = tmp_path / "list.csv"
    file.write_text("path,label,start,end\nx.mp4,wave,1.5,4\ny.mp4,clap,,\n")
    read = read_plain_list(file)
    assert read.class_names == ("clap", "wave")
    assert [(record.label, record.start, record.end) for record in read] == [(1, 1.5, 4.0), (0, None, None)]
    assert [record.line for record in read] == [2, 3]
    file.write_text("x.mp4,1,0,4\n")
    assert read_plain_list(file).records[0].end == 4.0
    file.write_text("label,path\n1,x.mp4\n")
    assert read_plain_list(file, tmp_path / "v").records[0].path == tmp_path / "v" / "x.mp4"


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("c.txt", "clap\nwave\n"),
        ("c.json", '["clap", "wave"]'),
        ("c.json", '{"wave": 1, "clap": "0"}'),
        ("c.csv", "id,name\n1,wave\n0,clap\n"),
    ],
)
def test_class_files(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text)
    assert read_class_names(tmp_path / name) == ("clap", "wave")


def test_class_folders(tmp_path: Path, touch) -> None:
    touch(*(tmp_path / name / f"{index}.mp4" for name in ("wave", "clap hands") for index in range(10)))
    touch(tmp_path / "wave" / "more" / "nested.avi", tmp_path / "wave" / "frames" / "0001.jpg")
    touch(tmp_path / ".hidden" / "x.mp4", tmp_path / "wave" / ".x.mp4", tmp_path / "wave" / "notes.txt")
    everything = read_class_folders(tmp_path)
    assert everything.counts() == {"clap hands": 10, "wave": 12}
    assert tmp_path / "wave" / "frames" in {record.path for record in everything}


@pytest.mark.parametrize(
    ("ending", "format", "codec", "pixels"),
    [
        ("gif", "gif", "gif", "rgb8"),
        ("m2ts", "mpegts", "libx264", "yuv420p"),
        ("MTS", "mpegts", "libx264", "yuv420p"),
        ("ogv", "ogg", "libvpx", "yuv420p"),
        ("vob", "vob", "mpeg2video", "yuv420p"),
        ("asf", "asf", "mpeg4", "yuv420p"),
        ("mxf", "mxf", "mpeg2video", "yuv420p"),
        ("divx", "avi", "mpeg4", "yuv420p"),
    ],
)
def test_endings_of_videos_that_can_be_read(tmp_path: Path, ending: str, format: str, codec: str, pixels: str) -> None:
    file = tmp_path / f"x.{ending}"
    with av.open(str(file), "w", format=format) as container:
        stream = container.add_stream(codec, rate=25)
        stream.width, stream.height, stream.pix_fmt = 64, 48, pixels
        for index in range(20):
            frame = av.VideoFrame.from_ndarray(np.full((48, 64, 3), 9 * index, np.uint8), format="rgb24")
            frame = frame.reformat(format=pixels)
            frame.pts = index
            container.mux(stream.encode(frame))
        container.mux(stream.encode())
    assert find_videos(tmp_path) == [file]
    assert recognise(file) == "files"
    with open_video(file) as video:
        assert video.metadata.num_frames == 20


def test_files_of_unknown_endings_are_told(tmp_path: Path, touch) -> None:
    touch(*(tmp_path / name for name in ("a/0.mp4", "a/notes.txt", "a/x.json", "list.csv", "README", "Licence.rtf")))
    touch(tmp_path / "a" / ".DS_Store", tmp_path / ".hidden" / "x.rmvb")
    assert read_class_folders(tmp_path).notes == ()
    assert _read_files(tmp_path / "a").notes == ()
    touch(tmp_path / "a" / "1.rmvb", tmp_path / "a" / "deep" / "noending", tmp_path / "a" / "0.jpg")
    pictures, files = read_class_folders(tmp_path).notes
    assert pictures.startswith("1 pictures have videos beside or below them")
    expected = f"2 files have no known ending of a video and are left out; the first is {tmp_path / 'a' / '1.rmvb'}"
    assert files == expected
    assert _read_files(tmp_path / "a").notes[-1] == expected


def test_a_video_beside_pictures_is_not_lost_without_a_word(tmp_path: Path, touch) -> None:
    """A folder of pictures is taken for frames; that there was something else is said."""
    touch(tmp_path / "a" / "thumb.jpg", tmp_path / "a" / "x.rmvb", tmp_path / "b" / "0.mp4")
    assert [note[:7] for note in read_class_folders(tmp_path).notes] == ["1 files"]


def test_an_animation_beside_pictures_is_a_preview_of_them(tmp_path: Path, touch) -> None:
    touch(tmp_path / "a" / "one" / "0.jpg", tmp_path / "a" / "one" / "preview.gif", tmp_path / "a" / "two.gif")
    assert find_videos(tmp_path) == [tmp_path / "a" / "one", tmp_path / "a" / "two.gif"]


def test_links_to_folders_are_followed_once(tmp_path: Path, touch) -> None:
    root = tmp_path / "root"
    touch(root / "b" / "x.mp4", tmp_path / "elsewhere" / "deep" / "y.mp4")
    (root / "b" / "back").symlink_to("..")
    assert find_videos(root) == [root / "b" / "x.mp4"], "in a circle"
    touch(root / "c" / "frames" / "1.jpg")
    for link, target in {"a": "b", "c/away": "../../elsewhere", "d": "c/away/deep", "gone": "nowhere"}.items():
        (root / link).symlink_to(target)
    found = [path.relative_to(root).as_posix() for path in find_videos(root)]
    assert found == ["b/x.mp4", "c/frames", "d/y.mp4"]
    inside = [path.relative_to(root).as_posix() for path in find_videos(root / "a")]
    assert inside == ["a/back/c/frames", "a/back/d/y.mp4", "a/x.mp4"], "the folder asked for may be a link itself"


def test_class_folders_are_split_once_and_for_all(tmp_path: Path, touch) -> None:
    touch(*(tmp_path / name / f"{index}.mp4" for name in ("a", "b", "c") for index in range(20)))
    splits = {split: read_class_folders(tmp_path, split) for split in ("train", "val", "test")}
    assert [len(split) for split in splits.values()] == [48, 6, 6]
    assert all(set(split.counts().values()) == {len(split) // 3} for split in splits.values()), "each class by itself"
    paths = [record.path for split in splits.values() for record in split]
    assert len(paths) == len(set(paths)) == 60
    assert read_class_folders(tmp_path, "val").records == splits["val"].records
    assert read_class_folders(tmp_path, "val", seed=1).records != splits["val"].records
    golden = [record.path.relative_to(tmp_path).as_posix() for record in splits["val"]]
    assert golden == ["a/2.mp4", "a/5.mp4", "b/16.mp4", "b/19.mp4", "c/10.mp4", "c/12.mp4"], "on every machine"


@pytest.mark.parametrize(
    ("count", "sizes"), [(1, [1, 0, 0]), (2, [1, 1, 0]), (3, [1, 1, 1]), (7, [5, 1, 1]), (25, [20, 3, 2])]
)
def test_small_classes_still_reach_every_split(tmp_path: Path, touch, count: int, sizes: list[int]) -> None:
    touch(*(tmp_path / "a" / f"{index}.mp4" for index in range(count)))
    touch(*(tmp_path / "b" / f"{index}.mp4" for index in range(30)))
    assert [read_class_folders(tmp_path, split).counts()["a"] for split in ("train", "val", "test")] == sizes


def test_class_folders_already_split(tmp_path: Path, touch) -> None:
    touch(*(tmp_path / split / name / "x.mp4" for split in ("train", "validation") for name in ("a", "b")))
    touch(tmp_path / "train" / "c" / "y.mp4")
    val = read_class_folders(tmp_path, "val")
    assert val.class_names == ("a", "b", "c"), "a class without a validation video keeps its number"
    assert [record.path.parts[-3] for record in val] == ["validation"] * 2
    assert len(read_class_folders(tmp_path)) == 5
    with pytest.raises(AnnotationError, match="no split 'test'; there are train, val"):
        read_class_folders(tmp_path, "test")


def test_class_folders_split_a_file_name_that_is_no_utf8(tmp_path: Path, touch) -> None:
    names = ["b.mp4", "c.mp4", "caf\udce9.mp4"]
    touch(*(tmp_path / "a" / name for name in names))
    splits = [read_class_folders(tmp_path, split) for split in ("train", "val", "test")]
    assert sorted(record.path.name for split in splits for record in split) == names


def test_class_folders_with_given_classes(tmp_path: Path, touch) -> None:
    """Folders of some classes only, numbered as the whole list is; `7` and `class 7` are the same name."""
    touch(tmp_path / "wave" / "x.mp4", tmp_path / "7" / "y.mp4")
    read = read_class_folders(tmp_path, class_names=("wave", "clap", "class 7"))
    assert read.class_names == ("wave", "clap", "class 7")
    assert {record.path.name: record.label for record in read} == {"x.mp4": 0, "y.mp4": 2}
    assert "2 class folders (3 classes)" in read.how


def test_numbers_in_a_list_are_names_or_indices(tmp_path: Path) -> None:
    """Of classes called by numbers, which lists write as `class 10`, and which are in alphabetical order."""
    file, names = tmp_path / "list.csv", ("class 0", "class 1", "class 10", "class 2")

    def labels(*cells: str) -> list[object]:
        file.write_text("\n".join(f"{place}.mp4,{cell}" for place, cell in enumerate(cells)))
        return [record.label for record in read_plain_list(file, class_names=names)]

    assert labels("2", "10", "class 2") == [3, 2, 3]
    with pytest.raises(AnnotationError, match=r"label '3' is not among the 4 classes \(0, 1, 10, 2\)"):
        labels("2", "3")  # not the index 3 beside the name 2
    names = ("0", "1", "10", "2")  # as evaluation calls them
    assert labels("2", "10", "02") == [3, 2, 3]
    names = ("wave", "7", "run")
    assert labels("7", "wave") == [1, 0]
    assert labels("2", "1", "run") == [2, 1, 2], "of mixed names: indices, as 2 and 1 are no names"
    with pytest.raises(AnnotationError, match="label 7 is outside the list of 3 classes"):
        labels("7", "1")  # 1 is an index, so 7 is one too
