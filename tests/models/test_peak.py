"""The peak of a step as the system saw it, at sizes that can be told from anything else in a process."""

from pathlib import Path

import pytest

from motionformer.errors import MotionformerError
from motionformer.models import model_config
from motionformer.models.costs import measure, step_peak, training_step_peak

ALLOCATE = """
import sys
before_the_step = bytearray(300_000_000)
before_the_step[::4096] = b"x" * len(before_the_step[::4096])
del before_the_step
def step():
    block = bytearray(int(sys.argv[1]))
    block[::4096] = b"x" * len(block[::4096])
"""


def test_only_the_step_counts() -> None:
    """Neither what was freed before it, nor the process itself.

    The system counts pages for each core and adds them up now and then: some hundred kilobytes may be missing.
    """
    assert 99e6 < step_peak(ALLOCATE, "100000000") < 130e6


def test_a_model_takes_about_what_was_counted() -> None:
    config = model_config("motionformer-small", depth=2)
    counted = measure(config)
    activations = counted.training_bytes - counted.weight_bytes  # the count has gradients in it
    assert 0.8 * activations < training_step_peak(config) < 2 * activations + 100e6


def test_a_step_that_fails_says_why() -> None:
    with pytest.raises(MotionformerError, match="ZeroDivisionError"):
        step_peak("import sys\ndef step(): 1 / 0")


def test_elsewhere_than_on_linux(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("motionformer.models.costs.PEAK_RESET", tmp_path / "clear_refs")
    with pytest.raises(MotionformerError, match="on Linux only"):
        step_peak(ALLOCATE, "1")
