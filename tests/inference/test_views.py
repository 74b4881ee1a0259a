"""Views of real files, of the motion benchmark, and which classes they are."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from motionformer.data import Failure, open_dataset
from motionformer.data.motion import CLASSES, Level, MotionBenchmark, write_videos
from motionformer.errors import AnnotationError, EvaluationError
from motionformer.inference import FileVideos, MotionVideos, open_source
from motionformer.inference.classes import match_classes, order_note
from motionformer.models import InputSpec, ModelConfig
from motionformer.video import open_video
from motionformer.video.transforms import eval_transform

SPEC = InputSpec(frames=4, height=32, width=32, stride=2, fps=8.0, views=3, crops=3)


@pytest.fixture(scope="module")
def videos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data") / "videos"
    write_videos(folder, "easy", 8, frames=20, size=48, fps=8)
    return folder


def test_views_are_clips_times_crops(videos: Path) -> None:
    annotations = open_dataset(videos)
    source = FileVideos(annotations, SPEC)
    views = source.read(5).views
    assert isinstance(views, torch.Tensor)
    assert views.shape == (9, 3, 4, 32, 32)
    with open_video(annotations.records[5].path) as video:
        for view, start in enumerate((0, 6, 13)):  # a clip spans 7 of 20 frames
            frames = video.read([start, start + 2, start + 4, start + 6])
            for crop in (0, 1, 2):
                expected = eval_transform(SPEC, crop)(frames)  # type: ignore[arg-type]
                assert torch.equal(views[3 * view + crop], expected)


def test_views_and_crops_can_be_said(videos: Path) -> None:
    source = open_source(videos, SPEC, views=2, crops=1)
    views = source.read(0).views
    assert isinstance(views, torch.Tensor)
    assert views.shape[0] == 2
    assert (source.num_views, source.num_crops) == (2, 1)
    assert source.protocol()["views"] == 2
    segments = open_source(videos, replace(SPEC, sampling="segments"))
    assert (segments.num_views, segments.num_crops) == (1, 3)


def test_names_do_not_depend_on_where_the_folder_is(videos: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.symlink_to(videos)
    names = [entry.id for entry in open_source(videos, SPEC).entries]
    assert names == [entry.id for entry in open_source(elsewhere, SPEC).entries]
    assert names[0] == "down/00006.mp4"
    listed = tmp_path / "list.csv"
    listed.write_text(f"up/00002.mp4,up\n{videos.resolve()}/down/00006.mp4,down\n")  # relative and absolute
    assert [entry.id for entry in open_source(listed, SPEC, root=videos).entries] == ["up/00002.mp4", "down/00006.mp4"]


def test_pieces_of_one_video_have_names_of_their_own(videos: Path) -> None:
    listed = videos.parent / "pieces.csv"
    listed.write_text("path,label,start,end\nup/00002.mp4,a,0,1\nup/00002.mp4,b,1,2\nup/00002.mp4,a,1,2\n")
    names = [entry.id for entry in open_source(listed, SPEC, root=videos).entries]
    assert names == ["00002.mp4@0-1", "00002.mp4@1-2#1", "00002.mp4@1-2#2"]


def test_videos_that_are_not_there_are_failures_but_not_all_of_them(videos: Path) -> None:
    listed = videos.parent / "list.csv"
    listed.write_text("up/00002.mp4,up\nup/gone.mp4,up\n")
    source = open_source(listed, SPEC, root=videos)
    failure = source.read(1)
    assert isinstance(failure, Failure)
    assert "no such file" in failure.reason
    with pytest.raises(AnnotationError, match="2 of 2 videos are not there"):
        open_source(listed, SPEC, root=videos.parent)


def test_the_split_made_for_evaluation_is_the_default(videos: Path, tmp_path: Path) -> None:
    assert len(open_source(videos, SPEC).entries) == 8  # not split: all of it
    for split, names in (("train", ("down", "left")), ("val", ("up", "left"))):
        for name in names:
            (tmp_path / split / name).mkdir(parents=True)
            for file in (videos / name).iterdir():
                (tmp_path / split / name / file.name).symlink_to(file)
    assert [entry.id for entry in open_source(tmp_path, SPEC).entries] == ["left/00004.mp4", "up/00002.mp4"]
    assert len(open_source(tmp_path, SPEC, split="train").entries) == 2


def test_the_motion_benchmark_is_a_source() -> None:
    spec = InputSpec(frames=4, stride=2, height=32, width=32)
    source = open_source("motion:easy:10", spec, split="val", seed=3)
    views = source.read(6)
    clip = MotionBenchmark("easy", "val", 10, frames=4, stride=2, size=32, seed=3)[6]
    assert isinstance(views, torch.Tensor)
    assert torch.equal(views, eval_transform(spec)(clip.frames)[None])
    assert [entry.label for entry in source.entries] == [0, 1, 2, 3, 4, 5, 6, 7, 0, 1]
    assert source.class_names == CLASSES
    with pytest.raises(EvaluationError, match="makes 4 frames, 1 apart, of 32 × 32; the model takes 4, 2 apart"):
        MotionVideos(MotionBenchmark(frames=4, size=32), spec)


def test_different_clips_of_the_benchmark_have_different_names() -> None:
    spec = InputSpec(frames=4, stride=1, height=32, width=32)
    shape = {"num_clips": 2, "frames": 4, "size": 32}
    sources = [
        open_source("motion:easy:2", spec),
        open_source("motion:easy:2", spec, seed=1),
        open_source("motion:easy:2", spec, split="val"),
        open_source("motion:hard:2", spec),
        *(MotionVideos(MotionBenchmark(Level(num_distractors=n), "test", **shape), spec) for n in (3, 4)),
    ]
    names = [entry.id for source in sources for entry in source.entries]
    assert names[:4] == ["easy-test-0-00000", "easy-test-0-00001", "easy-test-1-00000", "easy-test-1-00001"]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize(
    ("data", "options", "message"),
    [
        ("motion:simple", {}, "no level 'simple'; there are easy"),
        ("motion:easy:many", {}, "'many' is not a number of clips"),
        ("motion:easy", {"split": "all"}, "no split 'all'"),
        ("motion:easy", {"views": 2}, "is one view"),
        ("videos", {"crops": 2}, "`crops` .2. must be 1"),
        ("videos", {"views": 0}, "`views` .0. must be at least 1"),
    ],
)
def test_nonsense_is_refused(videos: Path, data: str, options: dict[str, object], message: str) -> None:
    with pytest.raises((AnnotationError, EvaluationError), match=message):
        open_source(videos if data == "videos" else data, SPEC, **options)  # type: ignore[arg-type]


def test_segments_are_one_view(videos: Path) -> None:
    with pytest.raises(EvaluationError, match="segments of the whole video: that is one view"):
        open_source(videos, replace(SPEC, sampling="segments"), views=2)


def test_classes_are_matched_by_name() -> None:
    config = ModelConfig(num_classes=3, labels=("c", "a", "b"))
    assert match_classes(config, ("a", "b", "c")) == ({"class": [1, 2, 0]}, {"class": ("a", "b", "c")})
    assert match_classes(config, ("0", "1", "2"))[0] == {"class": [0, 1, 2]}  # numbers, not names
    assert match_classes(config, ()) == ({"class": [0, 1, 2]}, {"class": ("c", "a", "b")})
    assert match_classes(ModelConfig(num_classes=3), ("a", "b", "c"))[0] == {"class": [0, 1, 2]}
    # numbers that are names on both sides: as folders (sorted as text), as a list's indices, as `finetune` writes them
    texts = tuple(sorted(str(index) for index in range(12)))
    written = ModelConfig(num_classes=12, labels=tuple(f"class {name}" for name in texts))
    assert match_classes(written, texts)[0] == {"class": list(range(12))}
    columns = match_classes(written, tuple(str(index) for index in range(12)))[0]["class"]
    assert [texts[column] for column in columns] == [str(index) for index in range(12)]
    assert order_note(config, ("a", "b", "c")) is None
    assert "in the data's order: 'a', 'b', 'c'" in str(order_note(ModelConfig(num_classes=3), ("a", "b", "c")))


@pytest.mark.parametrize(
    ("config", "names", "message"),
    [
        (ModelConfig(num_classes=4), ("a", "b", "c"), "the model has 4 classes, the data has 3 .'a', 'b', 'c'."),
        (ModelConfig(num_classes=2, labels=("a", "b")), ("a", "x"), "the data has 'x', which the model does not know"),
        (ModelConfig(num_classes=2, labels=("class 3", "class 5")), ("3", "7"), "has '7', .* the model has '5'"),
        (ModelConfig(num_classes={"verb": 2, "noun": 2}), ("a", "b"), "predicts verb and noun, the data is labelled"),
        (ModelConfig(num_classes={"verb": 2}), {"verb": ("a",)}, "2 classes of verb, the data has 1"),
        (ModelConfig(num_classes=0), ("a", "b"), "motionformer features"),
    ],
)
def test_classes_that_do_not_fit_are_refused(config: ModelConfig, names: tuple[str, ...], message: str) -> None:
    with pytest.raises(EvaluationError, match=message):
        match_classes(config, names)
