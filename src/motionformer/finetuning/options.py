"""Options of a fine-tuning, and the recipe that follows from them, the videos and the hardware.

Reads nothing but the header of the initial weights, writes nothing. The defaults and where they come from:
docs/commands/finetune.md.
"""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import ceil
from pathlib import Path
from statistics import median
from typing import Any, Literal

import torch

from motionformer.attention import SCHEMES
from motionformer.data.record import Missing
from motionformer.errors import RecipeError
from motionformer.finetuning.choice import choose_by_rule
from motionformer.models.config import AdapterConfig, ModelConfig, ReadoutKind, ScoringKind
from motionformer.models.variants import VARIANTS
from motionformer.training.model import FROM_DATA
from motionformer.training.recipe import Recipe, make_recipe
from motionformer.weights.checkpoint import read_checkpoint
from motionformer.weights.image import from_image_weights
from motionformer.weights.load import find_weights, is_video_model, read_config
from motionformer.weights.released import RELEASED

TRAIN_LIST, VAL_LIST = "train.csv", "val.csv"
BASIS = "motionformer-tiny"
"""The variant that these recipes state their model as changes of."""
_ORDER: dict[ScoringKind, str] = {"softmax": "stratified", "sigmoid": "shuffled"}
_SMOOTHING: dict[ScoringKind, float] = {"softmax": 0.1, "sigmoid": 0.0}  # most targets are 0: 5 % of each is a lot
MIN_STEPS = 60
"""Optimiser steps of a run with default epochs: with few videos there are more epochs (docs/commands/finetune.md)."""
_SMALL_BATCH = 16
"""Clips per step, about, where 32 would make fewer than `MIN_STEPS` steps."""
_SHORT_VIDEO = 10.0
"""Seconds up to which a clip is spread over the whole video; longer ones are sampled at a stride."""


@dataclass(frozen=True)
class FinetuneOptions:
    """Options of `finetune`. None and empty text mean: chosen for the videos and the hardware."""

    init_from: str = ""
    train: str = ""
    time: str = ""  # such as 10m: what is trained, and for how long, follows from it
    attention: str | None = None
    readout: ReadoutKind | None = None
    frames: int | None = None
    size: int | None = None
    epochs: int | None = None
    lr: float | None = None
    batch_size: int | None = None
    keep_epoch: Literal["last", "best"] = "last"
    held_out: float = 0.2
    seed: int = 0
    name: str = ""
    output: str = ""
    missing: Missing = "error"  # or drop: listed videos that are not there


@dataclass(frozen=True)
class VideoFacts:
    """Medians of the videos."""

    frames: int
    seconds: float
    short_side: int

    @classmethod
    def median(cls, found: Sequence["VideoFacts"]) -> "VideoFacts":
        return cls(
            frames=int(median(facts.frames for facts in found)),
            seconds=float(median(facts.seconds for facts in found)),
            short_side=int(median(facts.short_side for facts in found)),
        )


@dataclass(frozen=True)
class Hardware:
    """Total resources, not what is free now: the same machine must give the same recipe."""

    has_gpu: bool
    memory: int  # bytes of one device
    cores: int

    @classmethod
    def here(cls) -> "Hardware":
        """Of this machine."""
        cores = os.cpu_count() or 1
        if torch.cuda.is_available():
            memory = min(torch.cuda.get_device_properties(i).total_memory for i in range(torch.cuda.device_count()))
            return cls(True, memory, cores)
        if not hasattr(os, "sysconf"):  # the run itself will name what the system lacks
            return cls(False, 8 << 30, cores)
        return cls(False, os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"), cores)


def finetune_recipe(
    options: FinetuneOptions,
    facts: VideoFacts,
    hardware: Hardware,
    *,
    num_train: int,
    num_classes: int = 2,
    scoring: ScoringKind = "softmax",
    initial_config: Callable[[str], ModelConfig] | None = None,
) -> Recipe:
    """The recipe for such videos on such a machine. Pure, but for the header of the initial weights."""
    config = initial_model(options, hardware, initial_config)
    if not options.train:
        chosen = choose_by_rule(config, bool(options.init_from), hardware.has_gpu, num_train, num_classes)
        options = replace(options, train=chosen.train)
    if options.init_from and options.train != "all":
        config = replace(config, drop_path=0.0)
    prefix_of_frame = _prefix_of_frame(config)
    config = _place_image_model(config, options)
    defaults = _defaults(options, hardware, config)
    batch, epochs = _batch_and_epochs(options, defaults.epochs, num_train)
    config = _fit_clip(config, options, facts, hardware)
    if options.attention is not None:
        SCHEMES[options.attention]  # unknown names raise
        config = replace(config, attention=options.attention)
    if SCHEMES[config.attention].prefix_per_frame:
        config = replace(config, num_prefix_tokens=prefix_of_frame * config.grid[0])
    if options.readout is not None:
        config = replace(config, readout=options.readout)
    if options.train.partition(":")[0] == "adapter":
        config = replace(config, adapter=_parse_adapter(options.train, config))
    config = replace(config, input=replace(config.input, protocol="uniform"))  # a new model, with any initial weights
    folder = Path(options.output or f"runs/{options.name}")
    recipe = make_recipe(
        {
            "name": options.name,
            "model": {
                "variant": BASIS,
                "changes": config_changes(config),
                "init_from": options.init_from,
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
                "lr": defaults.lr if options.lr is None else options.lr,
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
            "keep_epoch": options.keep_epoch,
            "seed": options.seed,
            "output": options.output,
        }
    )
    fits = _clips_that_fit(config, hardware)
    return recipe if fits >= batch else replace(recipe, engine=replace(recipe.engine, max_clips=fits))


def _place_image_model(config: ModelConfig, options: FinetuneOptions) -> ModelConfig:
    """An image model (space-only attention, prefix tokens of one frame) becomes a video model of trajectory attention,
    or of the scheme asked for. With adapters it stays what it is, run on every frame: they are what relates frames."""
    if config.attention != "space" or config.num_prefix_tokens % config.grid[0] == 0:
        return config
    attention = options.attention or ("space" if options.train.startswith("adapter") else "trajectory")
    return replace(config, attention=attention, tubelet=1 if attention == "space" else config.tubelet)


def _prefix_of_frame(config: ModelConfig) -> int:
    """Prefix tokens of one frame, class token and registers, where every frame has its own."""
    whole, rest = divmod(config.num_prefix_tokens, config.grid[0])
    return config.num_prefix_tokens if rest else whole


def _clips_that_fit(config: ModelConfig, hardware: Hardware) -> int:
    """Largest batch of a device in 60 % of its memory: weights with AdamW's moments, then clips.

    A block keeps about 30 values per channel of each token, and with trajectories one more per frame; `costs.measure`
    counts 33.8 for 4 frames, but takes seconds.
    """
    f, rows, columns = config.grid
    clip = 4 * config.depth * f * rows * columns * config.dim * (30 + f)
    weights = 4 * 4 * 12 * config.depth * config.dim**2
    return max(1, int((0.6 * hardware.memory - weights) // clip))


def initial_model(
    options: FinetuneOptions, hardware: Hardware, initial_config: Callable[[str], ModelConfig] | None = None
) -> ModelConfig:
    """The model before its clip is fitted to the videos: that of the initial weights, or one for the machine."""
    if options.init_from:
        return (initial_config or _initial_model_config)(options.init_from)
    if hardware.has_gpu:
        return replace(VARIANTS["motionformer-small"], readout="motion")
    # with so few videos a head on the class token alone stays at chance for epochs
    return replace(VARIANTS[BASIS], drop_path=0.1, readout="motion")


def config_changes(config: ModelConfig) -> dict[str, Any]:
    """The changes to `BASIS` that describe `config` in a recipe."""
    changes = _difference(VARIANTS[BASIS].to_dict(), config.to_dict())
    return {key: value for key, value in changes.items() if key not in FROM_DATA}


def _initial_model_config(init_from: str) -> ModelConfig:
    """The model of some weights: a video model as it is, an image model as one of space-only attention."""
    checkpoint = read_checkpoint(find_weights(init_from))
    if is_video_model(checkpoint):
        config = read_config(init_from)
        if config.readout == "frames":  # of a Synchformer: its class token
            config = replace(config, readout="class", input=replace(config.input, hop=None))
        return replace(config, input=RELEASED[init_from].input) if init_from in RELEASED else config
    # without a value projection the image model's features pass through the new temporal attention unchanged
    model, _ = from_image_weights(checkpoint.path, num_classes=1, frames=8, size=224, project_values=False)
    return replace(model.config, attention="space", drop_path=0.0, readout="motion")


@dataclass(frozen=True)
class _Defaults:
    train: str
    epochs: int
    lr: float
    warmup: float
    new_rate: float = 1.0


def _defaults(options: FinetuneOptions, hardware: Hardware, config: ModelConfig) -> _Defaults:
    """Learning rates for a batch of 32. A few layers of good weights are trained briefly and fast; a small model is
    trained whole, as long and as fast as from random weights."""
    train = "adapter" if options.train.startswith("adapter") else options.train
    if not options.init_from or (_is_small(config) and train == "all"):
        made = _Defaults(train, 100 if hardware.has_gpu else 40, 1e-3, 3.0)
    elif train == "head":
        made = _Defaults(train, 20, 1e-3, 1.0)
    elif train.startswith(("lora", "adapter")):
        made = _Defaults(train, 8, 1e-3, 1.0)
    elif train == "all":
        made = _Defaults(train, 20, 1e-4, 1.0)
    else:
        made = _Defaults(train, 8, 3e-4, 1.0, new_rate=4.0)  # else a new head is slow
    return made


def _parse_adapter(train: str, config: ModelConfig) -> AdapterConfig:
    """`adapter`, `adapter:SCHEME` or `adapter:SCHEME:EVERY`; without a scheme those that the weights have, if any."""
    _, _, words = train.partition(":")
    scheme, _, every = words.partition(":")
    if every and not (every.isascii() and every.isdigit() and 1 <= int(every) <= config.depth):
        raise RecipeError(f"--train {train}: adapters are behind every N-th block, N from 1 to {config.depth}.")
    if not scheme and config.adapter.attention:
        return config.adapter
    scheme = scheme or "trajectory"
    SCHEMES[scheme]  # unknown names raise
    return AdapterConfig(scheme, every=int(every) if every else min(AdapterConfig.every, config.depth))


def _batch_and_epochs(options: FinetuneOptions, epochs: int, num_train: int) -> tuple[int, int]:
    """As given, or `epochs` with 32 clips per step; for few videos more epochs, with fewer clips per step."""
    batch = min(options.batch_size or 32, num_train)
    if options.epochs is not None:
        return batch, options.epochs
    if options.batch_size is None and num_train // batch * epochs < MIN_STEPS:
        batch = num_train // max(1, round(num_train / _SMALL_BATCH))  # near it, with few clips left over
    return batch, max(epochs, ceil(MIN_STEPS / (num_train // batch)))


def _is_small(config: ModelConfig) -> bool:
    """Of the size of `motion-tiny`, which knows motion and little else."""
    return config.dim < 256


def _fit_clip(config: ModelConfig, options: FinetuneOptions, facts: VideoFacts, hardware: Hardware) -> ModelConfig:
    """Frames and size of a clip: no more than the videos have, and on a CPU fewer and smaller."""
    most = config.input.frames if hardware.has_gpu or not options.init_from else min(8, config.input.frames)
    frames = options.frames or _multiple(min(most, facts.frames), config.tubelet)
    if hardware.has_gpu or not options.init_from:
        largest = config.input.height
    else:
        largest = 64 if _is_small(config) else min(7 * config.patch, config.input.height)
    size = options.size or _multiple(min(largest, facts.short_side), config.patch)
    whole = facts.seconds <= _SHORT_VIDEO
    spec = replace(
        config.input,
        frames=frames,
        height=size,
        width=size,
        sampling="segments" if whole else "stride",
        stride=4 if config.input.fps is None else max(1, round(4 * config.input.fps / 30)),
        views=1 if whole else 4,
        crops=1,
    )
    return replace(config, input=spec, **config.resized_positions())


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
