"""SIGTERM and SIGUSR1: a command stops between two pieces of work, keeps what is done, exits with 75, and resumes."""

import filecmp
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from torch.utils.data import DataLoader, Dataset

from motionformer import cli, stopping
from motionformer.inference.scorer import Scorer
from tests.inference.conftest import make_model
from tests.video.numbered import write_video


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model, five videos and a list of them."""
    root = tmp_path_factory.mktemp("stop")
    make_model(views=1, crops=1).save_pretrained(root / "model")
    (root / "videos").mkdir()
    names = ("a.mp4", "b.mp4", "c.mp4", "d.mp4", "e.mp4")
    for number, name in enumerate(names):
        write_video(root / "videos" / name, num_frames=16 + number)
    (root / "list.csv").write_text("path,label\n" + "".join(f"videos/{name},wave\n" for name in names))
    return root


def run(monkeypatch: pytest.MonkeyPatch, *words: object) -> int:
    """The exit code of a command."""
    monkeypatch.setattr(sys, "argv", ["motionformer", *map(str, words)])
    try:
        cli.main()
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else 0
    return 0


def stop_at(monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, number: int, which: signal.Signals) -> None:
    """Send this process a signal in the middle of the `number`-th call."""
    original: Callable[..., Any] = getattr(owner, name)
    calls = 0

    def wrapped(*args: Any, **given: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == number:
            os.kill(os.getpid(), which)
        return original(*args, **given)

    monkeypatch.setattr(owner, name, wrapped)


COMMANDS = {
    "predict": ("predict {p}/videos --model {p}/model --json {o}/r.json --resume", "__call__", "--resume continues"),
    "features": ("features {p}/videos --model {p}/model --output {o} --resume", "check_finite", "--resume continues"),
    "evaluate": (
        "evaluate {p}/model {p}/list.csv --output {o} --batch-size 1 --num-workers 1",
        "__call__",
        "the same command resumes",
    ),
}


@pytest.mark.parametrize(
    ("command", "which"),
    [("predict", signal.SIGTERM), ("features", signal.SIGUSR1), ("evaluate", signal.SIGTERM)],
)
def test_stopped_and_resumed(
    command: str,
    which: signal.Signals,
    place: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    words, method, says = COMMANDS[command]
    outputs = [tmp_path / "whole", tmp_path / "stopped"]
    whole, stopped = ([word.format(p=place, o=output) for word in words.split()] for output in outputs)
    before = signal.getsignal(which)
    with monkeypatch.context() as patched:
        stop_at(patched, Scorer, method, 2, which)
        assert run(patched, *stopped) == stopping.EXIT_STOPPED
    said = capsys.readouterr().err
    assert (f"stopped: {which.name}, after 2 of 5 videos. What is done is in {outputs[1]}") in said
    assert says in said
    assert signal.getsignal(which) == before
    with monkeypatch.context() as patched:
        calls = []
        original = getattr(Scorer, method)
        patched.setattr(Scorer, method, lambda *args, **given: (calls.append(1), original(*args, **given))[1])
        assert run(patched, *stopped) == 0
        assert len(calls) == 3, "the first two were kept"
    assert run(monkeypatch, *whole) == 0
    same = [file.name for file in outputs[0].iterdir() if file.suffix in (".json", ".csv", ".npz")]
    assert len(same) >= 1
    if command != "features":  # the time that a zip archive records is of its writing
        assert filecmp.cmpfiles(*outputs, [name for name in same if name != "results.npz"], shallow=False)[1:] == (
            [],
            [],
        )
    assert {file.name for file in outputs[0].iterdir()} == {file.name for file in outputs[1].iterdir()}


def test_nothing_to_keep_is_said(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    stop_at(monkeypatch, Scorer, "__call__", 1, signal.SIGTERM)
    assert run(monkeypatch, "predict", place / "videos", "--model", place / "model") == 75
    assert "Nothing is kept" in capsys.readouterr().err


def test_a_signal_after_the_last_video_changes_nothing(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stop_at(monkeypatch, Scorer, "__call__", 5, signal.SIGTERM)
    assert run(monkeypatch, "predict", place / "videos", "--model", place / "model") == 0


def test_requeue(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """`scontrol requeue` is called with the job, after the command has stopped; without a job, it says so."""
    (tmp_path / "scontrol").write_text(f'#!/bin/sh\necho "$@" >> {tmp_path}/called\n')
    (tmp_path / "scontrol").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    monkeypatch.setenv(stopping.REQUEUE, "")
    command = ("--requeue", "predict", place / "videos", "--model", place / "model")
    for job, said in (("", "this is no SLURM job"), ("17", "SLURM job 17 is back in the queue")):
        monkeypatch.setenv("SLURM_JOB_ID", job)
        with monkeypatch.context() as patched:
            stop_at(patched, Scorer, "__call__", 1, signal.SIGUSR1)
            assert run(patched, *command) == 75
        assert said in capsys.readouterr().err
    assert (tmp_path / "called").read_text() == "requeue 17\n"
    assert run(monkeypatch, *command) == 0, "a command that is not stopped"
    assert (tmp_path / "called").read_text() == "requeue 17\n"


class _Pids(Dataset[int]):
    def __len__(self) -> int:
        return 40

    def __getitem__(self, index: int) -> int:
        return os.getpid()


def test_signals_to_all_processes_leave_loader_workers_alive() -> None:
    """As a scheduler sends them: to every process of the job, from elsewhere. The loader itself can end its workers."""
    loader = DataLoader(_Pids(), num_workers=1, batch_size=1, worker_init_fn=stopping.keep_from_signals)
    batches = iter(loader)
    worker = int(next(batches))
    subprocess.run(["sh", "-c", f"kill -TERM {worker}; kill -USR1 {worker}"], check=True)
    assert {int(batch) for batch in batches} == {worker}
    loader = DataLoader(_Pids(), num_workers=1, batch_size=1, worker_init_fn=stopping.keep_from_signals)
    batches = iter(loader)
    next(batches)
    process = batches._workers[0]  # type: ignore[attr-defined]
    process.terminate()
    process.join(timeout=10)
    assert process.exitcode == 0
