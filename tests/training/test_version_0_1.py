"""Recipes and run folders of version 0.1 are read. `run_0_1` was written by it: a run killed after step 3 of 4, the
model that it was initialised from, and the card of a finished run."""

import json
import shutil
from pathlib import Path

import pytest
import torch

from motionformer import load_model
from motionformer.training import load_recipe, make_recipe, train
from motionformer.training.run import find_finished

FOLDER = Path(__file__).parent / "run_0_1"


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)  # its paths are relative
    shutil.copytree(FOLDER, tmp_path / "killed")
    shutil.copytree(FOLDER / "start", tmp_path / "start")
    return tmp_path / "killed"


def test_an_interrupted_run_resumes(run: Path, caplog: pytest.LogCaptureFixture) -> None:
    before = (run / "metrics.csv").read_text()
    state = torch.load(run / "checkpoints" / "step-00000003.ckpt", weights_only=True)["callbacks"]["Clock"]
    assert train(run / "recipe.yaml", output="killed").seconds > state["seconds"]
    assert "`model.start` is deprecated; the key is now `model.init_from`" in caplog.text
    assert (run / "metrics.csv").read_text().startswith(before)
    card = json.loads((run / "card.json").read_text())
    assert [entry["step"] for entry in card["results"]["history"]] == [2, 4]
    assert load_model(run / "model").config.source == "start/model"
    assert "init_from: start/model" in (run / "recipe.yaml").read_text()


def test_a_finished_run_is_not_repeated(run: Path) -> None:
    finished = run / "finished"
    result = find_finished(load_recipe(finished / "recipe.yaml").with_options(output=finished))
    assert result is not None
    assert result.kept == json.loads((finished / "card.json").read_text())["results"]["kept"]
    assert "card" not in repr(result)


def test_old_keys_and_values_are_read_with_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    recipe = make_recipe({"name": "x", "model": {"start": "a"}, "data": {"order": "turns"}})
    assert (recipe.model.init_from, recipe.data.order) == ("a", "stratified")
    assert make_recipe({"name": "x"}, ["model.start=b"]).model.init_from == "b"
    assert caplog.text.count("`model.start` is deprecated; the key is now `model.init_from`") == 2
    assert "`data.order=turns` is deprecated; it is now `stratified`" in caplog.text
