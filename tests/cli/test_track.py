"""`motionformer track`, as a user types it."""

import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import islice
from pathlib import Path

import pytest
import torch
from torch import Tensor
from typer.testing import CliRunner

from motionformer.cli import app
from motionformer.data.motion import write_video
from motionformer.errors import MaskError, VideoError
from motionformer.experiments.davis.score import jaccard
from motionformer.tracking.masks import read_mask, write_mask
from motionformer.tracking.tracker import CopyFirst
from motionformer.video import open_video
from motionformer.video.stream import FrameStream, stream_video
from tests.tracking.discs import disc_clip

runner = CliRunner(env={"COLUMNS": "200", "TERM": "dumb"})
MODEL = ["--model", "joint-tiny", "--clip", "1", "--height", "192", "--block", "0"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    frames, masks = disc_clip(4, frames=11, size=96)
    write_video(tmp_path / "disc.mp4", frames.numpy(), 8)
    write_mask(tmp_path / "first.png", masks[0])
    return tmp_path


def test_follows_a_disc_through_a_file(folder: Path) -> None:
    places = ["--overlay", str(folder / "tracked.mp4"), "--output", str(folder / "masks")]
    result = runner.invoke(
        app, ["track", str(folder / "disc.mp4"), "--mask", str(folder / "first.png"), *MODEL, *places]
    )
    assert result.exit_code == 0, result.output
    assert "11 frames" in result.output
    truth = disc_clip(4, frames=11, size=96)[1]
    found = [read_mask(file) for file in sorted((folder / "masks").iterdir())]
    assert len(found) == 11
    assert torch.equal(found[0], truth[0])
    assert jaccard(found[-1] == 1, truth[-1] == 1) > 0.6
    with open_video(folder / "tracked.mp4") as video:
        assert (video.metadata.num_frames, video.metadata.fps) == (11, 8.0)


def test_pictures_instead_of_a_video(folder: Path) -> None:
    words = ["--mask", str(folder / "first.png"), "--model", "copy", "--overlay", str(folder / "pictures")]
    result = runner.invoke(app, ["track", str(folder / "disc.mp4"), *words])
    assert result.exit_code == 0, result.output
    assert [file.name for file in sorted((folder / "pictures").iterdir())][-1] == "00010.png"


def test_json_says_what_was_followed_and_where(folder: Path) -> None:
    first = read_mask(folder / "first.png")
    first[0, :3] = 2
    write_mask(folder / "first.png", first)
    words = ["--mask", str(folder / "first.png"), "--model", "copy", "--masks", str(folder / "masks"), "--json"]
    result = runner.invoke(app, ["track", str(folder / "disc.mp4"), *words])
    assert json.loads(result.stdout) == {
        "video": str(folder / "disc.mp4"),
        "frames": 11,
        "objects": [{"number": 1, "frames": 11}, {"number": 2, "frames": 11}],
        "masks": str(folder / "masks"),
    }


def test_errors(folder: Path) -> None:
    command = ["track", str(folder / "disc.mp4"), "--mask", str(folder / "first.png"), "--model", "copy"]
    nowhere = runner.invoke(app, command)
    assert nowhere.exit_code == 2
    assert "give an output" in nowhere.output
    write_mask(folder / "first.png", torch.ones(48, 96, dtype=torch.uint8))
    wrong = runner.invoke(app, [*command, "--masks", str(folder / "masks")])
    assert isinstance(wrong.exception, MaskError)
    assert "the mask is 96 × 48, the frames of" in str(wrong.exception)
    write_mask(folder / "first.png", torch.zeros(96, 96, dtype=torch.uint8))
    empty = runner.invoke(app, [*command, "--masks", str(folder / "masks")])
    assert "shows no object" in str(empty.exception)
    assert not (folder / "masks").exists()


def test_what_is_read_is_not_written_over(folder: Path) -> None:
    def refused(video: str, *options: str, mask: str = "first.png") -> str:
        words = [str(folder / word) if not word.startswith("--") else word for word in options]
        result = runner.invoke(
            app, ["track", str(folder / video), "--mask", str(folder / mask), "--model", "nobody", *words]
        )
        assert isinstance(result.exception, MaskError)  # before the model, which is not there
        return str(result.exception)

    before = (folder / "disc.mp4").read_bytes()
    (folder / "linked.mp4").hardlink_to(folder / "disc.mp4")
    for name in ("disc.mp4", "masks/../disc.mp4", "linked.mp4"):
        assert "is the video that is tracked; write somewhere else" in refused("disc.mp4", "--overlay", name)
    assert (folder / "disc.mp4").read_bytes() == before
    frames = folder / "frames"
    write_masks(frames, 3)
    for option in ("--masks", "--overlay"):
        assert "is the video that is tracked" in refused("frames", option, "frames")
    write_masks(folder / "truth", 3)
    for option in ("--masks", "--overlay"):
        assert "00000.png, which would be overwritten" in refused("frames", option, "truth", mask="truth/00000.png")
    assert "the same names" in refused("disc.mp4", "--masks", "both", "--overlay", "both")
    assert not (folder / "both").exists()


def test_files_and_folders_are_told_apart(folder: Path) -> None:
    command = ["track", str(folder / "disc.mp4"), "--mask", str(folder / "first.png"), "--model", "nobody"]
    (folder / "taken.mp4").mkdir()
    (folder / "notes.txt").touch()
    for option, name, said in (
        ("--overlay", "taken.mp4", "is a folder, and the mp4 to write is a file"),
        ("--overlay", "notes.txt", "is a file, and a folder is needed there"),
        ("--masks", "notes.txt", "is a file, and a folder is needed there"),
        ("--masks", "notes.txt/masks", r"is a file, and a folder is needed there"),
    ):
        result = runner.invoke(app, [*command, option, str(folder / name)])
        assert isinstance(result.exception, MaskError)
        assert said in str(result.exception)


def write_masks(folder: Path, count: int) -> None:
    folder.mkdir()
    for number in range(count):
        write_mask(folder / f"{number:05d}.png", torch.ones(16, 16, dtype=torch.uint8))


def test_a_video_has_its_name_when_it_is_whole(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Stops(CopyFirst):
        def track(self, frames: Iterable[Tensor], first: Tensor) -> Iterator[Tensor]:
            yield first
            raise RuntimeError("stopped")

    monkeypatch.setattr("motionformer.tracking.tracker.CopyFirst", Stops)
    (folder / "tracked.mp4").write_bytes(b"an older one")
    words = ["--mask", str(folder / "first.png"), "--model", "copy", "--overlay", str(folder / "tracked.mp4")]
    result = runner.invoke(app, ["track", str(folder / "disc.mp4"), *words])
    assert str(result.exception) == "stopped"
    assert (folder / "tracked.mp4").read_bytes() == b"an older one"
    assert not list(folder.glob("*.part"))


def test_a_video_that_breaks_off_keeps_what_was_followed(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    @contextmanager
    def breaks_off(path: Path) -> Iterator[FrameStream]:
        with stream_video(path) as stream:

            def frames() -> Iterator[Tensor]:
                yield from islice(stream.frames, 4)
                raise VideoError("Invalid data found", path=path)

            yield replace(stream, frames=frames())

    monkeypatch.setattr("motionformer.tracking.tracker.stream_video", breaks_off)
    places = ["--overlay", str(folder / "tracked.mp4"), "--masks", str(folder / "masks")]
    words = ["--mask", str(folder / "first.png"), "--model", "copy", *places]
    result = runner.invoke(app, ["track", str(folder / "disc.mp4"), *words])
    assert isinstance(result.exception, VideoError)
    assert "4 of 11 frames were tracked before an error" in result.stderr
    assert len(list((folder / "masks").iterdir())) == 4
    assert not (folder / "tracked.mp4").exists()
    with open_video(folder / "tracked.partial.mp4") as video:
        assert video.metadata.num_frames == 4


def test_masks_of_another_video_are_told(folder: Path) -> None:
    write_masks(folder / "masks", 13)
    words = ["--mask", str(folder / "first.png"), "--model", "copy", "--masks", str(folder / "masks")]
    result = runner.invoke(app, ["track", str(folder / "disc.mp4"), *words])
    assert result.exit_code == 0, result.output
    assert "contains 2 other png files, not of this video" in result.stderr


def test_a_place_that_cannot_be_written_is_told_before_the_work(folder: Path) -> None:
    command = ["track", str(folder / "disc.mp4"), "--mask", str(folder / "first.png"), "--model", "copy", "--overlay"]
    closed = runner.invoke(app, [*command, "/proc/tracked.mp4"])
    assert isinstance(closed.exception, OSError)
    assert closed.exception.filename == "/proc/tracked.mp4.part"
    other = runner.invoke(app, [*command, str(folder / "tracked.avi")])
    assert "the suffix must be .mp4" in str(other.exception)
