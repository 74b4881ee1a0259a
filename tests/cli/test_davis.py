"""`motionformer davis`, as a user types it."""

import json
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from motionformer.cli import app
from motionformer.errors import MaskError, MotionformerError, UnknownModelError, VideoError
from motionformer.experiments.davis import evaluate, find_sequences
from motionformer.tracking import CopyFirst
from tests.tracking.discs import write_davis

runner = CliRunner(env={"COLUMNS": "200", "TERM": "dumb"})


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_davis(tmp_path_factory.mktemp("davis"), {"left": 4, "right": 0}, frames=5, size=48)


def test_evaluate_then_score(root: Path, tmp_path: Path) -> None:
    options = ["--model", "joint-tiny", "--clip", "1", "--height", "48", "--block", "0", "--json"]
    result = runner.invoke(app, ["davis", "evaluate", str(root), *options, "--output", str(tmp_path / "masks")])
    assert result.exit_code == 0, result.output
    report = json.loads(result.stdout)
    assert [(one["sequence"], one["number"]) for one in report["objects"]] == [("left", 1), ("right", 1)]
    assert report["J&F"] == pytest.approx((report["J"]["mean"] + report["F"]["mean"]) / 2)
    assert report["num_frames"] == 10
    assert report["seconds_per_frame"] > 0
    earlier = runner.invoke(app, ["davis", "evaluate", str(root), *options[:-1], "--masks", str(tmp_path / "earlier")])
    assert "warning: --masks is deprecated and will be removed in 0.3; use --output." in earlier.stderr
    for file in (tmp_path / "masks").rglob("*.png"):
        assert (tmp_path / "earlier" / file.relative_to(tmp_path / "masks")).read_bytes() == file.read_bytes()
    scored = runner.invoke(app, ["davis", "score", str(tmp_path / "masks"), str(root), "--json"])
    assert json.loads(scored.stdout)["objects"] == report["objects"]


def test_tables_are_for_people(root: Path, tmp_path: Path) -> None:
    result = runner.invoke(app, ["davis", "evaluate", str(root), "--model", "copy", "--sequence", "left"])
    assert result.exit_code == 0, result.output
    assert "left" in result.output
    assert "right" not in result.output
    assert "5 frames" in result.output


def test_options_reach_the_tracker(root: Path) -> None:
    def report(*options: str) -> float:
        command = ["davis", "evaluate", str(root), "--model", "motionformer-tiny", "--height", "48", "--json"]
        result = runner.invoke(app, [*command, "--sequence", "left", *options])
        assert result.exit_code == 0, result.output
        return float(json.loads(result.stdout)["J&F"])

    assert report() == report()
    ways = [report(*words) for words in ((), ("--affinity", "attention"), ("--radius", "1"), ("--top-k", "0"))]
    assert len(set(ways)) == 4


def test_errors(root: Path, tmp_path: Path) -> None:
    assert runner.invoke(app, ["davis", "evaluate", "nowhere", "--model", "copy"]).exit_code == 2
    assert runner.invoke(app, ["davis", "evaluate", str(root)]).exit_code == 2
    wrong = runner.invoke(app, ["davis", "evaluate", str(root), "--model", "joint-tiny", "--block", "9"])
    assert wrong.exit_code == 2
    assert "blocks 0 to 3" in wrong.output
    device = runner.invoke(app, ["davis", "evaluate", str(root), "--model", "nobody", "--device", "x"])
    assert device.exit_code == 2
    assert "Invalid value for --device: 'x' cannot be used here" in device.output
    unknown = runner.invoke(app, ["davis", "evaluate", str(root), "--model", "nobody"])
    assert isinstance(unknown.exception, UnknownModelError)
    gone = runner.invoke(app, ["davis", "evaluate", str(root), "--model", "gone.safetensors", "--from-image"])
    assert isinstance(gone.exception, MotionformerError)
    empty = runner.invoke(app, ["davis", "evaluate", str(tmp_path), "--model", "copy"])
    assert isinstance(empty.exception, MaskError)
    missing = runner.invoke(app, ["davis", "score", str(tmp_path), str(root)])
    assert "no such folder" in str(missing.exception)


@pytest.mark.parametrize("option", ["--output", "--overlay"])
def test_a_file_where_a_folder_is_needed(root: Path, tmp_path: Path, option: str) -> None:
    (tmp_path / "notes").touch()
    result = runner.invoke(app, ["davis", "evaluate", str(root), "--model", "nobody", option, str(tmp_path / "notes")])
    assert isinstance(result.exception, MaskError)
    assert f"{option}: {tmp_path / 'notes'} is a file, and a folder is needed there" in str(result.exception)


@pytest.mark.parametrize("kind", ["Annotations", "JPEGImages"])
def test_the_data_set_is_not_written_over(root: Path, tmp_path: Path, kind: str) -> None:
    before = {file: file.read_bytes() for file in root.rglob("*.png")}
    (tmp_path / "link").symlink_to(root / kind / "480p")
    for place in (root / kind / "480p", tmp_path / "link"):
        result = runner.invoke(app, ["davis", "evaluate", str(root), "--model", "nobody", "--output", str(place)])
        assert isinstance(result.exception, MaskError)  # before the model, which is not there
        assert "write somewhere else" in str(result.exception)
        with pytest.raises(MaskError, match="write somewhere else"):
            evaluate(find_sequences(root), CopyFirst(), masks=place)
    assert {file: file.read_bytes() for file in root.rglob("*.png")} == before


@pytest.mark.parametrize("words", [["davis", "evaluate"], ["davis", "score"], ["track"]])
def test_help_shows_examples(words: list[str]) -> None:
    result = runner.invoke(app, [*words, "--help"])
    assert result.exit_code == 0
    assert f"motionformer {' '.join(words)} " in result.output.replace("\n", " ")


@pytest.mark.parametrize(
    ("page", "commands"), [("davis", (("davis", "evaluate"), ("davis", "score"))), ("track", (("track",),))]
)
def test_pages_name_options_that_exist_and_all_of_them(page: str, commands: tuple[tuple[str, ...], ...]) -> None:
    text = (Path(__file__).parents[2] / "docs" / "commands" / f"{page}.md").read_text(encoding="utf-8")
    help_text = " ".join(runner.invoke(app, [*words, "--help"]).output for words in commands)
    named, there = set(re.findall(r"`(--[a-z-]+)`", text)), set(re.findall(r"(--[a-z][a-z-]*)\b", help_text))
    assert named - there == set()
    assert there - named - {"--help", "--mask"} == set()


def test_an_error_loses_nothing_that_is_done(tmp_path: Path) -> None:
    root = write_davis(tmp_path, {"left": 4, "right": 0}, frames=5, size=48)
    (root / "JPEGImages/480p/right/00003.png").write_bytes(b"no picture")
    result = runner.invoke(app, ["davis", "evaluate", str(root), "--model", "copy", "--json"])
    assert isinstance(result.exception, VideoError)
    assert "00003.png" in str(result.exception)
    report = json.loads(result.stdout)
    assert [one["sequence"] for one in report["objects"]] == ["left"]
    assert (report["sequences_done"], report["sequences_in_all"]) == (1, 2)
    assert "only 1 of 2 sequences" in result.stderr
    table = runner.invoke(app, ["davis", "evaluate", str(root), "--model", "copy"])
    assert "left" in table.stdout
