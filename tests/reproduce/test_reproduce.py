"""Tables of the paper: every row is a recipe that can be built, runs are shared and collected."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from motionformer.cli import app
from motionformer.errors import RecipeError
from motionformer.reproduce import EXPERIMENTS, Row
from motionformer.reproduce.experiments import find_experiment
from motionformer.reproduce.page import make_page, read_outcomes
from motionformer.reproduce.run import plan_jobs, run_experiment
from motionformer.reproduce.table import Line, Outcome, collect, draw, to_markdown
from motionformer.training.model import build_config
from motionformer.training.recipe import load_recipe
from motionformer.training.shipped import find_recipe

SMALL = ("data.train_clips=16", "data.val_clips=8", "data.workers=0", "epochs=1", "schedule.warmup=0", "global_batch=8")


@pytest.mark.parametrize("experiment", EXPERIMENTS.values(), ids=lambda one: one.id)
def test_every_row_is_a_recipe(experiment: object) -> None:
    configs = {}
    for row in (*experiment.cpu, *experiment.paper):
        recipe = load_recipe(find_recipe(row.recipe), row.changes)
        configs[row.label] = build_config(recipe, 8, tuple("abcdefgh"))
    here = [configs[row.label] for row in experiment.cpu]
    assert len(set(map(str, here))) == len(here), "two rows are the same model"
    assert experiment.cpu or experiment.paper or experiment.command


def test_tables_share_runs(tmp_path: Path) -> None:
    of = {name: {job.folder for job in plan_jobs(EXPERIMENTS[name].cpu, [0, 1], tmp_path, ())} for name in ("t4", "a1")}
    assert len(of["t4"]) == 10
    assert len(of["t4"] & of["a1"]) == 6  # joint, divided, trajectory


def test_an_experiment_runs_and_is_collected(tmp_path: Path) -> None:
    rows = [Row("joint", "motion/easy-joint"), Row("shallow", "motion/easy", ("model.changes.depth=1",))]
    jobs = plan_jobs(rows, [0, 1], tmp_path, (*SMALL, "engine.devices=1"))
    told = []
    run_experiment(jobs, processes=1, threads=1, tell=lambda job, top1: told.append((job.row.label, job.seed, top1)))
    outcome = collect(EXPERIMENTS["t4"], "cpu", jobs, "a command")
    assert [line.label for line in outcome.lines] == ["joint", "shallow"]
    assert outcome.steps == 2
    by_label = {line.label: line.values for line in outcome.lines}
    for label, seed, top1 in told:
        assert by_label[label][seed] == pytest.approx(100 * top1)
    assert Outcome.from_dict(json.loads(json.dumps(outcome.to_dict()))) == outcome


def test_the_table_shows_every_seed() -> None:
    outcome = Outcome("t4", "cpu", "c", 2, 8, (Line("a", (50.0, 70.0), 3.0), Line("b", (10.0,), 3.0)))
    assert to_markdown(outcome).splitlines()[2:] == [
        "| a | 60.0 | 14.1 | 50.0 | 70.0 | 3 |",
        "| b | 10.0 |  | 10.0 |  | 3 |",
    ]
    assert draw(EXPERIMENTS["t4"], outcome).axes


def test_the_command_lists_and_refuses() -> None:
    listed = CliRunner().invoke(app, ["reproduce"])
    assert listed.exit_code == 0
    assert all(name in listed.output for name in EXPERIMENTS)
    with pytest.raises(RecipeError, match="Did you mean t4"):
        find_experiment("t44")
    refused = CliRunner().invoke(app, ["reproduce", "a3"])
    assert refused.exit_code == 2
    assert "motionformer compare" in refused.output


DOCS = Path(__file__).parents[2] / "docs"


def test_the_page_is_what_the_outcomes_say() -> None:
    """Made again from `docs/results`: `motionformer reproduce --page docs`."""
    assert (DOCS / "reproduction.md").read_text(encoding="utf-8") == make_page(read_outcomes(DOCS / "results"))


def test_the_page_shows_figures_and_what_was_not_run() -> None:
    outcome = Outcome("t4", "cpu", "motionformer reproduce t4", 2, 8, (Line("joint", (50.0, 70.0), 3.0),))
    page = make_page({"t4": outcome})
    assert (
        "| joint | K400 79.2 % top-1, 94.2 % top-5; SSv2 64.0 % top-1, 88.4 % top-5 | 60.0 ± 14.1 (50.0, 70.0) |"
        in page
    )
    assert page.count("Not run yet") == sum(bool(one.cpu) for one in EXPERIMENTS.values()) - 1
    assert "| H, k400 |" in page
