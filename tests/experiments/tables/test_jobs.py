"""Rows become runs: shared between tables, on what is built in and on a folder of videos."""

import re
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from motionformer.data.motion import write_videos
from motionformer.errors import RecipeError, TrainingError
from motionformer.experiments.tables import EXPERIMENTS, Experiment, Request, Row
from motionformer.experiments.tables.jobs import _choose_rows, _make_recipe, _plan_jobs
from motionformer.experiments.tables.outcome import Outcome
from motionformer.experiments.tables.studies import _STUDIES, run_experiment
from motionformer.training.model import build_config

SMALL = ("data.train_clips=16", "data.val_clips=8", "data.workers=0", "epochs=1", "schedule.warmup=0", "global_batch=8")


def test_tables_share_runs(tmp_path: Path) -> None:
    request = Request(tmp_path, seeds=2)
    of = {name: {job.folder for job in _plan_jobs(EXPERIMENTS[name].cpu, request)} for name in ("t4", "a1")}
    assert len(of["t4"]) == 10
    assert len(of["t4"] & of["a1"]) == 6  # joint, divided, trajectory


def test_data_are_called_by_their_name(tmp_path: Path) -> None:
    for name in ("gestures", "gestures.v1", "gestures.v2"):
        (tmp_path / name).mkdir()
    (tmp_path / "list.csv").touch()
    named = {one.name: Request(tmp_path, data=one, seeds=1) for one in tmp_path.iterdir()}
    assert {name: request.data_name for name, request in named.items()} == {
        "gestures": "gestures",
        "gestures.v1": "gestures.v1",
        "gestures.v2": "gestures.v2",
        "list.csv": "list",
    }
    assert len({_plan_jobs(EXPERIMENTS["t4"].cpu[:1], request)[0].folder for request in named.values()}) == 4


def test_an_experiment_runs_is_collected_and_goes_on(tmp_path: Path) -> None:
    rows = (Row("joint", "motion/easy-joint"), Row("shallow", "motion/easy", ("model.changes.depth=1",)))
    experiment = replace(EXPERIMENTS["t4"], cpu=rows)
    told: list[str] = []
    request = Request(tmp_path, seeds=2, changes=(*SMALL, "engine.devices=1"), threads=1, processes=2, tell=told.append)
    with pytest.raises(RecipeError, match="no finished run"):
        run_experiment(experiment, replace(request, train=False))
    outcome = run_experiment(experiment, request)
    assert [line.label for line in outcome.lines] == ["joint", "shallow"]
    assert outcome.about == "2 steps, 8 held-out clips"
    by_label = {line.label: line.values for line in outcome.lines}
    for line in told:  # "1 of 4: joint, seed 0: 12.5 % (95 % CI 2.2–47.1, 1 of 8)"
        found = re.fullmatch(r"\d of 4: (\w+), seed (\d): ([\d.]+) % \(95 % CI [\d.]+–[\d.]+, (\d) of 8\)", line)
        assert found is not None, line
        assert by_label[found[1]][int(found[2])] == pytest.approx(float(found[3]), abs=0.06)
        assert int(found[4]) / 8 == pytest.approx(float(found[3]) / 100, abs=0.001)
    assert {line.videos for line in outcome.lines} == {8}
    assert len(told) == 4
    assert run_experiment(experiment, replace(request, train=False)) == outcome
    assert Outcome.read(outcome.write(tmp_path)[0]) == outcome
    with pytest.raises(TrainingError, match=r"holds a run of another recipe: optimiser\.lr"):  # not under its name
        run_experiment(experiment, replace(request, changes=(*request.changes, "optimiser.lr=1e-9"), train=False))
    shutil.rmtree(tmp_path / "runs/motion-easy-joint/seed-0")
    partial = run_experiment(experiment, replace(request, train=False))
    assert [line.seeds for line in partial.lines] == [(1,), (0, 1)]
    assert partial.lines[0].values == (outcome.lines[0].values[1],)


def test_rows_that_are_not_there_are_refused(tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match="it has joint, divided, trajectory"):
        _choose_rows(EXPERIMENTS["t4"], Request(tmp_path, rows="nothing"))
    with pytest.raises(RecipeError, match="--scale paper"):
        _choose_rows(EXPERIMENTS["t7"], Request(tmp_path))


@pytest.mark.parametrize("name", ["t4", "t3m", "t5", "a3", "a4", "a5", "a6"])
def test_every_experiment_has_the_threads_asked_for(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def count(experiment: Experiment, request: Request) -> Outcome:
        return Outcome(name, "cpu", "", f"{torch.get_num_threads()} of {request.threads}", ())

    monkeypatch.setattr("motionformer.experiments.tables.studies.train_table", count)
    monkeypatch.setattr("motionformer.experiments.tables.studies._STUDIES", dict.fromkeys(_STUDIES, count))
    before = torch.get_num_threads()
    try:
        told = run_experiment(EXPERIMENTS[name], Request(tmp_path, threads=before + 1)).about
    finally:
        torch.set_num_threads(before)
    assert told == f"{before + 1} of {before + 1}"


@pytest.mark.parametrize("name", ["t2", "t3a", "t4", "a1", "a3", "t6", "t7"])
def test_published_recipes_do_not_take_a_folder(name: str, tmp_path: Path) -> None:
    """What is made for a folder of videos is not the paper's model, and is not filed as such."""
    for train in (True, False):
        with pytest.raises(RecipeError, match=r"--scale paper take data\.train=… data\.val=…"):
            run_experiment(EXPERIMENTS[name], Request(tmp_path, "paper", data=tmp_path, train=train))
    assert not list(tmp_path.iterdir())


@pytest.fixture(scope="module")
def videos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("videos") / "discs"
    write_videos(folder, "easy", 32, frames=16, size=64)
    (folder / "paths.json").unlink()
    return folder


def test_a_table_on_a_folder_of_videos(videos: Path, tmp_path: Path) -> None:
    """Each row changes what it is about, and nothing else."""
    request = Request(tmp_path, data=videos, seeds=1, changes=("data.workers=0",))

    def changed(name: str) -> list[dict[str, object]]:
        recipes = [_make_recipe(job) for job in _plan_jobs(EXPERIMENTS[name].cpu, request)]
        configs = [build_config(recipe, 8).to_dict() for recipe in recipes]
        base = build_config(_make_recipe(_plan_jobs([EXPERIMENTS["t4"].cpu[2]], request)[0]), 8).to_dict()
        return [{key: value for key, value in config.items() if value != base[key]} for config in configs]

    assert changed("t4") == [
        {"attention": "joint"},
        {"attention": "divided"},
        {},
        {"time": "average"},
        {"kernel": {**changed("t4")[4]["kernel"], "kind": "norm_st"}},
    ]
    assert changed("a2")[0]["tubelet"] == 1
    assert changed("a2")[0]["input"]["frames"] == 1
    strides = [(row["input"]["sampling"], row["input"]["stride"]) for row in changed("a1")]
    assert strides == [("stride", stride) for _ in range(3) for stride in (1, 2, 3, 4)]


def test_tables_share_runs_on_a_folder_of_videos(videos: Path, tmp_path: Path) -> None:
    """A folder holds one recipe, whatever a table calls the row."""
    request = Request(tmp_path, data=videos, seeds=1)
    seen: dict[Path, tuple[str, object]] = {}
    for name in ("t2", "t3a", "t4", "a2", "a3"):
        for job in _plan_jobs(EXPERIMENTS[name].cpu, request):
            label, recipe = seen.setdefault(job.folder, (job.row.label, _make_recipe(job)))
            assert _make_recipe(job) == recipe, f"{job.row.label} and {label} share {job.folder}"
    assert len(seen) == 5 + 4 + 3 + 1  # t4; t2 beside it; t3a; one frame


def test_training_on_a_folder_of_videos(videos: Path, tmp_path: Path) -> None:
    """All rows and seeds hold out the same videos."""
    experiment = replace(EXPERIMENTS["t4"], cpu=EXPERIMENTS["t4"].cpu[:1])
    changes = ("data.workers=0", "epochs=1", "schedule.warmup=0", "global_batch=8")
    outcome = run_experiment(experiment, Request(tmp_path, seeds=2, data=videos, changes=changes, threads=1))
    assert outcome.stem == "t4-cpu-discs"
    assert [len(line.values) for line in outcome.lines] == [2]
    lists = [file.read_bytes() for file in sorted(tmp_path.glob("runs/*/*/val.csv"))]
    assert len(lists) == 2
    assert lists[0] == lists[1]
