"""The command `trace`, as a user runs it."""

import json
import subprocess
from pathlib import Path

import pytest
from typer.testing import CliRunner

from motionformer import create_model
from motionformer.cli import app
from tests.children import run_code
from tests.video.numbered import write_video


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("models") / "small"
    create_model("motionformer-tiny", depth=2, dim=24, num_heads=3).save_pretrained(folder)
    return str(folder)


def run(*words: str) -> str:
    result = CliRunner().invoke(app, ["trace", *words], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


def fail(*words: str) -> subprocess.CompletedProcess[str]:
    return run_code("from motionformer.cli import main; main()", "trace", *words)


def test_files_and_a_table(model: str, tmp_path: Path) -> None:
    png, numbers = tmp_path / "t.png", tmp_path / "t.json"
    out = run("motion:easy/3", "--model", model, "--point", "20,12.5", "--output", str(png), "--out", str(numbers))
    assert "20.0,12.5 in frame 4" in " ".join(out.split())
    assert "written" in out
    assert png.read_bytes().startswith(b"\x89PNG")
    assert json.loads(numbers.read_text())["query"]["row"] == 1


def test_a_map_that_shows_nothing_is_called_so(model: str) -> None:
    out = " ".join(run("motion:easy/3", "--model", model).split())
    assert out.count("near uniform") == 5  # each token frame, and what it means
    assert "no path to draw" in out
    out = run("motion:easy/3", "--model", "motion-tiny", "--layer", "mean")
    assert "near uniform" not in out


def test_the_scale_of_the_heat(model: str) -> None:
    assert json.loads(run("motion:easy/3", "--model", model, "--scale", "absolute", "--json"))["scale"] == "absolute"
    assert json.loads(run("motion:easy/3", "--model", model, "--json"))["scale"] == "relative"


def test_several_models_and_json(model: str) -> None:
    out = run("motion:hard/12", "--model", model, "--compare", model, "--layer", "all", "--head", "2", "--json")
    first, second = json.loads(out)
    assert first["tracks"] == second["tracks"]
    assert [(track["layer"], track["head"]) for track in first["tracks"]] == [("0", "2"), ("1", "2")]


def test_what_speaks_for_a_class(model: str) -> None:
    found = json.loads(run("motion:easy/3", "--model", model, "--what", "gradcam", "--label", "2", "--json"))
    assert found["label"] == "2"
    assert found["query"] is None


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--point", "60,3"), "outside the frame"),
        (("--frame", "9"), "there is no frame 9"),
        (("--layer", "7"), "there is no layer 7: the model has 2"),
        (("--what", "class-token", "--at", "20,12"), "class-token takes no point"),
        (("--what", "rollout", "--label", "left"), "rollout takes no class"),
        (("--output", "t.bmp"), "one of png, pdf, svg, gif, mp4, json"),
    ],
)
def test_mistakes_are_messages(model: str, words: tuple[str, ...], message: str) -> None:
    result = CliRunner().invoke(app, ["trace", "motion:easy/3", "--model", model, *words])
    assert result.exit_code == 1
    assert message in str(result.exception)


def test_a_mistake_as_a_user_sees_it(model: str) -> None:
    result = fail("nowhere.mp4", "--model", model, "--at", "1,1")
    assert result.returncode == 1
    assert "nowhere.mp4" in result.stderr
    assert "Traceback" not in result.stderr
    wrong = CliRunner().invoke(app, ["trace", "motion:easy/3", "--model", model, "--at", "here"])
    assert wrong.exit_code == 2
    assert "is not a point" in " ".join(wrong.output.split())


def test_help_has_examples() -> None:
    assert "Examples" in run("--help")


def test_repeated_frames_are_told(model: str, tmp_path: Path) -> None:
    path = write_video(tmp_path / "slow.mp4", num_frames=12, fps=5)
    out = " ".join(run(str(path), "--model", model, "--at", "40,30").split())
    assert "the clip repeats frames" in out
