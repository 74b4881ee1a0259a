"""Small callbacks: how long a run took, resumes included, and a line for every validation."""

import time
from collections.abc import Callable
from typing import Any

from lightning.pytorch import Callback, LightningModule, Trainer

from motionformer.inference.metrics import wilson


class Clock(Callback):
    """Seconds of training and validation, those before a kill up to the last checkpoint included."""

    def __init__(self) -> None:
        self.before, self.started = 0.0, time.monotonic()

    @property
    def seconds(self) -> float:
        return self.before + time.monotonic() - self.started

    def state_dict(self) -> dict[str, Any]:
        return {"seconds": self.seconds}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.before = float(state_dict["seconds"])


class SayResults(Callback):
    """One line a validation, for people and for the log of a job without a terminal."""

    def __init__(self, say: Callable[[str], None], total_steps: int, videos: int) -> None:
        self.say, self.total_steps, self.videos = say, total_steps, videos

    def _shown(self, name: str, value: float) -> str:
        if name in ("loss", "map"):
            return f"{name} {value:.4g}"
        low, high = wilson(round(value * self.videos), self.videos)
        return f"{name} {value:.4g} (95 % CI {low:.3g}–{high:.3g})"

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        entry: dict[str, int | float] = pl_module.history[-1]  # type: ignore[assignment,index]
        scores = ", ".join(self._shown(name, value) for name, value in entry.items() if name not in ("epoch", "step"))
        self.say(f"epoch {entry['epoch']:g}, step {entry['step']:g} of {self.total_steps}: {scores}")
