"""What to train: by the number of videos and the machine, or by what fits into the time that there is.

Every choice comes with its reason; `--train` overrules it. What was measured of them is in docs/results.md ("What to
train of an image model"): with a hundred videos and one seed, the middle three cannot be told apart.
"""

import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from math import floor

import torch
from torch.utils._pytree import tree_leaves

from motionformer.data import ClipReader
from motionformer.data.record import Annotations
from motionformer.errors import RecipeError, VideoError
from motionformer.models.config import ModelConfig
from motionformer.training.model import build_config, build_model
from motionformer.training.recipe import Recipe

PREFERENCE = ("all", "last:4", "lora:8", "adapter", "head")
"""From the most trainable parameters to the fewest: accuracy first, where there are videos and time for it."""
_FEW = 10
"""Videos per class below which the whole model is not trained."""
_TIMED_CLIPS = 4
_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0}


@dataclass(frozen=True)
class TrainingChoice:
    """What is trained, and why.

    Attributes:
        train: as `--train` takes it.
        reason: a sentence.
        epochs: fewer than usual, to fit the time; None for the usual number.
        probe: why a probe of frozen features (`motionformer probe`) is better still; empty where it is not.
        seconds: estimate for each candidate that was timed.
    """

    train: str
    reason: str
    epochs: int | None = None
    probe: str = ""
    seconds: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class StepTimes:
    """Measured seconds of one clip: a training step, a forward pass, and reading it with the loaders that there are."""

    train: float
    forward: float
    read: float

    def of_run(self, epochs: int, num_train: int, num_val: int) -> float:
        """Of a whole run. Loaders read while the model computes: the slower of the two counts."""
        train, val = max(self.train, self.read), max(self.forward, self.read)
        return epochs * (num_train * train + num_val * val)


def parse_time(text: str) -> float:
    """Seconds of `90s`, `10m`, `1.5h`; a number alone is minutes.

    Raises:
        RecipeError: text of another form, or no time at all.
    """
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([smh]?)", text.strip())
    seconds = float(found[1]) * _UNITS[found[2] or "m"] if found else 0.0
    if seconds <= 0:
        raise RecipeError(f"--time {text}: write a time such as 90s, 10m or 2h.")
    return seconds


def choose_by_rule(
    config: ModelConfig, has_weights: bool, has_gpu: bool, num_train: int, num_classes: int
) -> TrainingChoice:
    """Without a limit of time."""
    if not has_weights:
        return TrainingChoice("all", "random weights: there is nothing to keep")
    if config.dim < 256:
        return TrainingChoice("all", f"a small model ({config.dim} wide) is trained whole")
    each = num_train / max(1, num_classes)
    if each < _FEW:
        reason = f"{each:.0f} videos per class are too few to train everything"
        return TrainingChoice("last:4", reason, probe="" if has_gpu else f"{reason}, on a CPU")
    if has_gpu:
        return TrainingChoice("all", f"{num_train} videos, {each:.0f} per class, and a GPU")
    return TrainingChoice("last:4", f"{num_train} videos on a CPU: a third of the blocks costs a third of the training")


def choose_by_time(
    seconds: float,
    recipe_of: Callable[[str], Recipe],
    train: Annotations,
    val: Annotations,
    *,
    candidates: Sequence[str],
    times_of: Callable[[Recipe, Annotations], StepTimes] | None = None,
) -> TrainingChoice:
    """The first of the candidates, best first, whose run fits into `seconds`; else the cheapest with fewer epochs.

    Args:
        seconds: there are.
        recipe_of: the recipe that trains so.
        train: training videos.
        val: held-out videos.
        candidates: as `--train` takes them, in order of preference.
        times_of: measures a recipe [default: `measure_times`].
    """
    measured: dict[str, float] = {}
    each: dict[str, tuple[float, int]] = {}
    for name in candidates:
        recipe = recipe_of(name)
        one = (times_of or measure_times)(recipe, train).of_run(1, len(train), len(val))
        measured[name], each[name] = recipe.epochs * one, (one, recipe.epochs)
        if measured[name] <= seconds:
            skipped = ", ".join(f"{other} about {show_time(measured[other])}" for other in measured if other != name)
            reason = f"about {show_time(measured[name])} by measured steps, within {show_time(seconds)}"
            return TrainingChoice(name, reason + (f" ({skipped})" if skipped else ""), seconds=measured)
    cheapest = min(measured, key=lambda name: measured[name])
    one, usual = each[cheapest]
    epochs = max(1, floor(seconds / one))
    took = show_time(measured[cheapest])
    if epochs * one > seconds:
        reason = f"nothing fits into {show_time(seconds)}: one epoch of the cheapest takes about {show_time(one)}"
    else:
        reason = f"the cheapest: {usual} epochs take about {took}, {epochs} fit into {show_time(seconds)}"
    return TrainingChoice(cheapest, reason, min(epochs, usual), f"no training fits into {show_time(seconds)}", measured)


def candidates_for(config: ModelConfig, has_weights: bool, num_train: int, num_classes: int) -> list[str]:
    """What can be trained of such a model, best first."""
    if not has_weights:
        return ["all"]
    names = [name for name in PREFERENCE if name != "lora:8" or find_spec("peft") is not None]
    if config.dim >= 256 and num_train < _FEW * num_classes:
        names.remove("all")
    return [name for name in names if name != "last:4" or config.depth > 4]


def measure_times(recipe: Recipe, videos: Annotations) -> StepTimes:
    """Time a step of a few clips of noise, a forward pass, and reading three videos; the best of two each."""
    num_classes = len(videos.class_names)
    model, _ = build_model(recipe, build_config(recipe, num_classes))
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = model.to(device)
    spec = model.config.input
    clips = torch.randn(_TIMED_CLIPS, 3, spec.frames, spec.height, spec.width, device=device)

    def step() -> None:
        torch.stack([leaf.float().square().sum() for leaf in tree_leaves(model(clips))]).sum().backward()
        model.zero_grad()

    def forward() -> None:
        with torch.no_grad():
            model(clips)

    reader = ClipReader(spec)
    some = videos.records[:: max(1, len(videos) // 3)][:3]

    def read() -> None:
        for record in some:
            try:
                list(reader.clips(reader.read(record)))
            except VideoError:  # counted by the run
                continue

    per_clip = {
        name: _best_of_two(run, device) / count
        for name, run, count in (
            ("train", step, _TIMED_CLIPS),
            ("forward", forward, _TIMED_CLIPS),
            ("read", read, max(1, len(some)) * max(1, recipe.data.workers)),
        )
    }
    return StepTimes(**per_clip)


def show_time(seconds: float) -> str:
    """As `40 s`, `12 min`, `1.5 h`."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def _best_of_two(run: Callable[[], None], device: str) -> float:
    best = float("inf")
    for _ in range(2):
        start = time.perf_counter()
        run()
        if device == "cuda":
            torch.cuda.synchronize()
        best = min(best, time.perf_counter() - start)
    return best
