"""`motionformer features`, as a user types it."""

from io import BufferedWriter, FileIO
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from motionformer import FeatureExtractor
from motionformer.cli import app
from motionformer.inference.features import read_features
from motionformer.video import ReadFacts
from tests.inference.conftest import make_model
from tests.video.numbered import write_damaged, write_images, write_video

runner = CliRunner(env={"COLUMNS": "200", "TERM": "dumb"})


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with weights, and one with a video and something that is none."""
    root = tmp_path_factory.mktemp("place")
    make_model().save_pretrained(root / "model")
    (root / "videos").mkdir()
    write_video(root / "videos" / "a.mp4", num_frames=30)
    (root / "videos" / "bad.mp4").write_text("no video")
    return root


@pytest.mark.parametrize("format", ["npz", "safetensors"])
def test_tokens_of_segments(place: Path, tmp_path: Path, format: str) -> None:
    options = ["--what", "tokens", "--block", "0", "--segments", "0.4", "--format", format, "--out", str(tmp_path)]
    result = runner.invoke(app, ["features", str(place / "videos"), "--model", str(place / "model"), *options])
    assert result.exit_code == 1, "one video is broken"
    assert "1 of 2 videos could not be read" in result.output
    assert "bad.mp4: Invalid data" in result.output
    assert "3 × 2 × 2 × 2 × 24" in result.output
    found, about = read_features(tmp_path / f"a.mp4.{format}")
    extractor = FeatureExtractor.from_pretrained(place / "model", what="tokens", block=0, segments=0.4)
    np.testing.assert_array_equal(found.values, extractor(place / "videos" / "a.mp4").values)
    assert (about["what"], about["block"], about["segments"]) == ("tokens", 0, 0.4)


def test_resume(place: Path, tmp_path: Path) -> None:
    words = ["features", str(place / "videos" / "a.mp4"), "--model", str(place / "model"), "--out", str(tmp_path)]
    assert runner.invoke(app, words).exit_code == 0
    before = (tmp_path / "a.mp4.npz").stat().st_mtime_ns
    result = runner.invoke(app, [*words, "--resume"])
    assert result.exit_code == 0, result.output
    assert "kept" in result.output
    assert (tmp_path / "a.mp4.npz").stat().st_mtime_ns == before
    other = runner.invoke(app, [*words, "--resume", "--what", "pooled"])
    assert other.exit_code == 1
    assert "holds other features: what differ" in str(other.exception)


def test_wrong_usage(place: Path) -> None:
    words = ["features", str(place / "videos" / "a.mp4"), "--model", str(place / "model")]
    assert runner.invoke(app, [*words, "--what", "everything"]).exit_code == 2
    assert runner.invoke(app, [*words, "--block", "first"]).exit_code == 2
    for options in (["--segments", "inf"], ["--segments", "0"], ["--segments", "1", "--hop", "inf"]):
        wrong = runner.invoke(app, [*words, *options])
        assert wrong.exit_code == 2
        assert f"{options[-2]}: {options[-1]} is not a number of seconds above 0" in " ".join(wrong.output.split())
    result = runner.invoke(app, [*words, "--block", "9"])
    assert result.exit_code == 1
    assert "blocks are 0 to 1" in str(result.exception)


def test_a_full_disk_names_the_file(place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.TemporaryFile", lambda **_: BufferedWriter(FileIO("/dev/full", "w")))
    words = ["features", str(place / "videos" / "a.mp4"), "--model", str(place / "model"), "--out", str(tmp_path)]
    result = runner.invoke(app, words)
    assert isinstance(result.exception, OSError)
    assert result.exception.filename == str(tmp_path / "a.mp4.npz")
    assert not list(tmp_path.iterdir())


def test_help_shows_examples() -> None:
    assert "motionformer features videos/" in " ".join(runner.invoke(app, ["features", "--help"]).output.split())


def test_repeated_frames_and_damage_are_told(place: Path, tmp_path: Path) -> None:
    damaged = write_damaged(tmp_path / "damaged.mp4")
    slow = write_video(tmp_path / "slow.mp4", num_frames=20, fps=5)
    words = ["features", str(damaged), str(slow), "--model", str(place / "model"), "--out", str(tmp_path / "out")]
    for options in ([], ["--resume"]):
        result = runner.invoke(app, [*words, *options])
        assert result.exit_code == 0, result.output
        assert "1 of 2 videos are damaged where they were read" in result.output
        assert "1 of 2 videos show frames several times (the fewest distinct ones: 2 of 4 in a clip)" in result.output
    facts = [read_features(tmp_path / "out" / name)[0].facts for name in ("damaged.mp4.npz", "slow.mp4.npz")]
    assert facts == [ReadFacts(4, 4, True), ReadFacts(4, 2, False)]
    other = runner.invoke(app, [*words, "--resume", "--sample-by", "frames"])
    assert "holds other features: sample_by differ" in str(other.exception)
    result = runner.invoke(app, [*words, "--sample-by", "frames"])
    assert "several times" not in result.output
    assert runner.invoke(app, [*words, "--sample-by", "frames", "--segments", "0.5"]).exit_code == 1


def test_a_repaired_folder_of_frames_is_done_again(place: Path, tmp_path: Path) -> None:
    folder = write_images(tmp_path / "frames", "%05d.png", num_frames=20)
    words = ["features", str(folder), "--model", str(place / "model"), "--out", str(tmp_path / "out"), "--resume"]
    assert runner.invoke(app, words).exit_code == 0
    assert "kept" in runner.invoke(app, words).output
    (folder / "00007.png").write_bytes((folder / "00008.png").read_bytes())
    assert "kept" not in runner.invoke(app, words).output


def test_an_output_that_cannot_be_made(place: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    options = ["--model", str(place / "model"), "--output", str(tmp_path / "file")]
    result = runner.invoke(app, ["features", str(place / "videos"), *options])
    assert result.exit_code == 1
    assert f"{tmp_path / 'file'}: this folder cannot be created ({tmp_path / 'file'} is a file" in str(result.exception)
    assert "choose another output" in str(result.exception)
