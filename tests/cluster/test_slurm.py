"""Two nodes of a real SLURM: they do what one process does, stop, come back, and notice a lost rank. `make cluster`."""

import filecmp
import json
import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
import yaml
from safetensors.torch import load_file

from motionformer.data.motion import write_videos
from motionformer.models import create_model
from tests.cluster.slurm import NoSlurmError, Slurm

pytestmark = pytest.mark.cluster
RUN = f"{sys.executable} -m motionformer"
RECIPE = {
    "name": "cluster",
    "model": {
        "variant": "motionformer-tiny",
        "changes": {"dim": 16, "depth": 2, "num_heads": 2, "input": {"frames": 2, "height": 16, "width": 16}},
    },
    "data": {"train": "motion:easy", "val": "motion:easy", "train_clips": 64, "val_clips": 16, "workers": 1},
    "engine": {"accelerator": "cpu", "log_steps": 1},
    "global_batch": 8,
    "epochs": 12,
}
"""96 steps; loader workers, so that the signals of a scheduler reach them too."""


@pytest.fixture(scope="module")
def slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Slurm]:
    try:
        found = Slurm(tmp_path_factory.mktemp("slurm"))
    except NoSlurmError as error:
        pytest.skip(str(error))
    yield found
    found.stop()


@pytest.fixture(scope="module")
def recipe(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("recipe") / "recipe.yaml"
    file.write_text(yaml.safe_dump(RECIPE))
    return file


@pytest.fixture(scope="module")
def whole(slurm: Slurm, recipe: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run on two nodes that nothing disturbs, in an interactive allocation."""
    folder = tmp_path_factory.mktemp("whole") / "run"
    allocation = ("salloc", "-N2", "--ntasks-per-node=1", "--job-name=interactive")
    slurm.run(*allocation, "srun", *RUN.split(), "train", recipe, f"output={folder}")
    return folder


@pytest.fixture(scope="module")
def videos(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A model, and a folder of 240 names of videos."""
    root = tmp_path_factory.mktemp("videos")
    create_model("motionformer-tiny", num_classes=8).save_pretrained(root / "model")
    write_videos(root / "made", "easy", 24, size=48)
    made = sorted((root / "made").rglob("*.mp4"))
    (root / "many").mkdir()
    for number in range(240):
        (root / "many" / f"{number:03d}.mp4").symlink_to(made[number % len(made)])
    return root / "model", root / "many"


def wait_for(text: str, file: Path, timeout: float = 120.0) -> None:
    limit = time.monotonic() + timeout
    while not (file.exists() and text in file.read_text()):
        assert time.monotonic() < limit, file.read_text() if file.exists() else f"{file} is not there"
        time.sleep(0.2)


def assert_same_weights(one: Path, two: Path) -> None:
    assert filecmp.cmp(one / "model" / "model.safetensors", two / "model" / "model.safetensors", shallow=False)


def test_two_nodes_of_an_interactive_allocation_are_one_process(slurm: Slurm, recipe: Path, whole: Path) -> None:
    alone = whole.with_name("alone")
    slurm.run(*RUN.split(), "train", recipe, f"output={alone}", "engine.devices=1")
    cards = [json.loads((folder / "card.json").read_text()) for folder in (whole, alone)]
    assert [card["plan"]["processes"] for card in cards] == [2, 1]
    first, second = (load_file(folder / "model" / "model.safetensors") for folder in (whole, alone))
    for name, weight in first.items():
        if not name.endswith("bias"):  # those of keys have gradients of rounding alone, which AdamW enlarges
            torch.testing.assert_close(weight, second[name], rtol=1e-2, atol=1e-3, msg=name)
    losses = [card["results"]["last"]["loss"] for card in cards]
    assert losses[0] == pytest.approx(losses[1], rel=1e-3)


@pytest.mark.parametrize("which", ["TERM", "USR1"])
def test_a_signal_to_the_job_saves_and_the_same_command_ends_with_the_same_bytes(
    which: str, slurm: Slurm, recipe: Path, whole: Path, tmp_path: Path
) -> None:
    log, folder = tmp_path / "log", tmp_path / "run"
    command = f"srun {RUN} train {recipe} output={folder}"
    job = slurm.submit(f"{command} && echo went on", log)
    wait_for("epoch 2 of", log)
    slurm.run("scancel", f"--signal={which}", job)
    facts = slurm.wait(job, timeout=60)
    assert (facts["JobState"], facts["ExitCode"]) == ("FAILED", "75:0"), log.read_text()
    said = log.read_text()
    assert said.count("stopped: ") == 1, said
    assert f"SIG{which}. Saved a checkpoint after step" in said
    assert "went on" not in said
    assert slurm.wait(slurm.submit(command, log))["JobState"] == "COMPLETED", log.read_text()
    assert "resuming after step" in log.read_text()
    assert_same_weights(folder, whole)


def test_requeue(slurm: Slurm, recipe: Path, whole: Path, tmp_path: Path) -> None:
    log, folder = tmp_path / "log", tmp_path / "run"
    script = f"echo restarts ${{SLURM_RESTART_COUNT:-0}}; srun {RUN} --requeue train {recipe} output={folder}"
    job = slurm.submit(script, log)
    wait_for("epoch 2 of", log)
    slurm.run("scancel", "--signal=USR1", job)
    wait_for("restarts 1", log, timeout=240)
    assert slurm.wait(job, until="COMPLETED")["JobState"] == "COMPLETED"
    said = log.read_text()
    assert "resuming after step" in said
    assert_same_weights(folder, whole)


def test_predict_and_evaluate_share_the_work(slurm: Slurm, videos: tuple[Path, Path], tmp_path: Path) -> None:
    model, many = videos
    for nodes in (1, 2):
        step = ("srun", f"-N{nodes}", f"-n{nodes}") if nodes > 1 else ()
        command = (*RUN.split(), "predict", many, "--model", model, "--json", tmp_path / f"{nodes}.json", "--resume")
        slurm.run(*step, *command)
    assert filecmp.cmp(tmp_path / "1.json", tmp_path / "2.json", shallow=False)
    done = [len(file.read_text().splitlines()) - 1 for file in sorted((tmp_path / "2.json.journal").iterdir())]
    assert len(done) == 2
    assert sum(done) == 240
    assert min(done) > 20, "both took from the queue"


def test_evaluate_stops_on_both_nodes_and_resumes(slurm: Slurm, tmp_path: Path, videos: tuple[Path, Path]) -> None:
    log = tmp_path / "log"
    command = (
        f"{RUN} evaluate {videos[0]} motion:easy:4000 --views 1 --num-workers 1 --batch-size 4 --output {tmp_path}"
    )
    job = slurm.submit(f"srun {command}/two", log)
    parts = tmp_path / "two" / "parts" / "0001.jsonl"
    wait_for('"key"', parts)
    slurm.run("scancel", "--signal=TERM", job)
    assert slurm.wait(job, timeout=60)["ExitCode"] == "75:0", log.read_text()
    assert "the same command resumes" in log.read_text()
    assert slurm.wait(slurm.submit(f"srun {command}/two", log))["JobState"] == "COMPLETED", log.read_text()
    slurm.run(*f"{command}/one".split())
    assert filecmp.cmp(tmp_path / "one" / "results.csv", tmp_path / "two" / "results.csv", shallow=False)


def test_a_rank_that_fails_ends_the_job_and_is_named(slurm: Slurm, videos: tuple[Path, Path], tmp_path: Path) -> None:
    for number in (0, 1):
        (tmp_path / str(number)).mkdir()
    (tmp_path / "0" / "clips").symlink_to(videos[1])
    started = time.monotonic()
    script = f"cd {tmp_path}/$SLURM_PROCID; exec {RUN} predict clips --model {videos[0]}"
    done = slurm.run("srun", "-N2", "-n2", "bash", "-c", script, check=False, timeout=120)
    assert done.returncode == 1
    errors = [line for line in done.stdout.splitlines() if line.startswith("error:")]
    assert len(errors) == 1, done.stdout
    assert "rank 1 on " in errors[0]
    assert "clips: there is no such file" in errors[0]
    assert time.monotonic() - started < 90


def test_a_rank_that_is_killed_ends_the_job_and_is_named(slurm: Slurm, recipe: Path, tmp_path: Path) -> None:
    log = tmp_path / "log"
    script = f"echo \\$\\$ > {tmp_path}/pid\\$SLURM_PROCID; exec {RUN} train {recipe} output={tmp_path}/run"
    job = slurm.submit(f'srun bash -c "{script}"', log)
    wait_for("epoch 1 of", log)
    os.kill(int((tmp_path / "pid1").read_text()), signal.SIGKILL)
    started = time.monotonic()
    assert slurm.wait(job, timeout=60)["JobState"] == "FAILED"
    assert time.monotonic() - started < 30
    assert log.read_text().count("error: rank 1 on ") == 1, log.read_text()
    assert "the process died" in log.read_text()


def test_a_folder_that_is_not_shared_is_an_error_at_once(slurm: Slurm, recipe: Path, tmp_path: Path) -> None:
    for number in (0, 1):
        (tmp_path / str(number)).mkdir()
    script = f"cd {tmp_path}/$SLURM_PROCID; exec {RUN} train {recipe} output=run"
    done = slurm.run("srun", "-N2", "-n2", "bash", "-c", script, check=False, timeout=120)
    assert done.returncode == 1
    assert "run: rank 1 on " in done.stdout
    assert "give a folder that all nodes of the job share" in done.stdout
    assert sum(line.startswith("error:") for line in done.stdout.splitlines()) == 1, done.stdout
