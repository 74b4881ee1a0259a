"""Progress of a run: one line of a terminal, or a message now and then in a log file; and the file of metrics."""

import io
import re
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from lightning.pytorch import Trainer
from rich.console import Console

from motionformer import logging
from motionformer.logging import show_messages
from motionformer.training import logs, make_recipe, train
from motionformer.training.logs import Progress, _CsvLogger
from motionformer.training.module import TrainingModule
from motionformer.training.recipe import Recipe
from motionformer.training.trainer import make_plan
from tests.training.children import SMALL


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def small(folder: Path) -> Recipe:
    return make_recipe(SMALL, [f"output={folder}", "ema=0"])


def run_on(file: io.StringIO, folder: Path, monkeypatch: pytest.MonkeyPatch, **options: Any) -> str:
    console = Console(file=file, width=80, highlight=False, markup=False, **options)
    monkeypatch.setattr(logs, "console", console)
    monkeypatch.setattr(logging, "console", console)
    with show_messages():
        train(small(folder))
    return file.getvalue()


def test_a_terminal_of_80_columns_shows_one_line_with_the_time_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logs, "_SECONDS_BETWEEN_REFRESHES", 0.0)
    shown = run_on(Terminal(), tmp_path, monkeypatch, force_terminal=True, color_system=None)
    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", shown)
    drawn = [line.rstrip() for line in re.split(r"[\r\n]+", plain) if "━" in line]
    assert all(len(line) <= 80 for line in drawn)
    pattern = re.compile(r"epoch (\d)/2 [━╸╺ ]+ step (\d)/8 loss [\d.]+ 0:00:\d\d left")
    found = [match.groups() for match in map(pattern.fullmatch, drawn) if match]
    assert [(int(epoch), int(step)) for epoch, step in found] == [((step + 3) // 4, step) for step in range(1, 9)]
    assert sum(line.startswith("validation ") for line in drawn) >= 2
    assert "\x1b[1A" not in shown  # never more than one line is redrawn
    messages = [line for line in re.split(r"[\r\n]+", plain) if line.startswith("epoch") and "of" in line]
    assert [line.partition(":")[0] for line in messages] == ["epoch 1 of 2, step 4 of 8", "epoch 2 of 2, step 8 of 8"]
    assert "━" not in "".join(messages)  # above the bar, not in it


def test_a_log_file_has_messages_and_no_bar(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logs, "_SECONDS_BETWEEN_MESSAGES", 0.0)
    lines = run_on(io.StringIO(), tmp_path, monkeypatch).splitlines()
    assert lines[0] == f"{tmp_path}: 8 steps."
    assert re.fullmatch(r"epoch 1 of 2, step 3 of 8: loss [\d.]+, 0:00:\d\d left", lines[3]), lines
    assert len(lines) == 1 + 8 + 2
    assert sum("top1" in line for line in lines) == 2
    assert not {"━", "\x1b", "\r"} & set("".join(lines))


def test_the_time_left_is_that_of_the_whole_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two epochs of four steps, one second each; a validation takes three."""
    now = [100.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    recipe = small(tmp_path)
    progress = Progress(recipe, make_plan(recipe, 36, 11, 1))
    trainer, module = Mock(Trainer, global_step=0), Mock(TrainingModule)
    module.history = [{"epoch": 1, "step": 4, "loss": 0.5, "top1": 0.5}]
    progress.on_train_start(trainer, module)
    now[0] += 2
    assert progress._left(2) == "0:00:06 left"  # no validation seen yet
    now[0] += 2
    progress.on_validation_start(trainer, module)
    now[0] += 3
    progress.on_validation_end(trainer, module)
    assert progress._left(4) == "0:00:07 left"  # four steps and one validation
    assert progress.seconds == 7


def test_metrics_of_steps_that_will_be_repeated_are_dropped(tmp_path: Path) -> None:
    file = tmp_path / "metrics.csv"
    log = _CsvLogger(file, 0)
    for step in range(1, 6):
        log.log_metrics({"loss": step / 10}, step)
    log.log_metrics({"top1": 0.5}, 4)
    log.save()
    resumed = _CsvLogger(file, 4)
    resumed.log_metrics({"loss": 7.0}, 5)
    resumed.save()
    assert file.read_text() == "step,loss,top1\n1,0.1,\n2,0.2,\n3,0.3,\n4,0.4,0.5\n5,7.0,\n"
