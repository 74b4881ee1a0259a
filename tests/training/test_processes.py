"""One process and two processes with the same global batch are the same training."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from motionformer.training import make_recipe, train
from motionformer.training.model import build_config, build_model
from motionformer.training.module import _parameter_groups
from motionformer.training.run_folder import RunFolder
from motionformer.training.sources import _MotionItems
from tests.children import Running
from tests.training.children import SMALL
from tests.training.two_processes import FAILED, fail_sometimes

SCRIPT = Path(__file__).with_name("two_processes.py")
QUIET = {**SMALL["model"]["changes"], "drop_path": 0.0, "head_dropout": 0.0}  # type: ignore[index]
RECIPE = {
    **SMALL,
    "model": {"variant": "motionformer-tiny", "changes": QUIET},  # random paths are drawn in each process
    "data": {"train_clips": 20, "val_clips": 11, "workers": 0, "max_failed_share": 0.5},
    "augmentation": {},
    "epochs": 1,
    "ema": 0.0,
}


def run(folder: Path, *overrides: str, devices: int | None = None) -> dict[str, Any]:
    """Two processes: that Lightning starts for `devices`, or that are there, as under torchrun."""
    words = [json.dumps(RECIPE), f"output={folder}", *overrides]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    if devices is not None:
        command = [sys.executable, str(SCRIPT), *words, f"engine.devices={devices}"]
        ends = [subprocess.run(command, capture_output=True, text=True, env=environment, timeout=300)]
    else:
        code = f"import runpy; runpy.run_path({str(SCRIPT)!r}, run_name='__main__')"
        environment |= {"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "GROUP_RANK": "0", "TORCHELASTIC_RUN_ID": "none"}
        environment |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": free_port()}
        ranks = [environment | {"RANK": rank, "LOCAL_RANK": rank} for rank in ("0", "1")]
        ends = [running.wait() for running in [Running(code, *words, "engine.devices=auto", env=env) for env in ranks]]
    for done in ends:
        assert done.returncode == 0, done.stderr
        assert done.stderr == ""
    card: dict[str, Any] = json.loads((folder / "card.json").read_text())
    return card


def free_port() -> str:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return str(free.getsockname()[1])


def learned(name: str, weight: Tensor) -> Tensor:
    """Without the biases of keys, which softmax ignores: their gradient is rounding alone, and AdamW enlarges it."""
    if name.endswith("qkv.bias"):
        queries, _, values = weight.chunk(3)
        return torch.cat((queries, values))
    return weight


def mean_gradients(checkpoint: dict[str, Any], in_shards: bool) -> dict[str, Tensor]:
    """AdamW's first moments by name: means of all gradients so far. They are numbered in the order of the groups, or,
    where they were put together from shards, of the model."""
    recipe = make_recipe(RECIPE)
    model = build_model(recipe, build_config(recipe, 8))[0]
    names = {id(weight): f"model.{name}" for name, weight in model.named_parameters()}
    groups = [{"params": list(model.parameters())}] if in_shards else _parameter_groups(model, recipe.optimiser, 1.0)
    order = [names[id(weight)] for group in groups for weight in group["params"]]
    state = checkpoint["optimizer_states"][0]["state"]
    return {name: state[number]["exp_avg"] for number, name in enumerate(order)}


needs_gloo = pytest.mark.skipif(not torch.distributed.is_gloo_available(), reason="this PyTorch has no gloo")


@needs_gloo
@pytest.mark.parametrize("strategy", ["ddp", "fsdp"])
def test_two_processes_are_one(strategy: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also with failed clips, an odd number of validation clips, and another accumulation; whole and in shards."""
    one, two = tmp_path / "one", tmp_path / "two"
    monkeypatch.setattr(_MotionItems, "__getitem__", fail_sometimes)
    first = train(make_recipe(RECIPE, [f"output={one}", "engine.max_clips=0"]), quiet=True).card
    devices = 2 if strategy == "ddp" else None
    second = run(two, f"engine.strategy={strategy}", "engine.max_clips=2", devices=devices)
    assert (first["plan"]["processes"], first["plan"]["accumulation"]) == (1, 1)
    assert (second["plan"]["processes"], second["plan"]["accumulation"]) == (2, 2)
    mine, theirs = (RunFolder(run).checkpoints()[0].read() for run in (one, two))
    gradients = [mean_gradients(saved, in_shards) for saved, in_shards in ((mine, False), (theirs, strategy == "fsdp"))]
    assert gradients[0].keys() == gradients[1].keys()
    for name, gradient in gradients[0].items():
        torch.testing.assert_close(gradients[1][name], gradient, rtol=1e-4, atol=1e-7, msg=name)
    for name, weight in mine["state_dict"].items():
        torch.testing.assert_close(learned(name, theirs["state_dict"][name]), learned(name, weight), msg=name)
    for key in ("loss", "top1", "top5"):
        found = [card["results"]["last"][key] for card in (first, second)]
        assert found[1] == pytest.approx(found[0], rel=1e-5)
    for part in ("train", "val"):
        failed = [sorted(entry["index"] for entry in card["failed"][part]) for card in (first, second)]
        assert failed[0] == failed[1]
        assert set(failed[0]) <= set(FAILED)
    assert len(second["failed"]["val"]) == len(FAILED)


@pytest.mark.slow
@needs_gloo
def test_shards_go_on_where_they_stopped(tmp_path: Path) -> None:
    """A run whose last checkpoint is gone ends with the same weights as one that was never stopped."""
    shards = ("engine.strategy=fsdp", "engine.checkpoint_steps=1", "engine.keep=5")
    run(tmp_path, *shards)
    last, before, *_ = RunFolder(tmp_path).checkpoints()
    whole = last.read()
    assert before.read()["global_step"] < whole["global_step"]
    last.file.unlink()
    (tmp_path / "card.json").unlink()
    assert run(tmp_path, *shards)["plan"]["processes"] == 2
    again = last.read()
    for name, weight in whole["state_dict"].items():
        assert torch.equal(again["state_dict"][name], weight), name
