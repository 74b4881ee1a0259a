"""A model is not tested on the videos it has learnt from, unless somebody asks for it, and then it is said."""

import io
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from rich.console import Console

from motionformer.data import open_dataset
from motionformer.data.fingerprints import video_set
from motionformer.data.motion import MotionBenchmark, write_videos
from motionformer.errors import EvaluationError
from motionformer.inference import (
    FileVideos,
    MotionVideos,
    Results,
    VideoSource,
    compare,
    evaluate,
    open_source,
    print_summary,
    summarise,
    write_reports,
)
from motionformer.inference.views import find_overlap
from motionformer.models import Motionformer, create_model
from motionformer.models.training_data import TrainingData, VideoSet
from motionformer.weights import load_model
from tests.inference.made import Linear, Numbers


def tiny() -> Motionformer:
    torch.manual_seed(0)
    return create_model("motionformer-tiny", frames=4, size=32, dim=16, depth=1, num_heads=2, num_classes=8)


@pytest.fixture(scope="module")
def videos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data") / "videos"
    write_videos(folder, "easy", 16, frames=8, size=32)
    return folder


def learnt_from(videos: Path, count: int) -> Motionformer:
    model = tiny()
    model.training_data = TrainingData(video_set(open_dataset(videos).records[:count])[0])
    return model


def source_of(model: Motionformer, videos: Path) -> VideoSource:
    return FileVideos(open_dataset(videos), model.config.input)


def run(model: Motionformer, source: VideoSource, **options: object) -> Results:
    return evaluate(model, source, show_progress=False, **options)  # type: ignore[arg-type]


def test_training_videos_are_refused_wherever_they_lie(videos: Path, tmp_path: Path) -> None:
    model = learnt_from(videos, 5)
    for number, file in enumerate(sorted(videos.rglob("*.mp4"))):
        (there := tmp_path / "moved" / file.parent.name).mkdir(parents=True, exist_ok=True)
        shutil.copy(file, there / f"renamed-{number}.mp4")
    for folder in (videos, tmp_path / "moved"):
        with pytest.raises(
            EvaluationError, match=r"5 of 16 videos are training videos of this model .* --allow-overlap"
        ):
            run(model, source_of(model, folder), output=tmp_path / "results")
    assert not (tmp_path / "results").exists()


def test_asked_for_it_is_said_everywhere(videos: Path, tmp_path: Path) -> None:
    model = learnt_from(videos, 5)
    results = run(model, source_of(model, videos), output=tmp_path, allow_overlap=True)
    said = write_reports(results, tmp_path)["training_overlap"]
    assert (said["known"], said["videos"], len(said["names"])) == (True, 5, 5)
    assert set(said["names"]) <= set(results.ids)
    assert Results.load(tmp_path).overlap == said
    console = Console(file=io.StringIO(), width=200)
    print_summary(summarise(results), console)
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert "training videos in this test: 5 of 16 videos are training videos of this model" in text
    other = run(tiny(), source_of(model, videos))
    assert any(note.startswith("A: 5 of 16 videos") for note in compare(results, other).notes)
    with pytest.raises(EvaluationError, match="5 of 16"):  # finished earlier is no way around it
        run(model, source_of(model, videos), output=tmp_path)
    model.training_data = None  # the same weights, without their list
    assert run(model, source_of(model, videos), output=tmp_path).overlap["known"] is False


def test_new_videos_are_new_and_old_models_do_not_know(videos: Path) -> None:
    model = learnt_from(videos, 8)
    held_out = replace(open_dataset(videos), records=open_dataset(videos).records[8:])
    found = run(model, FileVideos(held_out, model.config.input)).overlap
    assert (found["known"], found["videos"], found["note"]) == (
        True,
        0,
        "0 of 8 videos are training videos of this model (re-encoded copies are not recognised)",
    )
    unknown = run(tiny(), source_of(model, videos)).overlap
    assert unknown == {
        "known": False,
        "note": "unknown: the model does not carry a list of its training files",
    }
    assert find_overlap(Linear(), Numbers())["known"] is False


def test_pieces_of_a_file(videos: Path) -> None:
    """Other pieces of a training file are told, and not refused: held-out pieces of one long video are all there is."""
    records = [replace(record, start=0.0, end=0.1) for record in open_dataset(videos).records]
    later = [replace(record, start=0.1, end=0.2) for record in open_dataset(videos).records]
    model = tiny()
    model.training_data = TrainingData(video_set(records)[0])
    source = FileVideos(replace(open_dataset(videos), records=tuple(later)), model.config.input)
    found = find_overlap(model, source)
    assert (found["videos"], found["same_file"]) == (0, 16)
    assert "16 are other pieces of files it was trained on" in found["note"]


def test_what_chose_the_epoch_and_what_is_not_known_is_told(videos: Path) -> None:
    records = open_dataset(videos).records
    model = tiny()
    model.training_data = TrainingData(VideoSet(), video_set(records[:3])[0], 2, ("k400",))
    note = run(model, source_of(model, videos)).overlap["note"]
    assert "3 chose the epoch that was kept: the metric is optimistic" in note
    assert "the list of its training videos lacks 2" in note
    assert "it started from k400, of unknown training videos" in note


def test_clips_of_the_benchmark() -> None:
    model = load_model("motion-tiny")  # learnt from 3,200 clips of the training split of `easy`
    spec = model.config.input
    with pytest.raises(EvaluationError, match="16 of 16 videos"):
        run(model, open_source("motion:easy:16", spec, split="train"))
    assert run(model, open_source("motion:easy:16", spec, split="test")).overlap["videos"] == 0
    for other in ({"seed": 1}, {"level": "hard"}):
        made = {"level": "easy", "split": "train", "num_clips": 4, "frames": 8, "size": 48, **other}
        assert find_overlap(model, MotionVideos(MotionBenchmark(**made), spec))["videos"] == 0  # type: ignore[arg-type]


def test_the_list_travels_with_the_model(videos: Path, tmp_path: Path) -> None:
    model = learnt_from(videos, 5)
    model.save_pretrained(tmp_path / "a")
    again = load_model(tmp_path / "a")
    assert again.training_data == model.training_data
    assert Motionformer.from_pretrained(tmp_path / "a").training_data == model.training_data
    tiny().save_pretrained(tmp_path / "a")  # another model in the same place
    assert load_model(tmp_path / "a").training_data is None


def test_without_labels_there_is_no_figure_to_flatter(videos: Path) -> None:
    model = learnt_from(videos, 5)
    bare = replace(open_dataset(videos), records=tuple(replace(one, label=None) for one in open_dataset(videos)))
    assert run(model, FileVideos(bare, model.config.input)).overlap["videos"] == 5


def test_one_video_without_a_label_is_no_way_around_it(videos: Path) -> None:
    model = learnt_from(videos, 5)
    first, *others = open_dataset(videos).records
    mixed = replace(open_dataset(videos), records=(replace(first, label=None), *others))
    with pytest.raises(EvaluationError, match="5 of 16 videos are training videos"):
        run(model, FileVideos(mixed, model.config.input))
