"""What is trained: by the number of videos and the machine, or by measured time; the reason is told."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import save_file
from typer.testing import CliRunner

from motionformer.cli import app
from motionformer.data import open_dataset
from motionformer.data.motion import write_videos
from motionformer.data.record import Annotations
from motionformer.errors import RecipeError
from motionformer.finetuning import FinetuneOptions, choice, plan_finetune
from motionformer.finetuning.choice import StepTimes, TrainingChoice, candidates_for, choose_by_rule, choose_by_time
from motionformer.finetuning.options import Hardware, VideoFacts, finetune_recipe
from motionformer.models.variants import VARIANTS
from motionformer.probing import ProbeResult
from motionformer.training.model import build_config, build_model
from motionformer.training.recipe import Recipe
from tests.weights.test_image import timm_weights

CPU = Hardware(False, 16 << 30, 2)
LARGE, SMALL = VARIANTS["motionformer-small"], VARIANTS["motionformer-tiny"]
COST = {"all": 3.0, "last:4": 1.6, "lora:8": 2.2, "adapter": 2.0, "head": 1.0}
"""Seconds of a training clip."""


@pytest.fixture(scope="module")
def videos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data") / "moves"
    write_videos(folder, "easy", 32, frames=8, size=32)
    return folder


def test_rules_and_their_reasons() -> None:
    assert choose_by_rule(LARGE, False, False, 500, 5).train == "all"
    assert choose_by_rule(SMALL, True, False, 500, 5) == TrainingChoice(
        "all", "a small model (96 wide) is trained whole"
    )
    on_cpu = choose_by_rule(LARGE, True, False, 500, 5)
    assert (on_cpu.train, "500 videos on a CPU" in on_cpu.reason) == ("last:4", True)
    assert choose_by_rule(LARGE, True, True, 500, 5).train == "all"
    few = choose_by_rule(LARGE, True, True, 40, 5)
    assert (few.train, few.reason, few.probe) == ("last:4", "8 videos per class are too few to train everything", "")
    assert choose_by_rule(LARGE, True, False, 40, 5).probe.endswith("too few to train everything, on a CPU")


def test_candidates(monkeypatch: pytest.MonkeyPatch) -> None:
    assert candidates_for(LARGE, False, 500, 5) == ["all"]
    assert candidates_for(LARGE, True, 500, 5) == list(choice.PREFERENCE)
    assert "all" not in candidates_for(LARGE, True, 40, 5)
    assert "last:4" not in candidates_for(SMALL, True, 500, 5)  # it has four blocks in all
    monkeypatch.setattr(choice, "find_spec", lambda name: None)
    assert "lora:8" not in candidates_for(LARGE, True, 500, 5)


def choose(videos: Path, seconds: float) -> TrainingChoice:
    annotations = open_dataset(videos)

    def recipe_of(train: str) -> Recipe:
        options = FinetuneOptions(name="x", init_from="w", train=train, epochs=10)
        return finetune_recipe(options, VideoFacts(8, 1.0, 32), CPU, num_train=32, initial_config=lambda _: LARGE)

    def times_of(recipe: Recipe, train: Annotations) -> StepTimes:
        return StepTimes(COST[recipe.model.train], 0.5, 0.1)

    names = candidates_for(LARGE, True, 500, 5)
    half = replace(annotations, records=annotations.records[:16])
    return choose_by_time(seconds, recipe_of, half, half, candidates=names, times_of=times_of)


def test_the_best_that_fits_is_chosen(videos: Path) -> None:
    """10 epochs of 16 clips to learn from and 16 to check: 10 · 16 · (cost + 0.5) seconds."""
    assert choose(videos, 560.0).train == "all"
    second = choose(videos, 559.0)
    assert (second.train, second.epochs, second.seconds) == ("last:4", None, {"all": 560.0, "last:4": 336.0})
    assert second.reason == "about 6 min by measured steps, within 9 min (all about 9 min)"
    assert choose(videos, 240.0).train == "head"
    fewer = choose(videos, 100.0)
    assert (fewer.train, fewer.epochs) == ("head", 4)
    assert fewer.reason == "the cheapest: 10 epochs take about 4 min, 4 fit into 2 min"
    nothing = choose(videos, 1.0)
    assert (nothing.train, nothing.epochs) == ("head", 1)
    assert "nothing fits into 1 s: one epoch of the cheapest takes about 24 s" in nothing.reason


def test_slow_reading_counts() -> None:
    assert StepTimes(1.0, 0.5, 0.2).of_run(2, 10, 4) == 2 * (10 * 1.0 + 4 * 0.5)
    assert StepTimes(1.0, 0.5, 3.0).of_run(1, 10, 4) == 14 * 3.0


@pytest.mark.parametrize(("text", "seconds"), [("90s", 90), ("10m", 600), ("2h", 7200), ("1.5 h", 5400), ("3", 180)])
def test_times(text: str, seconds: float) -> None:
    assert choice.parse_time(text) == seconds


@pytest.mark.parametrize("text", ["0m", "-1m", "ten", "5d", "m", ""])
def test_what_is_no_time(text: str) -> None:
    with pytest.raises(RecipeError, match=r"write a time such as 90s, 10m or 2h"):
        choice.parse_time(text)


def test_steps_are_measured_and_a_run_that_began_keeps_its_choice(
    videos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(choice, "find_spec", lambda name: None)  # without LoRA: importing peft takes seconds
    options = FinetuneOptions(init_from="motion-tiny", size=16, frames=4, output=str(tmp_path / "run"), time="1h")
    short = plan_finetune(videos, replace(options, time="0.2s"), hardware=CPU)
    assert set(short.choice.seconds) == {"all", "adapter", "head"}
    assert all(0 < seconds < 3600 for seconds in short.choice.seconds.values())
    assert short.recipe.epochs == short.choice.epochs == 1
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "recipe.yaml").write_text(short.recipe.to_yaml())
    (tmp_path / "run" / "metrics.csv").touch()
    again = plan_finetune(videos, options, hardware=CPU)
    assert again.recipe == short.recipe
    assert again.choice.reason.startswith("as ")


def test_the_plan_tells_why(videos: Path, tmp_path: Path) -> None:
    words = ["finetune", str(videos), "--output", str(tmp_path / "run"), "--plan"]
    done = CliRunner().invoke(app, [*words, "--json"], catch_exceptions=False)
    values = json.loads(done.stdout)
    assert values["choice"]["train"] == values["recipe"]["model"]["train"] == "all"
    assert values["choice"]["reason"] == "random weights: there is nothing to keep"
    asked = CliRunner().invoke(app, [*words, "--init-from", "motion-tiny", "--train", "head"], catch_exceptions=False)
    assert "head (as asked)" in asked.output
    with pytest.raises(RecipeError, match="leave --train out"):
        CliRunner().invoke(app, [*words, "--train", "head", "--time", "10m"], catch_exceptions=False)


def test_where_no_training_fits_the_command_probes(
    videos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[Any, ...]] = []

    def probe(*args: Any, **options: Any) -> ProbeResult:
        asked.append((*args, options["seed"]))
        return ProbeResult(tmp_path, tmp_path / "model", {"accuracy": 1.0})

    monkeypatch.setattr("motionformer.probing.probe", probe)
    monkeypatch.setattr("motionformer.probing.report.describe", lambda report: ["a line"])
    monkeypatch.setattr(choice, "measure_times", lambda recipe, train: StepTimes(1e3, 1e3, 1e3))
    words = ["finetune", str(videos), "--init-from", "motion-tiny", "--output", str(tmp_path / "run"), "--seed", "3"]
    done = CliRunner().invoke(app, [*words, "--time", "10m"], catch_exceptions=False)
    assert "probe (no training fits into 10 min): heads on frozen features; --train trains instead" in done.output
    assert asked == [(videos, "motion-tiny", str(tmp_path / "run"), 3)]
    shown = CliRunner().invoke(app, [*words, "--time", "10m", "--plan"], catch_exceptions=False)
    assert "no training fits into 10 min: try `motionformer probe` first" in " ".join(shown.output.split())
    assert len(asked) == 1
    told = CliRunner().invoke(app, [*words, "--train", "probe", "--json"], catch_exceptions=False)
    assert json.loads(told.stdout)["choice"] == {"train": "probe", "reason": "as asked"}
    with pytest.raises(RecipeError, match="give --init-from"):
        CliRunner().invoke(app, ["finetune", str(videos), "--train", "probe"], catch_exceptions=False)


def test_with_adapters_an_image_model_runs_on_every_frame(tmp_path: Path) -> None:
    save_file(timm_weights(), tmp_path / "image.safetensors")
    options = FinetuneOptions(name="x", init_from=str(tmp_path / "image.safetensors"), train="adapter", frames=4)
    recipe = finetune_recipe(options, VideoFacts(30, 2.5, 120), CPU, num_train=100)
    config = build_config(recipe, 5)
    assert (config.attention, config.tubelet, config.num_prefix_tokens, config.grid[0]) == ("space", 1, 4, 4)
    model, new = build_model(recipe, config)
    trained = {name for name, weight in model.named_parameters() if weight.requires_grad}
    assert all(name.startswith("head.") or ".adapter." in name for name in trained)
    assert "positions.time" in new - trained
    other = finetune_recipe(replace(options, attention="joint"), VideoFacts(30, 2.5, 120), CPU, num_train=100)
    assert build_config(other, 5).attention == "joint"
    assert build_config(other, 5).num_prefix_tokens == 1
