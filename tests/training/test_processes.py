"""One process and two processes with the same global batch are the same training."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from motionformer.training import make_recipe, train
from motionformer.training.checkpoints import list_checkpoints
from motionformer.training.sources import MotionItems
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


def run(folder: Path, *overrides: str) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, str(SCRIPT), json.dumps(RECIPE), f"output={folder}", *overrides],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    card: dict[str, Any] = json.loads((folder / "card.json").read_text())
    return card


def learned(name: str, weight: Tensor) -> Tensor:
    """Without the biases of keys, which softmax ignores: their gradient is rounding alone, and AdamW enlarges it."""
    if name.endswith("qkv.bias"):
        queries, _, values = weight.chunk(3)
        return torch.cat((queries, values))
    return weight


@pytest.mark.skipif(not torch.distributed.is_gloo_available(), reason="this PyTorch has no gloo")
def test_two_processes_are_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also with failed clips, an odd number of validation clips, and another accumulation."""
    one, two = tmp_path / "one", tmp_path / "two"
    monkeypatch.setattr(MotionItems, "__getitem__", fail_sometimes)
    first = train(make_recipe(RECIPE, [f"output={one}", "engine.max_clips=0"]), quiet=True).card
    second = run(two, "engine.strategy=ddp", "engine.devices=2", "engine.max_clips=2")
    assert (first["plan"]["processes"], first["plan"]["accumulation"]) == (1, 1)
    assert (second["plan"]["processes"], second["plan"]["accumulation"]) == (2, 2)
    mine, theirs = (torch.load(list_checkpoints(run / "checkpoints")[0], weights_only=True) for run in (one, two))
    gradients = [saved["optimizer_states"][0]["state"] for saved in (mine, theirs)]  # means of all of them so far
    for i, state in gradients[0].items():
        torch.testing.assert_close(gradients[1][i]["exp_avg"], state["exp_avg"], rtol=1e-4, atol=1e-7)
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
