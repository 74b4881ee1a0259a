"""The experiments that are no table of recipes, each at its smallest."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from typer.testing import CliRunner

from motionformer.cli import app
from motionformer.data.motion import MotionBenchmark
from motionformer.errors import RecipeError, UnknownModelError
from motionformer.experiments.davis import Sequence, find_sequences
from motionformer.experiments.davis import evaluate as davis_evaluate
from motionformer.experiments.tables import EXPERIMENTS, Request
from motionformer.experiments.tables.davis import _make_discs
from motionformer.experiments.tables.outcome import Line, Outcome, read_outcomes
from motionformer.experiments.tables.studies import run_experiment
from motionformer.inference import evaluate, open_source
from motionformer.models import create_model
from motionformer.tracing import path_error
from motionformer.tracking import read_mask, write_mask
from motionformer.tracking.tracker import Tracker
from motionformer.video import open_video
from motionformer.weights import load_model
from tests.weights.test_image import timm_weights

SMALL = ("data.train_clips=16", "data.val_clips=16", "data.workers=0", "schedule.warmup=0", "global_batch=8")


def run(
    name: str,
    out: Path,
    *changes: str,
    rows: str = "",
    seeds: int = 1,
    data: Path | None = None,
    collect: bool = False,
    processes: int = 1,
) -> Outcome:
    request = Request(out, "cpu", seeds, rows, data, changes, processes, threads=1, train=not collect)
    return run_experiment(EXPERIMENTS[name], request)


def test_a3_gains_add_up_and_are_collected(tmp_path: Path) -> None:
    changes = (*SMALL, "engine.devices=1")
    outcome = run("a3", tmp_path, *changes)
    total, *classes = outcome.lines
    assert total.label == "all"
    assert len(classes) == 8
    # classes are equally frequent, so the mean of their gains is the gain of all
    assert sum(line.mean for line in classes) / 8 == pytest.approx(total.mean)
    assert [line.mean for line in classes] == sorted((line.mean for line in classes), reverse=True)
    assert run("a3", tmp_path, *changes, seeds=2, collect=True) == outcome  # of the seed that is there
    next(tmp_path.glob("runs/motion-hard-joint/seed-0/card.json")).unlink()
    with pytest.raises(RecipeError, match="no seed of both joint and trajectory is finished"):
        run("a3", tmp_path, *changes, seeds=2, collect=True)


def test_a3_a_better_trajectory_model_is_a_gain(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trained = load_model("motion-tiny")
    models = {"trajectory": trained, "joint": create_model("joint-tiny", labels=trained.config.labels)}
    source = open_source("motion:easy:32", trained.config.input)
    monkeypatch.setattr("motionformer.experiments.tables.jobs._train_jobs", lambda jobs, request: None)
    monkeypatch.setattr(
        "motionformer.experiments.tables.jobs._score",
        lambda job: evaluate(models[job.row.label], source, name=job.row.label, show_progress=False),
    )
    assert run("a3", tmp_path).lines[0].mean > 50


def test_a4_draws_maps_and_measures_paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("motionformer.experiments.tables.jobs._CLIPS", 8)
    outcome = run("a4", tmp_path, *SMALL, "engine.devices=1", rows="t")  # trajectory, joint
    each = ("", ", untrained", ", mean of the map")
    wanted = [f"{scheme}{of}" for scheme in ("trajectory", "joint") for of in each]
    assert [line.label for line in outcome.lines] == [*wanted, "a path that stands still"]
    assert all(0 < line.mean < 6 for line in outcome.lines)  # the frame is six patches wide
    model = load_model(next(tmp_path.glob("runs/motion-easy/seed-0/model")))
    errors = path_error(model, MotionBenchmark("easy", "test", 8, frames=8, size=model.config.input.height))
    measured = [errors.peak_whole.overall, errors.whole.overall, errors.whole.stay]
    assert [outcome.lines[i].mean for i in (0, 2, -1)] == pytest.approx(measured)
    assert (tmp_path / "a4-cpu-rows-t-maps.png").stat().st_size > 10_000
    with pytest.raises(RecipeError, match="motionformer trace"):
        run("a4", tmp_path, data=tmp_path)


def test_a5_counts_as_published(tmp_path: Path) -> None:
    groups = run("a5", tmp_path, rows="joint-base").groups
    literal = groups["G multiply-adds, the paper's equations"][0]
    assert f"{literal.mean:.1f}" == literal.paper == "180.6"
    encoders = run("a5", tmp_path, rows="orthoformer-64").groups["ListOps encoder, 2,048 tokens: G multiply-adds"]
    assert f"{encoders[0].mean:.2f}" == encoders[0].paper == "0.24"
    with pytest.raises(RecipeError, match="nothing to change"):
        run("a5", tmp_path, "steps=3")


def test_a6_discs_are_a_davis_folder_with_true_masks(tmp_path: Path) -> None:
    sequences = find_sequences(_make_discs(tmp_path))
    assert len(sequences) == 4
    with open_video(sequences[0].folder) as video:
        first = video.read([0, 1]).float()
    inside = read_mask(sequences[0].masks[0]) == 1
    assert 0.001 < inside.float().mean() < 0.2
    changed = (first[0] - first[1]).abs().sum(dim=-1)
    assert changed[inside].mean() > 2 * changed[~inside].mean()  # the disc is what moves


def test_a6_compares_trackers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("motionformer.experiments.tables.davis._SEQUENCES", 1)
    monkeypatch.setattr("motionformer.experiments.tables.davis._FRAMES", 8)
    weights = tmp_path / "image.safetensors"
    save_file(timm_weights(), weights)
    changes = (f"weights={weights}", "middle=96", "full=128")
    outcome = run("a6", tmp_path, *changes, rows="px")
    found = {group: {line.label: line.mean for line in lines} for group, lines in outcome.groups.items()}
    assert list(found) == ["J&F", "J", "F"]
    assert list(found["J"]) == [
        "motionformer-tiny, random weights, 128 px",
        "motion-tiny, 128 px",
        "image's shape, random weights, 96 px",
        "image, frame by frame, 96 px",
        "image, inflated, clips of 4, 96 px",
        "image, frame by frame, 128 px",
    ]
    for label, both in found["J&F"].items():
        assert both == pytest.approx((found["J"][label] + found["F"][label]) / 2)
    copied = run("a6", tmp_path, rows="copied").lines[0].mean
    assert found["J&F"]["motionformer-tiny, random weights, 128 px"] > copied
    with pytest.raises(RecipeError, match="no row has 'xyz'"):
        run("a6", tmp_path, rows="xyz")
    with pytest.raises(UnknownModelError, match=r"nowhere\.safetensors"):
        run("a6", tmp_path, f"weights={tmp_path}/nowhere.safetensors")


def test_a6_does_not_compute_a_row_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("motionformer.experiments.tables.davis._SEQUENCES", 1)
    data, out = _make_discs(tmp_path / "discs"), tmp_path / "out"
    computed: list[str] = []

    def follow(sequences: list[Sequence], tracker: Tracker) -> Iterator[object]:
        if len(computed) == 1:
            raise KeyboardInterrupt  # in the second row
        computed.append(type(tracker).__name__)
        return davis_evaluate(sequences, tracker)

    monkeypatch.setattr("motionformer.experiments.tables.davis.evaluate", follow)
    with pytest.raises(RecipeError, match="no finished row"):
        run("a6", out, data=data, collect=True)
    with pytest.raises(KeyboardInterrupt):
        run("a6", out, "small=64", data=data)
    copied = run("a6", out, "small=64", data=data, rows="copied")
    assert computed == ["CopyFirst"]
    assert run("a6", out, "small=64", data=data, collect=True).lines == copied.lines
    for changes in (("small=72",), ("small=64",)):
        with pytest.raises(KeyboardInterrupt):  # other options, then another mask: computed anew
            run("a6", out, *changes, data=data, rows="copied")
        write_mask(next(data.rglob("Annotations/480p/*/00003.png")), torch.ones(192, 192, dtype=torch.uint8))


def test_a6_refuses_heights_without_a_token(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(RecipeError, match="small=4: a height is 16 pixels or more"):
        run("a6", tmp_path, "small=4")
    assert not list(tmp_path.iterdir())
    monkeypatch.setattr("motionformer.experiments.tables.davis._MIN_HEIGHT", 1)
    monkeypatch.setattr("motionformer.experiments.tables.davis._SEQUENCES", 1)
    with pytest.raises(RecipeError, match=r"`height` \(4\) 8 or more"):
        run("a6", tmp_path, "small=4", rows="motion-tiny")


def test_t5_trains_every_attention_and_goes_on(tmp_path: Path) -> None:
    settings = ("steps=2", "batch=2", "dev=4", "test=8")
    outcome = run("t5", tmp_path, *settings, rows="orthoformer-64")
    assert [line.label for line in outcome.lines] == [
        "orthoformer-64",
        "orthoformer-64-improved",
        "always the most frequent class",
    ]
    assert [line.paper for line in outcome.lines] == ["33.87", "", ""]
    again = run("t5", tmp_path, *settings, rows="orthoformer-64")  # finished runs are only tested again
    assert [line.values for line in again.lines] == [line.values for line in outcome.lines]
    with pytest.raises(RecipeError, match=r"takes steps=…, batch=…"):
        run("t5", tmp_path, "epochs=3")
    for wrong in ("steps=many", "steps=0", "lr=-1", "lr=nan", "lr=inf"):
        with pytest.raises(RecipeError, match="a number above zero"):
            run("t5", tmp_path, wrong)
    with pytest.raises(RecipeError, match="shortest and longest: expressions of more than 100 and fewer than 90"):
        run("t5", tmp_path, "longest=90")
    with pytest.raises(RecipeError, match=r"none of the folders listops, aclImdb, .* is in it"):
        run("t5", tmp_path, data=tmp_path)


def test_t5_in_several_processes_gives_the_same(tmp_path: Path) -> None:
    settings = ("steps=2", "batch=2", "dev=4", "test=8")
    alone, together = (
        run("t5", tmp_path / str(count), *settings, rows="orthoformer-64", seeds=2, processes=count) for count in (1, 2)
    )
    assert [(line.values, line.seeds) for line in together.lines] == [(line.values, line.seeds) for line in alone.lines]


@pytest.mark.parametrize("name", ["t3m", "a5", "a6"])
def test_what_trains_nothing_refuses_processes(name: str, tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match="one after the other: leave --processes out"):
        run(name, tmp_path, processes=2)
    assert not list(tmp_path.iterdir())


def test_t5_on_the_files_that_are_there(tmp_path: Path) -> None:
    """Reviews lie class by class: the part of them that is tested and judged on holds both."""
    for part in ("train", "test"):
        for label in ("neg", "pos"):
            folder = tmp_path / "lra/aclImdb" / part / label
            folder.mkdir(parents=True)
            for number in range(20):
                (folder / f"{number}_1.txt").write_text(f"a {label} review, number {number}")
    settings = ("steps=2", "batch=2", "dev=2", "test=8")
    outcome = run("t5", tmp_path / "out", *settings, data=tmp_path / "lra", rows="text, exact")
    assert [(line.group, line.label, line.paper) for line in outcome.lines] == [
        ("text", "exact", "63.09"),
        ("text", "always the most frequent class", ""),
    ]
    assert outcome.lines[1].values == (50.0,)
    assert outcome.stem == "t5-cpu-lra-rows-text-exact"
    with pytest.raises(RecipeError, match="no row has 'listops' in its name; there are: text, exact"):
        run("t5", tmp_path / "out", data=tmp_path / "lra", rows="listops")


def test_t3m_measures_ratios_to_exact_attention(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A row alone is still measured beside exact attention. The step itself is tried at a small size (tests/costs)."""
    sizes = {"exact": 2e9, "orthoformer": 1e9}
    monkeypatch.setattr(
        "motionformer.experiments.tables.studies.training_step_peak", lambda config: sizes[config.kernel.kind]
    )
    outcome = run("t3m", tmp_path, rows="Orthoformer, 64")
    assert [(line.group, line.label, line.values, line.paper) for line in outcome.lines] == [
        ("of exact", "Orthoformer, 64", (0.5,), "0.45"),
        ("GB beyond weights and gradients", "Orthoformer, 64", (1.0,), "3.3"),
    ]
    with pytest.raises(RecipeError, match="leave --collect out"):
        run("t3m", tmp_path, collect=True)
    with pytest.raises(RecipeError, match="nothing can be given"):
        run("t3m", tmp_path, "batch=2")


def test_collecting_trains_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = ("steps=2", "batch=2", "dev=4", "test=8")
    for name in ("t5", "a3", "a4"):
        with pytest.raises(RecipeError, match=r"no finished run in .*runs: without --collect they are trained"):
            run(name, tmp_path, collect=True)
    with pytest.raises(RecipeError, match="no finished run"):
        run_experiment(EXPERIMENTS["t5"], Request(tmp_path, "paper", rows="listops", train=False))
    assert not list(tmp_path.iterdir())
    trained = run("t5", tmp_path, *settings, rows="exact")
    monkeypatch.setattr("motionformer.experiments.tables.lra.train", None)
    collected = run("t5", tmp_path, *settings, seeds=3, collect=True)
    assert collected.lines == trained.lines  # the only finished row, and its only finished seed
    with pytest.raises(RecipeError, match=r"exact.seed-0.result\.json: is of another run \(steps 2, asked for 600"):
        run("t5", tmp_path, collect=True)
    with pytest.raises(RecipeError, match=r"test data 8 examples .*, asked for 9 examples"):
        run("t5", tmp_path, *settings[:-1], "test=9", collect=True)
    (result,) = tmp_path.rglob("result.json")
    result.write_text('{"run": {}}')
    with pytest.raises(RecipeError, match="is no result of `motionformer lra train`, or a damaged one"):
        run("t5", tmp_path, *settings, collect=True)


def test_a4_collects_what_is_finished(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows and seeds without a finished run are left out; a run that was killed is not read."""
    monkeypatch.setattr("motionformer.experiments.tables.jobs._CLIPS", 8)
    folder = tmp_path / "runs/motion-easy/seed-1"
    load_model("motion-tiny").save_pretrained(folder / "model")
    (folder / "card.json").write_text("{}")
    (tmp_path / "runs/motion-easy/seed-0/model").mkdir(parents=True)
    outcome = run("a4", tmp_path, seeds=3, collect=True)
    assert [(line.label, len(line.values)) for line in outcome.lines] == [
        ("trajectory", 1),
        ("trajectory, untrained", 1),
        ("trajectory, mean of the map", 1),
        ("a path that stands still", 1),
    ]
    assert (tmp_path / "a4-cpu-maps.png").is_file()


def test_t5_at_the_papers_scale_asks_for_data(tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match="no row has 'xyz' in its name; there are: listops, exact"):
        run_experiment(EXPERIMENTS["t5"], Request(tmp_path, "paper", rows="xyz"))
    for rows in ("text, exact", "exact"):  # before ListOps, which is made, is trained
        with pytest.raises(RecipeError, match="put its files into aclImdb below --data"):
            run_experiment(EXPERIMENTS["t5"], Request(tmp_path, "paper", rows=rows))
    with pytest.raises(RecipeError, match="has its published settings"):
        run_experiment(EXPERIMENTS["t5"], Request(tmp_path, "paper", rows="listops", changes=("steps=3",)))
    assert not list(tmp_path.iterdir())


def test_the_command_prints_json(tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["reproduce", "a6", "--rows", "copied", "--output", str(tmp_path), "--json"])
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["lines"][0]["label"] == "the first mask, copied"
    assert (tmp_path / "a6-cpu-rows-copied.png").is_file()


@pytest.mark.parametrize("name", ["t3m", "t5", "a4", "a5", "a6"])
def test_rows_that_are_not_there_are_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match="'xyz' in its name"):
        run(name, tmp_path, rows="xyz")
    assert not (tmp_path / "runs").exists()


def test_a3_needs_both_rows(tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match="leave --rows out"):
        run("a3", tmp_path, rows="joint")


def test_rows_do_not_replace_the_whole_table(tmp_path: Path) -> None:
    Outcome("a5", "cpu", "c", "", (Line("x", (1.0,)),)).write(tmp_path)
    whole = {file: file.read_bytes() for file in tmp_path.iterdir()}
    command = ["reproduce", "a5", "--output", str(tmp_path), "--rows", "orthoformer-64"]
    assert CliRunner().invoke(app, command).exit_code == 0
    assert {file.name for file in tmp_path.iterdir() if file not in whole} == {
        f"a5-cpu-rows-orthoformer-64.{suffix}" for suffix in ("json", "md", "png")
    }
    assert all(file.read_bytes() == content for file, content in whole.items())
    assert [outcome.rows for outcome in read_outcomes(tmp_path)] == [""]  # nor are they on the page
    assert CliRunner().invoke(app, [*command[:-1], "performer, 256"]).exit_code != 0  # no such row
    assert CliRunner().invoke(app, [*command[:-1], "joint-base"]).exit_code == 0
    assert len(list(tmp_path.glob("a5-cpu-rows-*.json"))) == 2  # nor does one part replace another
