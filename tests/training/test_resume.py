"""A run that was killed and started again ends with the same weights, to the last bit, as one that was not."""

import filecmp
import json
import signal
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from motionformer.stopping import EXIT_STOPPED
from motionformer.training.run_folder import RunFolder
from tests.training.children import run_child


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An uninterrupted run."""
    folder = tmp_path_factory.mktemp("whole")
    assert run_child(folder) == 0
    return folder


def assert_same_run(one: Path, two: Path) -> None:
    """Weights, averaged weights, optimiser, schedule and log, bit by bit."""
    for name in ("model/model.safetensors", "model/config.json", "metrics.csv"):
        assert filecmp.cmp(one / name, two / name, shallow=False), name  # `==` is explained at length, for minutes
    first, second = (RunFolder(run).checkpoints()[0].read() for run in (one, two))
    for key in ("state_dict", "current_model_state", "averaging_state", "optimizer_states", "lr_schedulers"):
        assert_same(first[key], second[key], key)
    history = [json.loads((run / "card.json").read_text())["results"]["history"] for run in (one, two)]
    assert_same(history[0], history[1], "history")


def assert_same(one: Any, two: Any, where: str) -> None:
    if isinstance(one, Tensor):
        assert torch.equal(one, two), where
    elif isinstance(one, dict):
        assert one.keys() == two.keys(), where
        for key in one:
            assert_same(one[key], two[key], f"{where}.{key}")
    elif isinstance(one, list):
        assert len(one) == len(two), where
        for i, (a, b) in enumerate(zip(one, two, strict=True)):
            assert_same(a, b, f"{where}[{i}]")
    else:
        assert one == two, where


# the run: 8 steps, each of 2 calls; checkpoints after 2, 4 (end of epoch), 6 and 8; validation has 3 calls an epoch
@pytest.mark.parametrize(
    ("moment", "expected"),
    [
        (("training", 2), None),  # before the first checkpoint, inside an accumulation
        (("training", 7), 2),  # mid-epoch, two parts after a checkpoint
        (("validation", 2), 2),
        (("writing", 4), 2),  # half a checkpoint on the disk
        (("renaming", 6), 4),
        (("saving", 1), 8),  # all steps done, the model not saved
    ],
    ids=lambda value: "-".join(map(str, value)) if isinstance(value, tuple) else "",
)
def test_killed_and_resumed_is_uninterrupted(
    whole: Path, tmp_path: Path, moment: tuple[str, int], expected: int | None
) -> None:
    assert run_child(tmp_path, moment) == -signal.SIGKILL
    found = RunFolder(tmp_path).checkpoints()
    assert (found[0].step if found else None) == expected
    assert not (tmp_path / "card.json").exists()
    assert run_child(tmp_path) == 0
    assert_same_run(whole, tmp_path)
    assert not list((tmp_path / "checkpoints").glob(".*")), "leftovers of the killed run"


@pytest.mark.parametrize(
    ("moment", "expected"),
    [
        (("asked before", 1), None),
        (("asked in training", 5), 3),  # saved after the step, though no checkpoint is due
        (("asked in validation", 2), 4),  # saved after the validation
    ],
    ids=lambda value: "-".join(map(str, value)) if isinstance(value, tuple) else "",
)
def test_asked_to_stop_and_resumed_is_uninterrupted(
    whole: Path, tmp_path: Path, moment: tuple[str, int], expected: int | None
) -> None:
    """SIGTERM and SIGUSR1."""
    assert run_child(tmp_path, moment) == EXIT_STOPPED
    found = RunFolder(tmp_path).checkpoints()
    assert (found[0].step if found else None) == expected
    assert run_child(tmp_path) == 0
    assert_same_run(whole, tmp_path)


def test_killed_twice_with_workers(whole: Path, tmp_path: Path) -> None:
    """Loader workers read ahead, which must not move the order of the clips."""
    workers = ("data.workers=1",)
    for moment in (("training", 7), ("writing", 6)):
        assert run_child(tmp_path, moment, workers) == -signal.SIGKILL
    assert run_child(tmp_path, None, workers) == 0
    assert_same_run(whole, tmp_path)


def test_a_damaged_checkpoint_falls_back_to_the_one_before(whole: Path, tmp_path: Path) -> None:
    assert run_child(tmp_path, ("training", 14)) == -signal.SIGKILL
    last = RunFolder(tmp_path).checkpoints()[0].file
    content = bytearray(last.read_bytes())
    content[len(content) // 2] ^= 1
    last.write_bytes(content)
    assert run_child(tmp_path) == 0
    assert_same_run(whole, tmp_path)


def test_a_damaged_checkpoint_is_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    run = RunFolder(tmp_path)
    good, bad, no_checksum = (run.checkpoint_after(step) for step in (1, 2, 3))
    good.write({"step": 1})
    bad.write({"step": 2})
    bad.file.write_bytes(bad.file.read_bytes()[:-1])
    assert run.find_checkpoint() == good
    assert f"{bad.file} is damaged" in caplog.text
    no_checksum.file.write_bytes(good.file.read_bytes())
    assert run.find_checkpoint() == good
    run.discard_after(good)
    assert run.checkpoints() == [good]


def test_other_seeds_end_elsewhere(whole: Path, tmp_path: Path) -> None:
    """The comparison above can fail."""
    assert run_child(tmp_path, None, ("seed=1",)) == 0
    with pytest.raises(AssertionError):
        assert_same_run(whole, tmp_path)
