"""What to train on these videos with this machine: model, clip, rates. Numbers in, recipe out.

Reads nothing but the header of the starting weights, writes nothing. The choices and how they were come by:
docs/commands/finetune.md.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import ceil
from pathlib import Path
from typing import Any, Literal

from motionformer.attention import SCHEMES
from motionformer.data.record import Missing
from motionformer.models.config import ModelConfig, ReadoutKind, ScoringKind
from motionformer.models.variants import VARIANTS
from motionformer.training.model import FROM_DATA
from motionformer.training.recipe import Recipe, make_recipe
from motionformer.weights.checkpoint import read_checkpoint
from motionformer.weights.image import from_image_weights
from motionformer.weights.load import find_weights, is_video_model, read_config
from motionformer.weights.released import RELEASED

TRAIN_LIST, VAL_LIST = "train.csv", "val.csv"
BASIS = "motionformer-tiny"
"""The variant that recipes made here state their model as changes of."""
_ORDER: dict[ScoringKind, str] = {"softmax": "turns", "sigmoid": "shuffled"}  # one class a video can take turns
_SMOOTHING: dict[ScoringKind, float] = {"softmax": 0.1, "sigmoid": 0.0}  # most answers are no: 5 % of each is a lot
KeepEpoch = Literal["last", "best"]
MIN_STEPS = 60
"""Optimiser steps of a run with default epochs: few videos are seen more often instead (docs/commands/finetune.md)."""
SMALL_BATCH = 16
"""Clips a step, about, where 32 would make fewer than `MIN_STEPS` steps."""
SHORT_VIDEO = 10.0
"""Seconds up to which a clip is spread over the whole video; from longer ones it is cut at a stride."""


@dataclass(frozen=True)
class Wishes:
    """What the user said. None and empty mean: decide for me."""

    start: str = ""
    train: str = ""
    attention: str | None = None
    readout: ReadoutKind | None = None
    frames: int | None = None
    size: int | None = None
    epochs: int | None = None
    lr: float | None = None
    batch: int | None = None
    keep_epoch: KeepEpoch = "last"
    held_out: float = 0.2
    seed: int = 0
    name: str = ""
    output: str = ""
    missing: Missing = "error"  # what becomes of listed videos that are not there


@dataclass(frozen=True)
class VideoFacts:
    """Of a typical video."""

    frames: int
    seconds: float
    short_side: int


@dataclass(frozen=True)
class Hardware:
    """What a run may use. Totals, not what is free now: the same machine must give the same recipe."""

    has_gpu: bool
    memory: int  # bytes of one device
    cores: int


def finetune_recipe(
    wishes: Wishes,
    facts: VideoFacts,
    hardware: Hardware,
    *,
    num_train: int,
    scoring: ScoringKind = "softmax",
    starting_config: Callable[[str], ModelConfig] | None = None,
) -> Recipe:
    """The recipe for videos like these on a machine like this. Pure, but for the header of the starting weights."""
    config = _start_config(wishes, starting_config or read_start) if wishes.start else _fresh_config(hardware)
    defaults = _defaults(wishes, hardware, config)
    batch, epochs = _batch_and_epochs(wishes, defaults.epochs, num_train)
    config = _fit_clip(config, wishes, facts, hardware)
    if wishes.attention is not None:
        SCHEMES[wishes.attention]  # an unknown name is an error that lists the known ones
        config = replace(config, attention=wishes.attention)
    if wishes.readout is not None:
        config = replace(config, readout=wishes.readout)
    config = replace(config, input=replace(config.input, protocol="uniform"))  # a new model, whatever it starts from
    folder = Path(wishes.output or f"runs/{wishes.name}")
    recipe = make_recipe(
        {
            "name": wishes.name,
            "model": {
                "variant": BASIS,
                "changes": config_changes(config),
                "start": wishes.start,
                "train": defaults.train,
            },
            "data": {
                "train": str(folder / TRAIN_LIST),
                "val": str(folder / VAL_LIST),
                "kind": "list",
                "order": _ORDER[scoring],
                "workers": max(1, min(8, hardware.cores - 1)),
            },
            "augmentation": {"crop_area": [0.5, 1.0], "flip": 0.5, "flip_by_name": True, "colour": 0.3},
            "optimiser": {
                "lr": defaults.lr if wishes.lr is None else wishes.lr,
                "lr_batch": batch,
                "weight_decay": 0.05,
                "clip_norm": 1.0,
                "new_rate": defaults.new_rate,
            },
            "schedule": {"kind": "cosine", "warmup": min(defaults.warmup, epochs / 10)},
            "engine": {"precision": "bf16-mixed" if hardware.has_gpu else "32-true"},
            "test": {"views": config.input.views, "crops": config.input.crops},
            "global_batch": batch,
            "epochs": epochs,
            "label_smoothing": _SMOOTHING[scoring],
            "keep_epoch": wishes.keep_epoch,
            "seed": wishes.seed,
            "output": wishes.output,
        }
    )
    fits = clips_that_fit(config, hardware)
    return recipe if fits >= batch else replace(recipe, engine=replace(recipe.engine, max_clips=fits))


def clips_that_fit(config: ModelConfig, hardware: Hardware) -> int:
    """How many clips a device trains on at once, in 60 % of its memory: weights with AdamW's moments, then clips.

    A block keeps about 30 values a channel of each token, and with trajectories one more a frame; `costs.measure`
    counts 33.8 for 4 frames, but takes seconds to.
    """
    f, rows, columns = config.grid
    clip = 4 * config.depth * f * rows * columns * config.dim * (30 + f)
    weights = 4 * 4 * 12 * config.depth * config.dim**2
    return max(1, int((0.6 * hardware.memory - weights) // clip))


def config_changes(config: ModelConfig) -> dict[str, Any]:
    """What a recipe must change of `BASIS` to describe `config`."""
    changes = _difference(VARIANTS[BASIS].to_dict(), config.to_dict())
    return {key: value for key, value in changes.items() if key not in FROM_DATA}


@dataclass(frozen=True)
class _Defaults:
    train: str
    epochs: int
    lr: float
    warmup: float
    new_rate: float = 1.0


def _defaults(wishes: Wishes, hardware: Hardware, config: ModelConfig) -> _Defaults:
    """Rates for a batch of 32. What little is trained of a good start is trained briefly and fast; a small model is
    trained whole, as long and as fast as from random weights."""
    fresh = not wishes.start or (is_small(config) and wishes.train in ("", "all"))
    train = wishes.train or ("all" if hardware.has_gpu or fresh else "last:4")
    if fresh:
        made = _Defaults(train, 100 if hardware.has_gpu else 40, 1e-3, 3.0)
    elif train == "head":
        made = _Defaults(train, 20, 1e-3, 1.0)
    elif train == "all":
        made = _Defaults(train, 20, 1e-4, 1.0)
    else:
        made = _Defaults(train, 8, 3e-4, 1.0, new_rate=4.0)  # a new head is slow at the rate that old blocks bear
    return made


def _batch_and_epochs(wishes: Wishes, epochs: int, num_train: int) -> tuple[int, int]:
    """What was asked for, or `epochs` of 32 clips a step; for few videos more epochs, of fewer clips a step."""
    batch = min(wishes.batch or 32, num_train)
    if wishes.epochs is not None:
        return batch, wishes.epochs
    if wishes.batch is None and num_train // batch * epochs < MIN_STEPS:
        batch = num_train // max(1, round(num_train / SMALL_BATCH))  # near it, and hardly a video is left over
    return batch, max(epochs, ceil(MIN_STEPS / (num_train // batch)))


def is_small(config: ModelConfig) -> bool:
    """Whether a model is of the size of `motion-tiny`, which knows motion and little else."""
    return config.dim < 256


def _fresh_config(hardware: Hardware) -> ModelConfig:
    """A model for random weights: what a CPU trains in minutes, or a GPU in an hour.

    Its head sees motion: a class token alone stays at guessing for epochs, on as few videos as people have.
    """
    if hardware.has_gpu:
        return replace(VARIANTS["motionformer-small"], readout="motion")
    return replace(VARIANTS[BASIS], drop_path=0.1, readout="motion")


def _start_config(wishes: Wishes, starting_config: Callable[[str], ModelConfig]) -> ModelConfig:
    config = starting_config(wishes.start)
    return config if wishes.train in ("", "all") else replace(config, drop_path=0.0)


def read_start(start: str) -> ModelConfig:
    """The model that weights belong to: a video model as it is, an image model as the video model it becomes."""
    checkpoint = read_checkpoint(find_weights(start))
    if is_video_model(checkpoint):
        config = read_config(start)
        return replace(config, input=RELEASED[start].input) if start in RELEASED else config
    # without a value projection an image model's features pass through the new temporal attention unharmed
    model, _ = from_image_weights(checkpoint.path, num_classes=1, frames=8, size=224, project_values=False)
    return replace(model.config, drop_path=0.0, readout="motion")


def _fit_clip(config: ModelConfig, wishes: Wishes, facts: VideoFacts, hardware: Hardware) -> ModelConfig:
    """Frames and size for these videos: no more frames than they have, no larger than they are nor the CPU likes."""
    most = config.input.frames if hardware.has_gpu or not wishes.start else min(8, config.input.frames)
    frames = wishes.frames or _multiple(min(most, facts.frames), config.tubelet)
    if hardware.has_gpu or not wishes.start:
        largest = config.input.height
    else:
        largest = 64 if is_small(config) else min(7 * config.patch, config.input.height)
    size = wishes.size or _multiple(min(largest, facts.short_side), config.patch)
    whole = facts.seconds <= SHORT_VIDEO
    spec = replace(
        config.input,
        frames=frames,
        height=size,
        width=size,
        sampling="segments" if whole else "stride",
        stride=4,
        views=1 if whole else 4,
        crops=1,
    )
    # tables of the size that is trained, not of the start's: they are interpolated once
    return replace(config, input=spec, position_grid=None, position_frames=None)


def _multiple(length: int, unit: int) -> int:
    return max(unit, length // unit * unit)


def _difference(here: dict[str, Any], there: dict[str, Any]) -> dict[str, Any]:
    changes: dict[str, Any] = {}
    for key, value in there.items():
        if isinstance(value, dict) and isinstance(here.get(key), dict):
            if inner := _difference(here[key], value):
                changes[key] = inner
        elif key not in here or value != here[key]:
            changes[key] = list(value) if isinstance(value, tuple) else value
    return changes
