"""Records become clips; what cannot be read becomes a visible failure."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.data.conftest import raw_reader
from torch import Generator, Tensor
from torch.utils.data import DataLoader

from motionformer.data import (
    Annotations,
    ClipDataset,
    EpochSampler,
    FailurePolicy,
    MiddleSegments,
    RandomClip,
    RandomSegments,
    Record,
    ViewClips,
    Visit,
    collate_clips,
    eval_sampler,
    train_sampler,
)
from motionformer.errors import AnnotationError, FailedVideosError, VideoError
from motionformer.models import InputSpec
from motionformer.video import Clock
from motionformer.video.sample import ClipPlan

NAMES = ("left", "right")
PLAN = ClipPlan(4, 2, fps=None)


class Mirror:
    """Swaps left and right, sometimes: a transform that draws, and whose label depends on the draw."""

    def with_label(self, clip: Tensor, label: Any, generator: Generator | None = None) -> tuple[Tensor, Any]:
        swap = bool(torch.randint(2, (), generator=generator))
        return (clip.flip(2), 1 - label) if swap else (clip, label)


def shown(clip: Tensor) -> list[int]:
    """Which frames these are, from their brightness (see `write_video`)."""
    return [round((value - 8) / 8) for value in clip.float().mean(dim=(-3, -2, -1)).tolist()]


@pytest.fixture(scope="module")
def videos(tmp_path_factory: pytest.TempPathFactory, make_video) -> list[Path]:
    folder = tmp_path_factory.mktemp("ein Ordner 走る")
    return [make_video(folder / f"video {index}.mp4", num_frames=20) for index in range(6)]


def annotate(paths: list[Path], **changes: Any) -> Annotations:
    records = tuple(Record(path, index % 2, line=index + 1) for index, path in enumerate(paths))
    return replace(Annotations(records, NAMES, "test"), **changes)


def test_an_item_is_the_right_frames(videos: list[Path]) -> None:
    item = ClipDataset(annotate(videos), raw_reader(ViewClips(PLAN)))[1]
    assert shown(item["clip"]) == [6, 8, 10, 12], "the middle view"
    assert item["clip"].dtype == torch.uint8
    assert (item["label"], item["index"], item["path"]) == (1, 1, str(videos[1]))


def test_a_piece_is_sampled_within_its_bounds(videos: list[Path]) -> None:
    reader = raw_reader(ViewClips(ClipPlan(3, 1, fps=None), num_views=2))
    clip, _ = reader.read_labelled(Record(videos[0], 0, start=0.2, end=0.4))
    assert [shown(view) for view in clip] == [[6, 7, 8], [9, 10, 11]]
    assert Record(videos[0], start=0.1, end=0.1001).span(Clock(20, 30.0)) == range(3, 4)
    assert Record(videos[0], start=0.1, end=9.0).span(Clock(20, 30.0)) == range(3, 20)
    with pytest.raises(VideoError, match=r"begins at 2 s, but the video has only 0\.67 s"):
        reader.read_labelled(Record(videos[0], 0, start=2.0, end=3.0))


def test_a_piece_of_a_variable_rate_is_found_by_time(tmp_path: Path, make_video) -> None:
    times = [*range(0, 1000, 100), *range(1000, 6000, 500)]  # ten frames in the first second, then two a second
    path = make_video(tmp_path / "x.mkv", num_frames=20, times=times)
    every = raw_reader(ViewClips(ClipPlan(3, 1, fps=None)))
    clip, _ = every.read_labelled(Record(path, start=4.0, end=5.5))
    assert shown(clip) == [16, 17, 18]
    clip, _ = every.read_labelled(Record(path, start=0.7, end=1.0))
    assert shown(clip) == [7, 8, 9]
    clip, _ = every.read_labelled(Record(path, start=2.0, end=2.6, fps=5.0))
    assert shown(clip) == [10, 11, 12], "a rate of the record's own overrides the video's"


def test_the_rate_of_a_folder_of_frames_comes_from_its_record(tmp_path: Path, videos: list[Path]) -> None:
    import av

    with av.open(str(videos[0])) as container:
        for index, frame in enumerate(container.decode(video=0), start=1):
            frame.to_image().save(tmp_path / f"frame_{index:010d}.jpg")
    reader = raw_reader(ViewClips(ClipPlan(4, 1, fps=10.0)))
    clip, _ = reader.read_labelled(Record(tmp_path, 0, start=0.0, end=0.16, fps=50.0))
    assert shown(clip) == [0, 5, 7, 7], "a step of 5 frames, the piece ends after 8"
    clip, _ = reader.read_labelled(Record(tmp_path, 0, fps=20.0))
    assert shown(clip) == [6, 8, 10, 12]


def test_views_times_crops(videos: list[Path]) -> None:
    class Row:
        def __init__(self, row: int) -> None:
            self.row = row

        def with_label(self, clip: Tensor, label: Any, generator: Generator | None = None) -> tuple[Tensor, Any]:
            return clip[:, self.row : self.row + 1], label

    clip, label = raw_reader(ViewClips(PLAN, num_views=2), (Row(0), Row(5), Row(9))).read_labelled(Record(videos[0], 1))
    assert clip.shape == (6, 4, 1, 48, 3)
    assert [shown(view)[0] for view in clip] == [0, 0, 0, 13, 13, 13]
    assert label == 1


def test_segments(videos: list[Path]) -> None:
    middle, _ = raw_reader(MiddleSegments(5)).read_labelled(Record(videos[0], 0))
    assert shown(middle) == [2, 6, 10, 14, 18]
    drawn, _ = raw_reader(RandomSegments(5)).read_labelled(Record(videos[0], 0), torch.Generator().manual_seed(0))
    assert all(4 * part <= frame < 4 * part + 4 for part, frame in enumerate(shown(drawn)))
    with pytest.raises(ValueError, match="draws at random"):
        raw_reader(RandomClip(PLAN)).read_labelled(Record(videos[0], 0))


def test_something_something_refuses_a_stride(videos: list[Path]) -> None:
    annotations = annotate(videos, sampling="segments", name="something-something-v2")
    ClipDataset(annotations, raw_reader(MiddleSegments(4)))
    with pytest.raises(AnnotationError, match="sampled by segments"):
        ClipDataset(annotations, raw_reader(RandomClip(ClipPlan(16, 4))))
    ClipDataset(replace(annotations, sampling="any"), raw_reader(RandomClip(ClipPlan(16, 4))))


def batches(dataset: ClipDataset, epoch: int, **options: Any) -> list[dict[str, Any]]:
    sampler = EpochSampler(len(dataset), shuffle=True, seed=1)
    sampler.set_epoch(epoch)
    return list(DataLoader(dataset, batch_size=2, sampler=sampler, collate_fn=collate_clips, **options))


def same(left: list[dict[str, Any]], right: list[dict[str, Any]]) -> bool:
    keys = ("clip", "label", "index")
    return all(torch.equal(a[key], b[key]) for a, b in zip(left, right, strict=True) for key in keys)


def test_workers_change_nothing_and_epochs_do(videos: list[Path]) -> None:
    dataset = ClipDataset(annotate(videos), raw_reader(RandomClip(PLAN), (Mirror(),)), seed=5)
    alone = batches(dataset, 3)
    assert same(alone, batches(dataset, 3, num_workers=2))
    assert not same(alone, batches(dataset, 4))
    first, again, other = dataset[Visit(0, 2)], dataset[2], dataset[Visit(1, 2)]
    assert torch.equal(first["clip"], again["clip"])
    assert shown(first["clip"]) != shown(other["clip"])


def test_workers_that_live_on_learn_of_the_epoch(videos: list[Path]) -> None:
    dataset = ClipDataset(annotate(videos), raw_reader(RandomClip(PLAN)), seed=5)
    sampler = EpochSampler(len(dataset), shuffle=True, seed=1)
    loader = DataLoader(
        dataset, batch_size=2, sampler=sampler, collate_fn=collate_clips, num_workers=1, persistent_workers=True
    )
    for epoch in (0, 1):
        sampler.set_epoch(epoch)
        assert same(list(loader), batches(dataset, epoch))


@pytest.fixture
def mixed(videos: list[Path], tmp_path: Path) -> Annotations:
    """Six good videos and two bad ones."""
    (tmp_path / "empty.mp4").touch()
    (tmp_path / "text.mp4").write_text("this is no video\n" * 50)
    return annotate([*videos, tmp_path / "empty.mp4", tmp_path / "text.mp4"])


@pytest.mark.parametrize("num_workers", [0, 2])
def test_a_failed_video_is_seen_and_never_replaced(mixed: Annotations, num_workers: int) -> None:
    dataset = ClipDataset(mixed, raw_reader(ViewClips(PLAN)))
    loader = DataLoader(dataset, batch_size=3, collate_fn=collate_clips, num_workers=num_workers)
    policy = FailurePolicy.evaluation(len(dataset))
    seen = list(policy.watch(loader))
    assert [index for batch in seen for index in batch["index"].tolist()] == list(range(6))
    failed = [failure for batch in seen for failure in batch["failed"]]
    assert [(failure.index, failure.label, failure.line) for failure in failed] == [(6, 0, 7), (7, 1, 8)]
    assert "empty" in failed[0].reason
    assert "Invalid data" in failed[1].reason


def test_training_stops_after_the_accepted_share_and_names_the_files(mixed: Annotations, tmp_path: Path) -> None:
    dataset = ClipDataset(mixed, raw_reader(ViewClips(PLAN)))
    loader = DataLoader(dataset, batch_size=4, collate_fn=collate_clips)
    with pytest.raises(FailedVideosError, match=r"2 of 8 videos could not be read \(.*empty\.mp4.*text\.mp4"):
        list(FailurePolicy(len(dataset)).watch(loader))
    patient = FailurePolicy(len(dataset), max_share=0.25)
    for _ in range(3):  # the same two each epoch are two, not six
        assert sum(len(batch["index"]) for batch in patient.watch(loader)) == 6
    assert len(patient.failures) == 2
    patient.write_csv(tmp_path / "failed.csv")
    lines = (tmp_path / "failed.csv").read_text().splitlines()
    assert lines[0] == "path,index,line,reason"
    assert len(lines) == 3
    assert str(tmp_path / "empty.mp4") in lines[1]


def test_a_batch_of_failures_alone(mixed: Annotations) -> None:
    dataset = ClipDataset(mixed, raw_reader(ViewClips(PLAN)))
    loader = DataLoader(dataset, batch_size=2, collate_fn=collate_clips)
    assert len(list(FailurePolicy(8, max_share=0.5).watch(loader))) == 3, "training skips it"
    last = list(FailurePolicy.evaluation(8).watch(loader))[-1]
    assert len(last["failed"]) == 2
    assert len(last["clip"]) == 0


def test_a_mistake_of_ours_is_not_taken_for_a_bad_video(videos: list[Path]) -> None:
    class Wrong:
        def with_label(self, clip: Tensor, label: Any, generator: Generator | None = None) -> tuple[Tensor, Any]:
            raise RuntimeError("a bug")

    with pytest.raises(RuntimeError, match="a bug"):
        ClipDataset(annotate(videos), raw_reader(ViewClips(PLAN), (Wrong(),)))[0]


def test_labels_of_a_batch() -> None:
    def item(label: Any) -> dict[str, Any]:
        return {"clip": torch.zeros(1), "label": label, "index": 0, "path": "x"}

    both = collate_clips([item({"verb": 1, "noun": 2}), item({"verb": 3, "noun": 4})])["label"]
    assert both["verb"].tolist() == [1, 3]
    assert both["noun"].tolist() == [2, 4]
    assert collate_clips([item(None), item(None)])["label"] is None
    assert collate_clips([item(7)])["label"].tolist() == [7]


def test_samplers_of_a_model() -> None:
    kinetics = InputSpec(frames=16, stride=4, fps=30.0, views=10)
    assert train_sampler(kinetics) == RandomClip(ClipPlan(16, 4, 30.0))
    assert eval_sampler(kinetics) == ViewClips(ClipPlan(16, 4, 30.0), 10)
    something = InputSpec(frames=16, sampling="segments")
    assert train_sampler(something) == RandomSegments(16)
    assert eval_sampler(something) == MiddleSegments(16)
