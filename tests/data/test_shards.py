"""Shards hold what the data set holds, and each item is read once."""

import dataclasses
import filecmp
import os
import signal
import tarfile
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.children import run_code
from tests.data.conftest import raw_reader
from torch.utils.data import DataLoader

from motionformer.data import (
    Annotations,
    ClipDataset,
    MiddleSegments,
    RandomClip,
    Record,
    ShardDataset,
    ViewClips,
    collate_clips,
    write_shards,
)
from motionformer.data.shards import Shard, _assign_shards, _read_shard_index
from motionformer.errors import AnnotationError, OutputError
from motionformer.video.sample import ClipPlan

READER = raw_reader(RandomClip(ClipPlan(4, 2, fps=None)))


@pytest.fixture(scope="module")
def annotations(tmp_path_factory: pytest.TempPathFactory, make_video) -> Annotations:
    folder = tmp_path_factory.mktemp("videos")
    paths = [make_video(folder / f"v {index}.mp4", num_frames=12) for index in range(10)]
    return Annotations(tuple(Record(path, index % 3) for index, path in enumerate(paths)), ("a", "ü", "c"), "test")


@pytest.fixture(scope="module")
def shards(annotations: Annotations, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("out") / "shards"
    size = 2 * annotations.records[0].path.stat().st_size + 200  # two videos, not three
    assert sum(shard.num_items for shard in write_shards(annotations, out, max_bytes=size)) == 10
    return out


def indices(dataset: ShardDataset, **options: Any) -> list[int]:
    loader = DataLoader(dataset, batch_size=2, collate_fn=collate_clips, **options)
    return [index for batch in loader for index in batch["index"].tolist()]


def test_the_same_clips_as_from_the_files(annotations: Annotations, shards: Path) -> None:
    direct = ClipDataset(annotations, READER, seed=4)
    items = list(ShardDataset(shards, READER, shuffle=False, seed=4))
    assert len(items) == 10
    for item in items:
        expected = direct[item["index"]]
        assert torch.equal(item["clip"], expected["clip"])
        assert (item["label"], item["path"]) == (expected["label"], expected["path"])


def test_layout_and_index(annotations: Annotations, shards: Path, tmp_path: Path) -> None:
    index = _read_shard_index(str(shards))
    assert index.class_names == annotations.class_names
    assert index.num_items == 10
    assert len(index.shards) == 5
    with tarfile.open(shards / index.shards[0].file) as tar:
        names = tar.getnames()
    keys = [name.split(".")[0] for name in names]
    assert keys == sorted(keys), "files of a sample lie together"
    assert {name.split(".", 1)[1] for name in names} == {"mp4", "json"}
    again = tmp_path / "again"
    list(write_shards(annotations, again, max_bytes=10**9))
    twice = tmp_path / "twice"
    list(write_shards(annotations, twice, max_bytes=10**9))
    assert filecmp.cmp(again / "all-000000.tar", twice / "all-000000.tar", shallow=False)


@pytest.mark.parametrize("num_workers", [0, 2])
def test_evaluation_reads_everything_once(shards: Path, num_workers: int) -> None:
    assert sorted(indices(ShardDataset(shards, READER, shuffle=False), num_workers=num_workers)) == list(range(10))


def test_processes_and_workers_share_without_overlap(shards: Path) -> None:
    for epoch in (0, 1):
        shares = []
        for rank in range(2):
            dataset = ShardDataset(shards, READER, shuffle=True, rank=rank, num_ranks=2)
            dataset.set_epoch(epoch)
            shares.append(indices(dataset, num_workers=2))
        assert len(shares[0]) == len(shares[1]) == 4, "equally many, or the processes would wait for each other"
        assert len({*shares[0], *shares[1]}) == 8


def test_order_and_clips_depend_on_the_epoch_alone(shards: Path) -> None:
    dataset = ShardDataset(shards, READER, shuffle=True, buffer_size=4)
    loader = DataLoader(dataset, batch_size=2, collate_fn=collate_clips, num_workers=1, persistent_workers=True)

    def visit(epoch: int) -> list[int]:
        dataset.set_epoch(epoch)
        return [index for batch in loader for index in batch["index"].tolist()]

    first, second, again = visit(0), visit(1), visit(0)
    assert first == again != second
    assert sorted(first) == sorted(second) == list(range(10))


@pytest.mark.parametrize("rank", [0, 5])
def test_too_few_shards(shards: Path, rank: int) -> None:
    with pytest.raises(AnnotationError, match="5 shards are too few for 6 processes with 1 workers"):
        iter(ShardDataset(shards, READER, shuffle=True, rank=rank, num_ranks=6))


def test_every_shard_is_dealt_once() -> None:
    shards = [Shard(str(number), 1, 1) for number in range(11)]
    dealt = _assign_shards(shards, num_ranks=2, num_workers=3)
    assert sorted(int(shard.file) for rank in dealt for worker in rank for shard in worker) == list(range(11))


def test_several_pieces_of_a_video_are_stored_once(annotations: Annotations, tmp_path: Path) -> None:
    path = annotations.records[0].path
    pieces = (Record(path, {"verb": 0}, 0.0, 0.2), Record(path, {"verb": 1}, 0.2, 0.4))
    listed = Annotations(pieces, {"verb": ("take", "put")}, "pieces", "train")
    list(write_shards(listed, tmp_path / "s", max_bytes=10**6))
    with tarfile.open(tmp_path / "s" / "train-000000.tar") as tar:
        assert len(tar.getnames()) == 2
    reader = raw_reader(ViewClips(ClipPlan(2, 1, fps=None)))
    items = list(ShardDataset(tmp_path / "s", reader, shuffle=False))
    direct = ClipDataset(listed, reader)
    assert [item["label"] for item in items] == [{"verb": 0}, {"verb": 1}]
    assert all(torch.equal(item["clip"], direct[item["index"]]["clip"]) for item in items)


def test_frames_of_a_piece(annotations: Annotations, tmp_path: Path) -> None:
    import av

    folder = tmp_path / "frames"
    folder.mkdir()
    with av.open(str(annotations.records[0].path)) as container:
        for index, frame in enumerate(container.decode(video=0), start=1):
            frame.to_image().save(folder / f"frame_{index:010d}.jpg")
    listed = Annotations((Record(folder, 0, 0.1, 0.3, fps=30.0),), ("a",), "frames")
    list(write_shards(listed, tmp_path / "s", max_bytes=10**6))
    with tarfile.open(tmp_path / "s" / "all-000000.tar") as tar:
        assert [name for name in tar.getnames() if name.endswith("jpg")] == [
            f"00000000.frame_{number:010d}.jpg" for number in range(4, 10)
        ]
    reader = raw_reader(ViewClips(ClipPlan(3, 2, fps=None)))
    (item,) = ShardDataset(tmp_path / "s", reader, shuffle=False)
    assert torch.equal(item["clip"], ClipDataset(listed, reader)[0]["clip"])


def test_a_broken_video_in_a_shard_is_a_failure_with_its_own_name(tmp_path: Path) -> None:
    (tmp_path / "bad.mp4").write_text("no video")
    list(write_shards(Annotations((Record(tmp_path / "bad.mp4", 0),), ("a",), "bad"), tmp_path / "s", max_bytes=10**6))
    (item,) = ShardDataset(tmp_path / "s", READER, shuffle=False)
    assert item["failure"].path == str(tmp_path / "bad.mp4")


def test_wrong_shards(annotations: Annotations, shards: Path, tmp_path: Path) -> None:
    with pytest.raises(AnnotationError, match=r"index\.json: no such file"):
        ShardDataset(tmp_path, READER, shuffle=False)
    (tmp_path / "index.json").write_text('{"format": "other"}')
    with pytest.raises(AnnotationError, match="not an index of shards"):
        ShardDataset(tmp_path, READER, shuffle=False)
    with pytest.raises(AnnotationError, match="not empty"):
        list(write_shards(annotations, shards, max_bytes=100))
    cut = tmp_path / "cut"
    list(write_shards(annotations, cut, max_bytes=10**9))
    whole = (cut / "all-000000.tar").read_bytes()
    (cut / "all-000000.tar").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(AnnotationError, match=r"all-000000\.tar: this shard cannot be read to its end"):
        list(ShardDataset(cut, READER, shuffle=False))


def test_the_ban_on_strides_travels_along(annotations: Annotations, tmp_path: Path) -> None:
    listed = Annotations(annotations.records[:2], annotations.class_names, "ssv2", sampling="segments")
    list(write_shards(listed, tmp_path / "s", max_bytes=10**9))
    with pytest.raises(AnnotationError, match="sampled by segments"):
        ShardDataset(tmp_path / "s", READER, shuffle=False)
    assert len(list(ShardDataset(tmp_path / "s", raw_reader(MiddleSegments(4)), shuffle=False))) == 2


def test_any_address_fsspec_knows(annotations: Annotations, shards: Path) -> None:
    import fsspec

    memory = fsspec.filesystem("memory")
    memory.put(str(shards), "/bucket/shards", recursive=True)
    items = list(ShardDataset("memory://bucket/shards", READER, shuffle=False))
    assert sorted(item["index"] for item in items) == list(range(10))
    with pytest.raises(AnnotationError, match="cannot be read"):
        ShardDataset("nosuchprotocol://bucket", READER, shuffle=False)


def test_a_file_name_that_is_no_utf8_is_kept(annotations: Annotations, tmp_path: Path) -> None:
    odd = tmp_path / "caf\udce9.mp4"
    odd.write_bytes(annotations.records[0].path.read_bytes())
    list(write_shards(Annotations((Record(odd, 0),), ("a",), "odd"), tmp_path / "s", max_bytes=10**6))
    [item] = ShardDataset(tmp_path / "s", READER, shuffle=False)
    assert item["path"] == str(odd)


def test_a_shard_that_fails_leaves_nothing(
    annotations: Annotations, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(path: Path) -> bytes:
        raise OSError("the disk is gone")

    monkeypatch.setattr(Path, "read_bytes", fail)
    with pytest.raises(OSError, match="the disk is gone"):
        list(write_shards(annotations, tmp_path / "s", max_bytes=10**6))
    assert list((tmp_path / "s").iterdir()) == []


def test_a_full_disk_leaves_no_index(annotations: Annotations, tmp_path: Path) -> None:
    """A folder with half an index would pass for a finished one."""
    writing = write_shards(annotations, tmp_path / "out", max_bytes=10**9)
    next(writing)
    (tmp_path / "out" / f".index.json.{os.getpid()}.part").symlink_to("/dev/full")
    with pytest.raises(OSError, match=r"No space left on device: '.*/index\.json'"):
        next(writing)
    assert sorted(file.name for file in (tmp_path / "out").iterdir()) == [".journal", "all-000000.tar"]
    list(write_shards(annotations, tmp_path / "out", max_bytes=10**9))
    assert sorted(file.name for file in (tmp_path / "out").iterdir()) == ["all-000000.tar", "index.json"]


KILLED = """
import os, signal, sys
from pathlib import Path
from motionformer.data import shards, Annotations, Record

added, add = 0, shards._add

def add_and_die(tar, name, content):
    global added
    added += 1
    if added == 11:  # two shards are done; of the third, the first video and the description of the second
        os.kill(os.getpid(), signal.SIGKILL)
    add(tar, name, content)

shards._add = add_and_die
paths = sorted(Path(sys.argv[1]).iterdir())
listed = Annotations(tuple(Record(path, i % 3) for i, path in enumerate(paths)), ("a", "ü", "c"), "test")
list(shards.write_shards(listed, sys.argv[2], max_bytes=int(sys.argv[3])))
"""


def test_a_killed_run_resumes_and_gives_the_same_bytes(annotations: Annotations, shards: Path, tmp_path: Path) -> None:
    out, size = tmp_path / "out", 2 * annotations.records[0].path.stat().st_size + 200
    folder = annotations.records[0].path.parent
    killed = run_code(KILLED, str(folder), str(out), str(size))
    assert killed.returncode == -signal.SIGKILL
    assert sorted(file.name for file in out.glob("*.tar")) == ["all-000000.tar", "all-000001.tar"]
    assert not (out / "index.json").exists()
    kept = [(file, file.stat().st_ino) for file in sorted(out.glob("*.tar"))]
    other = dataclasses.replace(annotations, records=annotations.records[1:])
    for wrong, options in ((other, {"max_bytes": size}), (annotations, {"max_bytes": size, "seed": 1})):
        with pytest.raises(OutputError, match="is of another run"):
            list(write_shards(wrong, out, **options))
    list(write_shards(annotations, out, max_bytes=size))
    assert [(file, file.stat().st_ino) for file, _ in kept] == kept, "what was done is not written again"
    names = sorted(file.name for file in shards.iterdir())
    assert sorted(file.name for file in out.iterdir()) == names, "nothing else is left there"
    assert filecmp.cmpfiles(out, shards, names, shallow=False) == (names, [], [])
    with pytest.raises(AnnotationError, match="not empty"):
        list(write_shards(annotations, out, max_bytes=size))


def test_a_video_that_changed_since_is_written_again(annotations: Annotations, tmp_path: Path) -> None:
    copies = [tmp_path / f"{i}.mp4" for i in range(4)]
    for record, copy in zip(annotations, copies, strict=False):
        copy.write_bytes(record.path.read_bytes())
    listed = Annotations(tuple(Record(path, 0) for path in copies), ("a",), "test")
    size = copies[0].stat().st_size + 10
    started = write_shards(listed, tmp_path / "out", max_bytes=size)
    for _ in range(3):
        next(started)
    started.close()
    copies[1].write_bytes(copies[1].read_bytes()[::-1])  # other contents, as long as before
    list(write_shards(listed, tmp_path / "out", max_bytes=size))
    list(write_shards(listed, tmp_path / "anew", max_bytes=size))
    names = [f"all-{i:06d}.tar" for i in range(4)]
    assert filecmp.cmpfiles(tmp_path / "out", tmp_path / "anew", names, shallow=False) == (names, [], [])
