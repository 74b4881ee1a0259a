"""A recipe: every setting of a training run, as YAML over these dataclasses; an unknown key is an error.

    recipe = load_recipe("motion/easy", ["optimiser.lr=1e-3", "seed=1"])

A recipe is a file of its own or a row of a family (`families.py`). What follows from the machine (clips per device,
accumulation, steps, the scaled learning rate) is derived in `plan.py`. Does not import Lightning.
"""

import logging
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from operator import attrgetter
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from motionformer.deprecation import rename_deprecated
from motionformer.errors import RecipeError
from motionformer.models.config import RENAMED
from motionformer.training.families import find_row, read_mapping
from motionformer.video.transforms.randaugment import operation_names
from motionformer.weights.lora import LoraSpec

log = logging.getLogger("motionformer")


@dataclass(frozen=True)
class ModelPart:
    """A named variant, changes to any field of `ModelConfig` (`input` too), initial weights, trainable parameters.

    `init_from` is empty for random weights, else what `load_model` takes, or a file of image weights. `train` selects
    the trainable parameters: `all`, `head`, `last:N` (the last N blocks, final norm and head), `lora:RANK` (adapters of
    this rank on the layers `qkv` and `proj` of every block, and the head; `lora:RANK:fc1,fc2` names other layers), or
    `adapter` (the attention adapters of `changes.adapter`, and the head).
    """

    variant: str = "motionformer-base"
    changes: dict[str, Any] = field(default_factory=dict)
    init_from: str = ""
    train: str = "all"


@dataclass(frozen=True)
class DataPart:
    """Data sources: what `open_source` takes; `motion:LEVEL` is the built-in benchmark."""

    train: str = "motion:easy"
    val: str = "motion:easy"
    kind: str = "auto"
    root: str = ""
    train_split: str = "train"
    val_split: str = "val"
    train_clips: int = 4096  # of the motion benchmark, which generates any number
    val_clips: int = 512
    decoder: str = "pyav"
    workers: int = 2
    order: str = "shuffled"  # or stratified: every batch has the class proportions of the whole
    max_failed_share: float = 0.01


@dataclass(frozen=True)
class AugmentationPart:
    """Augmentation of training clips. Empty lists and zeros switch a step off."""

    jitter: list[int] = field(default_factory=list)  # short side from, to; empty: the published 256–320 in proportion
    inverse_jitter: bool = False
    crop_area: list[float] = field(default_factory=list)  # random resized crop of this share, and no jitter
    flip: float = 0.0
    flip_by_name: bool = True  # swap left and right classes, or do not flip where that cannot be done
    colour: float = 0.0  # brightness, contrast, saturation
    colour_probability: float = 1.0
    colour_kind: str = "standard"  # or released
    rand_augment: int = 0  # transforms per clip
    rand_augment_magnitude: float = 9.0
    rand_augment_probability: float = 1.0
    rand_augment_operations: list[str] = field(default_factory=lambda: ["standard"])  # or released, or names
    rand_augment_channels: str = "RGB"  # or BGR
    erasing: float = 0.0
    mixup: float = 0.0  # the α of Beta(α, α)
    cutmix: float = 0.0
    repeats: int = 1  # repeated augmentation: copies of a sampled video in the batch


@dataclass(frozen=True)
class OptimiserPart:
    """AdamW. `lr` is stated for a global batch of `lr_batch` clips and scales in proportion to the batch."""

    lr: float = 1e-4
    lr_batch: int = 256
    weight_decay: float = 0.05
    betas: list[float] = field(default_factory=lambda: [0.9, 0.999])
    decay_everything: bool = (
        False  # as the released models were trained; else no decay of biases, norms, tokens, position embeddings
    )
    layer_decay: float = 1.0  # factor on the learning rate per block below the head
    new_rate: float = 1.0  # factor on the learning rate of newly initialised parameters
    clip_norm: float = 0.0  # 0: no clipping


@dataclass(frozen=True)
class SchedulePart:
    """`step` divides by `divisor` at `milestones`; `cosine` falls to `final` of the learning rate."""

    kind: str = "step"
    milestones: list[float] = field(default_factory=lambda: [20.0, 30.0])  # epochs
    divisor: float = 10.0
    warmup: float = 0.0  # epochs
    final: float = 0.0


@dataclass(frozen=True)
class EnginePart:
    """Devices, precision, checkpoints, logging. `max_clips` is the largest batch of one device; 0: no limit."""

    max_clips: int = 0
    accelerator: str = "auto"  # cpu, gpu …
    devices: str = "auto"  # how many, or which (0,1)
    nodes: int = 1
    strategy: str = "auto"  # auto | ddp | fsdp
    precision: str = "32-true"  # bf16-mixed, 16-mixed …
    compile: bool = False
    checkpoint_steps: int = 0  # optimiser steps between checkpoints within an epoch; 0: at the end of each epoch only
    keep: int = 2  # number of latest checkpoints on disk
    validate_epochs: int = 1
    log_steps: int = 10
    wandb: str = ""  # the project's name; empty: TensorBoard and CSV only


@dataclass(frozen=True)
class _TestPart:
    """The final test: views and crops per video; 0 means those of the model."""

    # not `TestPart`, which pytest would collect
    views: int = 0
    crops: int = 0
    split: str = "val"


@dataclass(frozen=True)
class Recipe:
    """Every setting of one training run; `load_recipe` reads one, `train` runs it."""

    name: str
    model: ModelPart = field(default_factory=ModelPart)
    data: DataPart = field(default_factory=DataPart)
    augmentation: AugmentationPart = field(default_factory=AugmentationPart)
    optimiser: OptimiserPart = field(default_factory=OptimiserPart)
    schedule: SchedulePart = field(default_factory=SchedulePart)
    engine: EnginePart = field(default_factory=EnginePart)
    test: _TestPart = field(default_factory=_TestPart)
    global_batch: int = 256  # clips per optimiser step, all devices together
    epochs: int = 35
    label_smoothing: float = 0.2
    ema: float = 0.0  # decay of the averaged weights; 0: none
    keep_epoch: str = "last"  # the epoch of the saved model: the last, or the best in validation
    seed: int = 0
    output: str = ""  # empty: runs/NAME

    def __post_init__(self) -> None:
        _check(self)

    @property
    def folder(self) -> Path:
        return Path(self.output or f"runs/{self.name}")

    def to_dict(self) -> dict[str, Any]:
        """Plain values, as `make_recipe` takes them."""
        return asdict(self)

    def to_yaml(self) -> str:
        """The recipe in full, as a recipe file."""
        return OmegaConf.to_yaml(OmegaConf.create(self.to_dict()))

    def with_options(
        self,
        *,
        output: str | Path | None = None,
        batch_size: int | None = None,
        num_workers: int | None = None,
        device: str | None = None,
        precision: str | None = None,
    ) -> "Recipe":
        """The recipe with some keys changed, under the names that Python functions of the package share.

        Args:
            output: run folder (`output`).
            batch_size: clips per optimiser step, all devices together (`global_batch`).
            num_workers: loader processes per device (`data.workers`).
            device: `auto`, `cpu`, `cuda`, `cuda:1`, `mps` (`engine.accelerator`, `engine.devices`).
            precision: `32`, `bf16`, `16`, or what Lightning takes (`engine.precision`).
        """
        data, engine = self.data, self.engine
        if num_workers is not None:
            data = replace(data, workers=num_workers)
        if device is not None:
            kind, _, index = str(device).partition(":")
            accelerator = {"cuda": "gpu"}.get(kind, kind)
            engine = replace(engine, accelerator=accelerator, devices=f"{index}," if index else "auto")
        if precision is not None:
            engine = replace(engine, precision=_PRECISIONS.get(str(precision), str(precision)))
        return replace(
            self,
            data=data,
            engine=engine,
            output=self.output if output is None else str(output),
            global_batch=self.global_batch if batch_size is None else batch_size,
        )


_PRECISIONS = {"32": "32-true", "bf16": "bf16-mixed", "16": "16-mixed"}
_RENAMED_KEYS = {"model.start": "model.init_from"}
_RENAMED_VALUES = {"data.order": {"turns": "stratified"}}


def load_recipe(recipe: str | Path, overrides: Sequence[str] = ()) -> Recipe:
    """Read a recipe and fill in every default.

    Args:
        recipe: your YAML file, or the name of one that comes with the package: `k400/base`.
        overrides: `key=value` changes; `key=` sets an empty text.

    Returns:
        The checked recipe.

    Raises:
        RecipeError: there is no such recipe, or it has an unknown key or an invalid value.

    Example:
        ```python
        recipe = load_recipe("motion/easy", ["optimiser.lr=1e-3", "seed=1"])
        ```
    """
    file = Path(recipe).expanduser()
    if not file.is_file():
        row = find_row(file)
        return _merge(OmegaConf.create(row.values), overrides, row.name)
    values = read_mapping(file)
    if "rows" in values:
        raise RecipeError("is a family of recipes, not one: `motionformer recipes` lists the names of its rows.", file)
    return _merge(values, overrides, file)


def make_recipe(values: dict[str, Any], overrides: Sequence[str] = ()) -> Recipe:
    """Build a recipe from plain values, as `Recipe.to_dict` returns them.

    Args:
        values: nested dictionary; keys that are left out have their defaults.
        overrides: `key=value` changes.

    Returns:
        The checked recipe.

    Raises:
        RecipeError: an unknown key or an invalid value.

    Example:
        ```python
        recipe = make_recipe({"name": "mine", "epochs": 2, "model": {"variant": "motionformer-tiny"}})
        ```
    """
    return _merge(OmegaConf.create(values), overrides, None)


def _merge(values: Any, overrides: Sequence[str], where: str | Path | None) -> Recipe:
    wrong = [override for override in overrides if "=" not in override]
    if wrong:
        raise RecipeError(f"{wrong[0]!r} is not of the form key=value.", where)
    changes = OmegaConf.from_dotlist([f"{item}''" if item.endswith("=") else item for item in overrides])
    for part in (values, changes):
        _rename_old_keys(part, where)
    try:
        made = OmegaConf.to_object(OmegaConf.merge(OmegaConf.structured(Recipe), values, changes))
    except OmegaConfBaseException as error:
        lines, key = str(error).strip().splitlines(), getattr(error, "full_key", None)  # further lines name types
        reason = lines[0] + (f" (key {key})" if key and str(key) not in lines[0] else "")
        raise RecipeError(f"{reason}; `motionformer recipes --show motion/easy` shows every key.", where) from error
    assert isinstance(made, Recipe)
    return made


def _rename_old_keys(values: Any, where: str | Path | None) -> None:
    """Keys and values of version 0.1 are read under their new names."""
    found = "" if where is None else f"{where}: "
    for old, new in _RENAMED_KEYS.items():
        group, _, key = old.rpartition(".")
        part = values.get(group)
        if isinstance(part, DictConfig) and key in part:
            log.warning("%s`%s` is deprecated; the key is now `%s`.", found, old, new)
            OmegaConf.update(values, new, part.pop(key))
    changes = OmegaConf.select(values, "model.changes")
    if OmegaConf.is_dict(changes) and any(old in changes for old in RENAMED):
        try:
            values.model.changes = rename_deprecated(changes, RENAMED, "model.changes.", where)
        except ValueError as error:  # an old key beside its new name
            raise RecipeError(str(error), where) from error
    for key, renamed in _RENAMED_VALUES.items():
        value = OmegaConf.select(values, key)
        if value in renamed:
            log.warning("%s`%s=%s` is deprecated; it is now `%s`.", found, key, value, renamed[value])
            OmegaConf.update(values, key, renamed[value])


def _check(recipe: Recipe) -> None:
    """Name every key with a value that no run can have."""
    data, engine, schedule = recipe.data, recipe.engine, recipe.schedule
    optimiser, augmentation = recipe.optimiser, recipe.augmentation
    part, _, blocks = recipe.model.train.partition(":")
    share = "in [0, 1]"
    rules: list[tuple[str, str, bool]] = [
        ("global_batch", "at least 1", recipe.global_batch >= 1),
        ("epochs", "at least 1", recipe.epochs >= 1),
        ("label_smoothing", "in [0, 1)", 0 <= recipe.label_smoothing < 1),
        ("ema", "in [0, 1)", 0 <= recipe.ema < 1),
        ("keep_epoch", "last or best", recipe.keep_epoch in ("last", "best")),
        ("seed", "at least 0", recipe.seed >= 0),
        (
            "model.train",
            "all, head, last:N, adapter, lora:RANK or lora:RANK:LAYER,LAYER with a rank of at least 1",
            recipe.model.train in ("all", "head", "adapter")
            or (part == "last" and blocks.isdigit())
            or LoraSpec.parse(recipe.model.train) is not None,
        ),
        (
            "model.init_from",
            f"given with model.train={recipe.model.train}: its frozen weights would be random ones",
            bool(recipe.model.init_from) or part not in ("lora", "adapter"),
        ),
        ("schedule.kind", "step or cosine", schedule.kind in ("step", "cosine")),
        ("schedule.warmup", "shorter than the run", 0 <= schedule.warmup < recipe.epochs),
        ("schedule.milestones", "in rising order", schedule.milestones == sorted(schedule.milestones)),
        ("schedule.divisor", "positive", schedule.divisor > 0),
        ("schedule.final", share, 0 <= schedule.final <= 1),
        ("optimiser.lr", "positive", optimiser.lr > 0),
        ("optimiser.lr_batch", "at least 1", optimiser.lr_batch >= 1),
        (
            "optimiser.betas",
            "two numbers in [0, 1)",
            len(optimiser.betas) == 2 and all(0 <= beta < 1 for beta in optimiser.betas),
        ),
        ("optimiser.weight_decay", "at least 0", optimiser.weight_decay >= 0),
        ("optimiser.clip_norm", "at least 0", optimiser.clip_norm >= 0),
        ("optimiser.layer_decay", "in (0, 1]", 0 < optimiser.layer_decay <= 1),
        ("optimiser.new_rate", "positive", optimiser.new_rate > 0),
        ("engine.strategy", "auto, ddp or fsdp", engine.strategy in ("auto", "ddp", "fsdp")),
        ("engine.strategy", "auto or ddp with ema", not (engine.strategy == "fsdp" and recipe.ema)),
        ("engine.keep", "at least 1", engine.keep >= 1),
        ("engine.nodes", "at least 1", engine.nodes >= 1),
        ("engine.max_clips", "at least 0", engine.max_clips >= 0),
        ("engine.checkpoint_steps", "at least 0", engine.checkpoint_steps >= 0),
        ("engine.log_steps", "at least 1", engine.log_steps >= 1),
        ("engine.validate_epochs", "at least 1", engine.validate_epochs >= 1),
        ("data.workers", "at least 0", data.workers >= 0),
        ("data.train_clips", "at least 1", data.train_clips >= 1),
        ("data.val_clips", "at least 1", data.val_clips >= 1),
        ("data.order", "shuffled or stratified", data.order in ("shuffled", "stratified")),
        ("data.max_failed_share", share, 0 <= data.max_failed_share <= 1),
        (
            "augmentation.repeats",
            "a divisor of global_batch",
            augmentation.repeats >= 1 and recipe.global_batch % augmentation.repeats == 0,
        ),
        *_augmentation_rules(augmentation, share),
    ]
    broken = [f"{key} ({attrgetter(key)(recipe)}) must be {rule}" for key, rule, holds in rules if not holds]
    if broken:
        raise RecipeError(f"recipe {recipe.name!r}: {'; '.join(broken)}.")


def _augmentation_rules(part: AugmentationPart, share: str) -> Iterator[tuple[str, str, bool]]:
    jitter, area = part.jitter, part.crop_area
    try:
        operations, known = "known", bool(operation_names(part.rand_augment_operations))
    except ValueError as error:
        operations, known = f"known: {str(error).rstrip('.')}", False
    for key, rule, holds in (
        (
            "jitter",
            "empty, or two positive numbers in rising order",
            not jitter or (len(jitter) == 2 and 0 < jitter[0] <= jitter[1]),
        ),
        (
            "crop_area",
            "empty, or two numbers in (0, 1] in rising order",
            not area or (len(area) == 2 and 0 < area[0] <= area[1] <= 1),
        ),
        *((key, share, 0 <= getattr(part, key) <= 1) for key in ("flip", "colour", "colour_probability", "erasing")),
        ("colour_kind", "standard or released", part.colour_kind in ("standard", "released")),
        ("rand_augment", "at least 0", part.rand_augment >= 0),
        ("rand_augment_magnitude", "in [0, 30]", 0 <= part.rand_augment_magnitude <= 30),
        ("rand_augment_probability", share, 0 <= part.rand_augment_probability <= 1),
        ("rand_augment_operations", operations, known),
        ("rand_augment_channels", "RGB or BGR", part.rand_augment_channels in ("RGB", "BGR")),
        ("mixup", "at least 0", part.mixup >= 0),
        ("cutmix", "at least 0", part.cutmix >= 0),
    ):
        yield f"augmentation.{key}", rule, holds
