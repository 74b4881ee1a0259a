"""Training: it learns, a stopped run ends like one that was not, the best checkpoint is the one tested."""

import csv
import json
import subprocess
import sys
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from motionformer.errors import CheckpointError, OutputError
from motionformer.experiments.lra import Example, Run, SequenceClassifier, Splits, Task, train
from motionformer.experiments.lra.examples import Picked
from motionformer.experiments.lra.train import _accuracy, _State


def counting_task(count: int, seed: int) -> list[Example]:
    """Is there more of token 1 than of token 2? Lengths differ."""
    rng = np.random.default_rng(seed)
    texts = [rng.integers(1, 4, rng.integers(9, 30)).astype(np.int16) for _ in range(count)]
    return [Example((text,), int((text == 1).sum() > (text == 2).sum())) for text in texts]


TASK = Task("counting", 32, 4, 2, 16, 40, 8, read=lambda folder: SPLITS)
SPLITS = Splits(counting_task(160, 0), counting_task(40, 1), counting_task(40, 2))
RUN = Run("counting", "orthoformer-4", lr=3e-3, evaluate_every=10)


class StoppedError(Exception):
    pass


def test_it_learns_and_leaves_its_files(tmp_path: Path) -> None:
    result = train(TASK, SPLITS, RUN, tmp_path)
    assert result.test_accuracy > 0.8
    with (tmp_path / "log.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [int(row["step"]) for row in rows] == [10, 20, 30, 40]
    accuracies = [float(row["dev_accuracy"]) for row in rows]
    assert result.dev_accuracy == max(accuracies)
    assert result.best_step == 10 * (accuracies.index(max(accuracies)) + 1)
    assert json.loads((tmp_path / "result.json").read_text())["test_accuracy"] == result.test_accuracy
    model = SequenceClassifier(TASK, RUN.kernel)
    model.load_state_dict(torch.load(tmp_path / "best.pt", weights_only=True)["model"])
    assert _accuracy(model, SPLITS.test, 16) == result.test_accuracy
    assert _accuracy(model, SPLITS.dev, 7) == result.dev_accuracy


@pytest.mark.parametrize("stop_at", [15, 20])
def test_a_stopped_run_ends_like_one_that_was_not(tmp_path: Path, stop_at: int) -> None:
    """Dropout, the order and the random start of the prototypes included, to the bit."""

    def stop(step: int, row: dict[str, float]) -> None:
        if step > stop_at:
            raise StoppedError

    whole = train(TASK, SPLITS, RUN, tmp_path / "whole")
    with pytest.raises(StoppedError):
        train(TASK, SPLITS, RUN, tmp_path / "stopped", report=stop)
    torch.manual_seed(123)
    again = train(TASK, SPLITS, RUN, tmp_path / "stopped")
    assert replace(again, seconds=0.0) == replace(whole, seconds=0.0)
    one, other = (torch.load(tmp_path / name / "last.pt", weights_only=True) for name in ("whole", "stopped"))
    for name, weight in one["model"].items():
        assert torch.equal(weight, other["model"][name]), name
    for row, twin in zip(one["rows"], other["rows"], strict=True):
        assert row["loss"] == twin["loss"]


def test_sequences_at_a_time_change_no_gradient(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without dropout, whose draws follow the parts, one step on 16 sequences is the same in parts of 1, 3 and 16."""
    monkeypatch.setattr("motionformer.experiments.lra.model._DROPOUT", 0.0)
    moments = []
    for at_a_time in (1, 3, 16):
        train(TASK, SPLITS, Run("counting", "exact", steps=1, at_a_time=at_a_time), tmp_path / str(at_a_time))
        last = torch.load(tmp_path / str(at_a_time) / "last.pt", weights_only=True)
        moments.append([state["exp_avg"] for state in last["optimiser"]["state"].values()])
    assert any(moment.abs().max() > 1e-4 for moment in moments[0])
    for other in moments[1:]:
        torch.testing.assert_close(other, moments[0], rtol=1e-4, atol=1e-7)


def test_other_parts_are_another_run(tmp_path: Path) -> None:
    """What is drawn differs, so a run does not go on with them."""
    train(TASK, SPLITS, replace(RUN, steps=2, evaluate_every=1), tmp_path)
    with pytest.raises(CheckpointError, match=r"at_a_time \(None there, 3 now\)"):
        train(TASK, SPLITS, replace(RUN, steps=2, evaluate_every=1, at_a_time=3), tmp_path)


def test_runs_from_before_a_setting_existed_go_on(tmp_path: Path) -> None:
    run = replace(RUN, steps=2, evaluate_every=1)
    train(TASK, SPLITS, run, tmp_path)
    last = torch.load(tmp_path / "last.pt", weights_only=True)
    del last["run"]["at_a_time"]
    torch.save(last, tmp_path / "last.pt")
    assert train(TASK, SPLITS, run, tmp_path).best_step in (1, 2)


def test_runs_of_0_1_resume(tmp_path: Path) -> None:
    """Their setting is `attend`, as in names of the Performer's features; a finished one is not tested again."""
    short = replace(RUN, kernel="performer-8", steps=2, evaluate_every=1)
    done = train(TASK, SPLITS, short, tmp_path)
    for file in (tmp_path / "last.pt", tmp_path / "best.pt"):
        content = torch.load(file, weights_only=True)
        content["model"] = {key.replace(".kernel.", ".attend."): value for key, value in content["model"].items()}
        if "run" in content:
            content["run"]["attend"] = content["run"].pop("kernel")
        torch.save(content, file)
    result = tmp_path / "result.json"
    result.write_text(result.read_text().replace('"kernel"', '"attend"'))
    with pytest.warns(FutureWarning, match="`attend` is deprecated and will be removed in 0.3; use `kernel`"):
        assert train(TASK, SPLITS, short, tmp_path) == done
    assert '"attend"' in result.read_text()
    result.unlink()
    with pytest.warns(FutureWarning, match="`attend` is deprecated"):
        assert train(TASK, SPLITS, short, tmp_path) == done


def test_seeds_differ_and_repeat(tmp_path: Path) -> None:
    short = replace(RUN, steps=3, evaluate_every=3)
    states = []
    for name, seed in (("a", 0), ("b", 0), ("c", 1)):
        train(TASK, SPLITS, replace(short, seed=seed), tmp_path / name)
        states.append(torch.load(tmp_path / name / "last.pt", weights_only=True)["model"]["head.layers.0.weight"])
    assert torch.equal(states[0], states[1])
    assert not torch.equal(states[0], states[2])


def test_another_run_is_not_continued(tmp_path: Path) -> None:
    short = replace(RUN, steps=2, evaluate_every=1)
    train(TASK, SPLITS, short, tmp_path)
    with pytest.raises(CheckpointError, match=r"kernel \(.orthoformer-4. there, .exact. now\)"):
        train(TASK, SPLITS, replace(short, kernel="exact"), tmp_path)
    (tmp_path / "last.pt").write_bytes(b"cut")
    with pytest.raises(CheckpointError, match="cannot be read"):
        train(TASK, SPLITS, short, tmp_path)


def test_other_data_are_not_continued(tmp_path: Path) -> None:
    short = replace(RUN, steps=2, evaluate_every=2)
    done = train(TASK, SPLITS, short, tmp_path)
    for name, others in (
        ("train", replace(SPLITS, train=counting_task(160, 3))),
        ("dev", replace(SPLITS, dev=counting_task(41, 1))),
        ("test", replace(SPLITS, test=counting_task(40, 3))),
    ):
        with pytest.raises(
            CheckpointError, match=rf"another run: {name} data \(.\d+ examples .* there, .\d+ examples \S+ now\)\."
        ):
            train(TASK, others, short, tmp_path)
    assert json.loads((tmp_path / "result.json").read_text())["test_accuracy"] == done.test_accuracy
    same = Splits(*(Picked(list(part), range(len(part))) for part in (SPLITS.train, SPLITS.dev, SPLITS.test)))
    assert train(TASK, same, short, tmp_path) == done


def test_a_run_that_does_not_say_its_data_goes_on(tmp_path: Path) -> None:
    short = replace(RUN, steps=2, evaluate_every=2)
    done = train(TASK, SPLITS, short, tmp_path)
    content = torch.load(tmp_path / "last.pt", weights_only=True)
    del content["data"]
    torch.save(content, tmp_path / "last.pt")
    assert train(TASK, SPLITS, short, tmp_path) == done


def test_a_finished_run_is_not_tested_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    short = replace(RUN, steps=2, evaluate_every=2)
    done = train(TASK, SPLITS, short, tmp_path)
    tests = []

    def count(*words: Any) -> float:
        tests.append(words[1])
        return done.test_accuracy

    monkeypatch.setattr(import_module("motionformer.experiments.lra.train"), "_accuracy", count)
    assert train(TASK, SPLITS, short, tmp_path) == done
    assert tests == []
    file = tmp_path / "result.json"
    written = file.read_bytes()
    stored = json.loads(written)
    for other in (
        {**stored, "data": {**stored["data"], "test data": "1 examples"}},
        {**stored, "seconds": stored["seconds"] + 1},  # of a run that was removed
        {**stored, "run": {**stored["run"], "seed": 1}},
        {key: value for key, value in stored.items() if key != "data"},
        [],
    ):
        file.write_text(json.dumps(other))
        assert train(TASK, SPLITS, short, tmp_path) == done
        assert file.read_bytes() == written
    file.write_bytes(written[:20])
    assert train(TASK, SPLITS, short, tmp_path) == done
    file.unlink()
    assert train(TASK, SPLITS, short, tmp_path) == done
    assert tests == [SPLITS.test] * 7


def test_the_random_numbers_of_cuda_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a device that is said to be CUDA and is not: its generator's state is kept, and given back to it alone."""
    kept = torch.arange(16, dtype=torch.uint8)
    given = []
    monkeypatch.setattr(torch.cuda, "get_rng_state", lambda device: kept)
    monkeypatch.setattr(torch.cuda, "set_rng_state", lambda state, device: given.append((state.tolist(), device)))
    file = tmp_path / "last.pt"
    states = {}
    for name in ("cpu", "cuda:1"):
        states[name] = _State(SequenceClassifier(TASK, "exact"), RUN.complete(TASK), {})
        assert states[name].device == torch.device("cpu")
        states[name].device = torch.device(name)
    states["cpu"].save(file)
    assert torch.load(file, weights_only=True)["random_cuda"] is None
    states["cuda:1"].load(file)
    states["cuda:1"].save(file)
    states["cpu"].load(file)
    assert given == []
    states["cuda:1"].load(file)
    assert given == [(kept.tolist(), torch.device("cuda:1"))]
    content = torch.load(file, weights_only=True)
    del content["random_cuda"]
    torch.save(content, file)
    states["cuda:1"].load(file)
    assert len(given) == 1


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")
def test_a_stopped_run_on_cuda_draws_what_one_that_was_not_draws(tmp_path: Path) -> None:
    def stop(step: int, row: dict[str, float]) -> None:
        if step > 20:
            raise StoppedError

    train(TASK, SPLITS, RUN, tmp_path / "whole", device="cuda")
    with pytest.raises(StoppedError):
        train(TASK, SPLITS, RUN, tmp_path / "stopped", device="cuda", report=stop)
    torch.manual_seed(123)
    train(TASK, SPLITS, RUN, tmp_path / "stopped", device="cuda")
    one, other = (torch.load(tmp_path / name / "last.pt", weights_only=True) for name in ("whole", "stopped"))
    assert torch.equal(one["random_cuda"], other["random_cuda"])


def test_settings_come_from_the_task_in_the_same_proportion() -> None:
    assert RUN.complete(TASK).steps == 40
    assert RUN.complete(TASK).warmup == 8
    assert replace(RUN, steps=10).complete(TASK).warmup == 2


def test_a_folder_in_use_is_not_trained_in(tmp_path: Path) -> None:
    code = "import sys, pathlib; from motionformer.runs import lock_folder\n"
    code += "with lock_folder(pathlib.Path(sys.argv[1])): print(flush=True); sys.stdin.read()"
    words = [sys.executable, "-c", code, str(tmp_path)]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        other.stdout.readline()
        with pytest.raises(OutputError, match="another process is training here"):
            train(TASK, SPLITS, replace(RUN, steps=1), tmp_path)
        other.communicate()
    assert not (tmp_path / "last.pt").exists()
