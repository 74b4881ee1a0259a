"""`motionformer track`, as a user types it."""

from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from motionformer.cli import app
from motionformer.data.motion.videos import write_video
from motionformer.davis.jaccard import jaccard
from motionformer.davis.masks import read_mask, write_mask
from motionformer.errors import MaskError
from motionformer.video import open_video
from tests.davis.discs import disc_clip

runner = CliRunner(env={"COLUMNS": "200", "TERM": "dumb"})
MODEL = ["--model", "joint-tiny", "--clip", "1", "--height", "192", "--block", "0"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    frames, masks = disc_clip(4, frames=11, size=96)
    write_video(tmp_path / "disc.mp4", frames.numpy(), 8)
    write_mask(tmp_path / "first.png", masks[0])
    return tmp_path


def test_follows_a_disc_through_a_file(folder: Path) -> None:
    places = ["--overlay", str(folder / "tracked.mp4"), "--masks", str(folder / "masks")]
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


def test_errors(folder: Path) -> None:
    command = ["track", str(folder / "disc.mp4"), "--mask", str(folder / "first.png"), "--model", "copy"]
    nowhere = runner.invoke(app, command)
    assert nowhere.exit_code == 2
    assert "say where to write" in nowhere.output
    write_mask(folder / "first.png", torch.ones(48, 96, dtype=torch.uint8))
    wrong = runner.invoke(app, [*command, "--masks", str(folder / "masks")])
    assert isinstance(wrong.exception, MaskError)
    assert "the mask is 96 × 48, the frames of" in str(wrong.exception)
    write_mask(folder / "first.png", torch.zeros(96, 96, dtype=torch.uint8))
    empty = runner.invoke(app, [*command, "--masks", str(folder / "masks")])
    assert "shows no object" in str(empty.exception)
    assert not (folder / "masks").exists()
