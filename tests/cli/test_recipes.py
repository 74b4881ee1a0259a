"""The command `recipes`, as a user runs it."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from motionformer.cli import app
from motionformer.errors import RecipeError
from motionformer.training.recipe import load_recipe


def run(*words: str) -> str:
    result = CliRunner().invoke(app, ["recipes", *words], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


def test_a_table_for_people(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    out = run()
    assert "k400/t2-joint-positions-trajectory " in out
    assert max(map(len, out.splitlines())) <= 80
    base = next(line for line in out.splitlines() if line.startswith("k400/base "))
    assert "79.7 % top-1" in base
    assert base.endswith("369.5")
    assert "motion/easy" not in run("k600")


def test_json_for_scripts() -> None:
    listed = {row["name"]: row for row in json.loads(run("--json"))}
    assert len(listed) == 99
    base = listed["k400/base"]
    assert (base["gmacs"], base["paper"], base["clip"]) == (369.5, "T6, T4, A1", "16 frames at stride 4 of 224 px")
    assert base["expected"].startswith("79.7 % top-1")
    assert base["command"] == "motionformer train k400/base data.train=train.csv data.val=val.csv data.root=videos"
    assert json.loads(run("--show", "k400/base", "--json")) == base | {"recipe": load_recipe("k400/base").to_dict()}


def test_one_in_full_is_a_file_to_train(tmp_path: Path) -> None:
    mine = tmp_path / "mine.yaml"
    out = run("--show", "k600/hr")
    mine.write_text(out, encoding="utf-8")
    assert load_recipe(mine) == load_recipe("k600/hr")
    assert "\nengine:\n  max_clips: 2\n  accelerator: auto\n" in out  # nothing is left to defaults
    header = " ".join(line.lstrip("# ") for line in out.splitlines() if line.startswith("#"))
    assert header.startswith("k600/hr: Motionformer-HR, 16 frames at stride 8 of 336 px, on Kinetics-600")
    assert "expected: 82.7 % top-1, 96.1 % top-5 (authors' list of released models)" in header
    assert "958.8 G multiply-adds per view" in header
    assert "30 views per video in the test; 35 epochs, 64 clips per step" in header
    assert "run here: nothing" in header
    for note in ("vit_1k", "project_values: false is the authors' code", "This row follows the checkpoint"):
        assert note in header  # of the family, of the row it is like, its own


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["k401"], "k401: no family of recipes of this name; there are epic, k400"),
        (["--show", "k400/bsae"], "Did you mean k400/base"),
    ],
)
def test_a_name_that_is_none(words: list[str], message: str) -> None:
    with pytest.raises(RecipeError, match=message):
        run(*words)


@pytest.mark.parametrize("words", [["k400", "--show", "k400/base"], ["--json", "--markdown"]], ids=" ".join)
def test_what_cannot_be_said_together(words: list[str]) -> None:
    assert CliRunner().invoke(app, ["recipes", *words]).exit_code == 2
