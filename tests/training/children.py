"""Training runs in processes of their own, some of which kill themselves at a chosen moment.

The moment is chosen by wrapping a function of the engine in the child, so the engine knows nothing of tests.
"""

import multiprocessing
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.children import start_child

SMALL = {
    "name": "small",
    "model": {
        "variant": "motionformer-tiny",
        "changes": {
            "dim": 16,
            "depth": 2,
            "num_heads": 2,
            "drop_path": 0.3,
            "head_dropout": 0.1,
            "input": {"frames": 2, "height": 16, "width": 16},
        },
    },
    "data": {"train_clips": 36, "val_clips": 11, "workers": 0},
    "augmentation": {"mixup": 0.2, "cutmix": 1.0},
    "optimiser": {"lr": 0.05, "clip_norm": 1.0, "layer_decay": 0.9},
    "schedule": {"kind": "cosine", "warmup": 0.5},
    "engine": {"max_clips": 4, "checkpoint_steps": 2, "log_steps": 1, "accelerator": "cpu", "devices": "1"},
    "global_batch": 8,
    "epochs": 2,
    "ema": 0.8,
}
"""Eight steps of two parts of four clips, a checkpoint every second step, and everything random switched on."""

Moment = tuple[str, int]


def run_child(output: Path, moment: Moment | None = None, overrides: tuple[str, ...] = ()) -> int | None:
    """The exit code of a run of `SMALL` in a process of its own; minus the signal if it was killed."""
    process = start_child(_run, str(output), moment, overrides)
    process.join()
    return process.exitcode


def _run(output: str, moment: Moment | None, overrides: tuple[str, ...]) -> None:
    import torch

    from motionformer.errors import StoppedError
    from motionformer.stopping import EXIT_STOPPED
    from motionformer.training import make_recipe, train

    torch.set_num_threads(1)
    multiprocessing.set_start_method("fork", force=True)  # as from a shell; workers of a fork server outlive a kill
    if moment is not None:
        MOMENTS[moment[0]](moment[1])
    try:
        train(make_recipe(SMALL, [f"output={output}", *overrides]), quiet=True)
    except StoppedError as error:
        sys.exit(EXIT_STOPPED if "the same command resumes" in str(error).lower() else 1)
    sys.stdout.flush()


def _die(number: int = signal.SIGKILL) -> None:
    os.kill(os.getpid(), number)


def _at_call(owner: Any, name: str, number: int, send: int = signal.SIGKILL) -> None:
    """Die, or get another signal, when the function is called for the `number`-th time."""
    original: Callable[..., Any] = getattr(owner, name)
    calls = 0

    def wrapped(*args: Any, **kwargs: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == number:
            _die(send)
        return original(*args, **kwargs)

    setattr(owner, name, wrapped)


def _in_training(number: int) -> None:
    from motionformer.training.module import TrainingModule

    _at_call(TrainingModule, "training_step", number)


def _in_validation(number: int) -> None:
    from motionformer.training.module import TrainingModule

    _at_call(TrainingModule, "validation_step", number)


def _while_writing(number: int) -> None:
    """With half a checkpoint in the file (a checkpoint takes some hundred writes)."""
    from motionformer.training.run_folder import _Hashed

    original = _Hashed.save

    def save(self: _Hashed, checkpoint: dict[str, Any]) -> None:
        if f"step-{number:08d}" in self.stream.name:
            _at_call(_Hashed, "write", 100)
        original(self, checkpoint)

    _Hashed.save = save  # type: ignore[method-assign]


def _before_renaming(number: int) -> None:
    """With the whole checkpoint written under another name, and its checksum in place."""
    original = Path.replace

    def replace(self: Path, target: Any) -> Path:
        if Path(target).name == f"step-{number:08d}.ckpt":
            _die()
        return original(self, target)

    Path.replace = replace  # type: ignore[method-assign,assignment]


def _after_the_last_step(number: int) -> None:
    from motionformer.training import run

    _at_call(run, "_save_model", number)


def _asked_in_training(number: int) -> None:
    from motionformer.training.module import TrainingModule

    _at_call(TrainingModule, "training_step", number, signal.SIGTERM)


def _asked_in_validation(number: int) -> None:
    from motionformer.training.module import TrainingModule

    _at_call(TrainingModule, "validation_step", number, signal.SIGUSR1)


def _asked_before_the_first_step(number: int) -> None:
    from motionformer.training import run

    _at_call(run, "make_loggers", number, signal.SIGTERM)


MOMENTS: dict[str, Callable[[int], None]] = {
    "training": _in_training,
    "validation": _in_validation,
    "writing": _while_writing,
    "renaming": _before_renaming,
    "saving": _after_the_last_step,
    "asked in training": _asked_in_training,
    "asked in validation": _asked_in_validation,
    "asked before": _asked_before_the_first_step,
}
