"""Every row of every experiment is a recipe that can be built."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from motionformer.cli import app
from motionformer.errors import RecipeError
from motionformer.experiments.tables import EXPERIMENTS, find_experiment
from motionformer.training.model import build_config
from motionformer.training.recipe import load_recipe


@pytest.mark.parametrize("experiment", EXPERIMENTS.values(), ids=lambda one: one.id)
def test_every_row_is_a_recipe(experiment: object) -> None:
    configs = {}
    for row in (*experiment.cpu, *experiment.paper):
        recipe = load_recipe(row.recipe, row.changes)
        configs[row.label] = build_config(recipe, 8, tuple("abcdefgh"))
    here = [configs[row.label] for row in experiment.cpu]
    assert len(set(map(str, here))) == len(here), "two rows are the same model"
    assert experiment.cpu or experiment.paper or experiment.here


def test_the_command_lists_and_refuses(tmp_path: Path) -> None:
    listed = CliRunner().invoke(app, ["reproduce"])
    assert listed.exit_code == 0
    assert all(name in listed.output for name in EXPERIMENTS)
    as_json = json.loads(CliRunner().invoke(app, ["reproduce", "--json"]).stdout)
    assert [one["id"] for one in as_json] == list(EXPERIMENTS)
    assert all(one["title"] and one["here"] for one in as_json)
    with pytest.raises(RecipeError, match="Did you mean t4"):
        find_experiment("t44")
    missing = CliRunner().invoke(app, ["reproduce", "t4", "--data", str(tmp_path / "nowhere")])
    assert missing.exit_code == 2
    assert "nowhere" in missing.output.replace("\n", "").replace("│", "").replace(" ", "")
