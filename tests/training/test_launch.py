"""Processes that a launcher started train together, and know it without being told by the recipe."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from motionformer.distributed import Launcher
from motionformer.errors import LaunchError
from motionformer.training.recipe import EnginePart
from motionformer.training.trainer import _devices_and_nodes
from tests.children import Running

TINY = [
    *("data.train_clips=16", "data.val_clips=8", "data.workers=0", "global_batch=8", "epochs=1", "schedule.warmup=0"),
    *("model.changes.dim=16", "model.changes.depth=1", "model.changes.num_heads=2", "model.changes.input.frames=4"),
    *("model.changes.input.height=16", "model.changes.input.width=16"),
]
LAUNCHER = Launcher("torchrun", 0, 8, 2)
needs_gloo = pytest.mark.skipif(not torch.distributed.is_gloo_available(), reason="this PyTorch has no gloo")


def job(rank: int, tasks: int = 2, nodes: int = 1) -> dict[str, str]:
    """What srun tells a task."""
    told = {"STEP_NUM_TASKS": tasks, "STEP_NUM_NODES": nodes, "JOB_ID": 71, "STEP_ID": 0}
    told |= {"PROCID": rank, "LOCALID": rank, "NODEID": 0}
    named = {"JOB_NAME": "interactive", "STEP_NODELIST": "127.0.0.1"}
    return {f"SLURM_{key}": str(value) for key, value in (told | named).items()}


def plan(folder: Path) -> dict[str, int]:
    planned: dict[str, int] = json.loads((folder / "card.json").read_text())["plan"]
    return planned


@needs_gloo
def test_torchrun_and_slurm_share_the_batch(tmp_path: Path) -> None:
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
    train = ["train", "motion/easy", *TINY]
    launcher = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2", "-m", "motionformer"]
    words = [*launcher, *train, f"output={tmp_path / 'torchrun'}"]
    done = subprocess.run(words, env=environment, capture_output=True, text=True, cwd=tmp_path, timeout=300)
    assert done.returncode == 0, done.stderr
    code = "from motionformer.cli import main; main()"
    output = f"output={tmp_path / 'slurm'}"
    tasks = [Running(code, *train, output, env={**environment, **job(rank)}, cwd=tmp_path) for rank in (0, 1)]
    for task in tasks:
        done = task.wait()
        assert done.returncode == 0, done.stderr
    for name in ("torchrun", "slurm"):
        assert plan(tmp_path / name)["processes"] == 2
        assert plan(tmp_path / name)["clips_at_once"] == 4


def test_without_a_launcher_the_recipe_decides() -> None:
    assert _devices_and_nodes(EnginePart(), None) == ("auto", 1)
    assert _devices_and_nodes(EnginePart(devices="0,1", nodes=2), None) == ([0, 1], 2)
    assert _devices_and_nodes(EnginePart(devices="1,"), None) == ([1], 1)


def test_the_recipe_leaves_it_open_or_agrees() -> None:
    for engine in (EnginePart(), EnginePart(devices="4"), EnginePart(nodes=2)):
        assert _devices_and_nodes(engine, LAUNCHER) == (4, 2)
    assert _devices_and_nodes(EnginePart(devices="0,1,2,3"), LAUNCHER) == ([0, 1, 2, 3], 2)


@pytest.mark.parametrize("engine", [EnginePart(devices="2"), EnginePart(devices="0,1"), EnginePart(nodes=3)])
def test_a_recipe_that_disagrees_is_an_error(engine: EnginePart) -> None:
    with pytest.raises(LaunchError, match=r"torchrun started 4 processes on each of 2 nodes, but engine\.devices="):
        _devices_and_nodes(engine, LAUNCHER)
