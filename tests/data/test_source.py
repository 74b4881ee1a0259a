"""One address, one answer: `open_source` and the addresses of the motion benchmark."""

from pathlib import Path

import pytest

from motionformer.data import Annotations, Record, open_source
from motionformer.data.source import MotionAddress, MotionClips, parse_motion
from motionformer.errors import AnnotationError, MissingVideosError
from motionformer.models import InputSpec

SPEC = InputSpec(frames=4, height=32, width=32, stride=2)


@pytest.mark.parametrize(
    ("address", "parts"),
    [
        ("motion:easy", MotionAddress("easy")),
        ("motion:hard:2000", MotionAddress("hard", num_clips=2000)),
        ("motion:medium/0", MotionAddress("medium", number=0)),
        (Path("motion:easy:7"), MotionAddress("easy", num_clips=7)),
        ("videos/motion:easy", None),
        ("videos", None),
    ],
)
def test_an_address_has_parts(address: str | Path, parts: MotionAddress | None) -> None:
    assert parse_motion(address) == parts


@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("motion:", "^motion:: there is no level ''; there are easy, medium, hard.$"),
        ("motion:simple:4", "^motion:simple:4: there is no level 'simple'"),
        ("motion:easy:0", "'0' is not a number of clips; write motion:easy:1000.$"),
        ("motion:easy:many", "'many' is not a number of clips"),
        ("motion:easy/first", "'first' is not the number of a clip; write motion:easy/3.$"),
        ("motion:easy:4/3", "no level 'easy:4'"),
    ],
)
def test_a_wrong_address_is_named(address: str, message: str) -> None:
    with pytest.raises(AnnotationError, match=message):
        parse_motion(address)


def test_clips_of_the_benchmark() -> None:
    source = open_source("motion:easy:6", split="val", seed=3)
    assert isinstance(source, MotionClips)
    assert source.how == "the built-in motion benchmark, level easy, 6 val clips"
    benchmark = source.benchmark(SPEC)
    assert (benchmark.split, benchmark.seed, len(benchmark), benchmark.stride) == ("val", 3, 6, 2)
    assert benchmark[0].frames.shape == (4, 32, 32, 3)
    assert len(open_source("motion:easy", num_clips=9)) == 9


@pytest.mark.parametrize(
    ("address", "split", "message"),
    [("motion:easy", "all", "no split 'all'; there are train, val, test"), ("motion:easy/3", None, "is one clip")],
)
def test_clips_that_are_not_there(address: str, split: str | None, message: str) -> None:
    with pytest.raises(AnnotationError, match=message):
        open_source(address, split=split)


def test_only_square_clips_are_made() -> None:
    source = open_source("motion:easy")
    assert isinstance(source, MotionClips)
    with pytest.raises(AnnotationError, match=r"motion:easy: the motion benchmark makes square clips; .* 32 × 48"):
        source.benchmark(InputSpec(frames=4, height=32, width=48))


def test_a_path_is_a_data_set(tmp_path: Path) -> None:
    (tmp_path / "a.mp4").touch()
    listed = tmp_path / "list.csv"
    listed.write_text("path,label\na.mp4,wave\n")
    source = open_source(listed)
    assert isinstance(source, Annotations)
    assert source.class_names == ("wave",)
    with pytest.raises(MissingVideosError, match="no such file or folder"):
        open_source(tmp_path / "nowhere")


def test_shards_are_refused_with_the_way_to_read_them(tmp_path: Path) -> None:
    for name in ("index.json", "train-000000.tar"):
        (tmp_path / name).touch()
    for address in (tmp_path, tmp_path / "train-000000.tar"):
        with pytest.raises(AnnotationError, match=r"tar shards are read by motionformer\.data\.ShardDataset"):
            open_source(address)


def test_a_data_set_is_shown_in_a_line() -> None:
    records = tuple(Record(Path(f"{i}.mp4"), i % 2) for i in range(500))
    assert repr(Annotations(records, ("a", "b"), "k2", "train")) == "Annotations('k2' (train): 500 records, 2 classes)"
    one = Annotations((Record(Path("a"), {"verb": 0, "noun": 1}),), {"verb": ("cut",), "noun": ("egg", "pan")}, "epic")
    assert repr(one) == "Annotations('epic': 1 record, 1 verb class, 2 noun classes)"
