"""A recipe: everything that decides a training run. Nothing is configured twice, nothing is implied.

    recipe = load_recipe("motion/easy", ["optimiser.lr=1e-3", "seed=1"])

It is YAML over these dataclasses, a file of its own or a row of a family (`families.py`); an unknown or misspelt key is
an error that names it. What follows from the machine (clips a device, accumulation, steps, the scaled learning rate) is
not here: `plan.py` derives it. Knows nothing of Lightning.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from motionformer.errors import RecipeError, rename_deprecated
from motionformer.models.config import RENAMED
from motionformer.training.families import find_row, read_mapping
from motionformer.video.transforms.randaugment import operation_names


@dataclass(frozen=True)
class ModelPart:
    """A named variant, changes to any field of `ModelConfig` (`input` too), and the weights it starts from.

    `start` is empty for random weights, else what `load_model` takes, or a file of image weights. `train` says which
    part learns: `all`, `head`, or `last:N` (the last N blocks, final norm and head).
    """

    variant: str = "motionformer-base"
    changes: dict[str, Any] = field(default_factory=dict)
    start: str = ""
    train: str = "all"


@dataclass(frozen=True)
class DataPart:
    """Where the clips are. A path is what `open_dataset` takes; `motion:LEVEL` is the built-in benchmark."""

    train: str = "motion:easy"
    val: str = "motion:easy"
    kind: str = "auto"
    root: str = ""
    train_split: str = "train"
    val_split: str = "val"
    train_clips: int = 4096  # of the motion benchmark, which has as many as one likes
    val_clips: int = 512
    decoder: str = "pyav"
    workers: int = 2
    order: str = "shuffled"  # or turns: the classes of every batch in the proportions of the whole
    max_failed_share: float = 0.01


@dataclass(frozen=True)
class AugmentationPart:
    """What happens to training clips only. Empty lists and zeros mean: not at all."""

    jitter: list[int] = field(default_factory=list)  # short side from, to; empty: the published 256–320 in proportion
    inverse_jitter: bool = False
    crop_area: list[float] = field(default_factory=list)  # random resized crop of this share, and no jitter
    flip: float = 0.0
    flip_by_name: bool = True  # swap left and right classes, or do not flip where that cannot be done
    colour: float = 0.0  # brightness, contrast, saturation
    colour_probability: float = 1.0
    colour_kind: str = "standard"  # or released
    rand_augment: int = 0  # transforms a clip
    rand_augment_magnitude: float = 9.0
    rand_augment_probability: float = 1.0
    rand_augment_operations: list[str] = field(default_factory=lambda: ["standard"])  # or released, or names
    rand_augment_channels: str = "RGB"  # or BGR
    erasing: float = 0.0
    mixup: float = 0.0  # the α of Beta(α, α)
    cutmix: float = 0.0
    repeats: int = 1  # repeated augmentation: how often a drawn video is in the batch


@dataclass(frozen=True)
class OptimiserPart:
    """AdamW. `lr` is stated for a global batch of `lr_batch` clips and scales in proportion to the batch."""

    lr: float = 1e-4
    lr_batch: int = 256
    weight_decay: float = 0.05
    betas: list[float] = field(default_factory=lambda: [0.9, 0.999])
    decay_everything: bool = False  # as the released models were trained; else biases, norms, tokens and tables do not
    layer_decay: float = 1.0  # each block below the head learns slower by this factor
    new_rate: float = 1.0  # weights that the start did not bring learn so many times as fast
    clip_norm: float = 0.0  # 0: no clipping


@dataclass(frozen=True)
class SchedulePart:
    """`step` divides by `divisor` at `milestones`; `cosine` falls to `final` of the rate. Both can warm up."""

    kind: str = "step"
    milestones: list[float] = field(default_factory=lambda: [20.0, 30.0])  # epochs
    divisor: float = 10.0
    warmup: float = 0.0  # epochs
    final: float = 0.0


@dataclass(frozen=True)
class EnginePart:
    """How it runs, not what comes out. `max_clips` is what one device holds at once; 0 measures nothing and assumes
    the whole share of the global batch fits."""

    max_clips: int = 0
    accelerator: str = "auto"  # cpu, gpu …
    devices: str = "auto"  # how many, or which (0,1)
    nodes: int = 1
    strategy: str = "auto"  # auto | ddp | fsdp
    precision: str = "32-true"  # bf16-mixed, 16-mixed …
    compile: bool = False
    checkpoint_steps: int = 0  # optimiser steps between checkpoints within an epoch; 0: at the ends of epochs only
    keep: int = 2  # how many of the last checkpoints stay on disk
    validate_epochs: int = 1
    log_steps: int = 10
    wandb: str = ""  # the project's name; empty: TensorBoard and CSV only


@dataclass(frozen=True)
class TestPart:
    """The final test: views and crops a video; 0 takes what the model was made for."""

    __test__ = False  # not a test of pytest's
    views: int = 0
    crops: int = 0
    split: str = "val"


@dataclass(frozen=True)
class Recipe:
    """One training run."""

    name: str
    model: ModelPart = field(default_factory=ModelPart)
    data: DataPart = field(default_factory=DataPart)
    augmentation: AugmentationPart = field(default_factory=AugmentationPart)
    optimiser: OptimiserPart = field(default_factory=OptimiserPart)
    schedule: SchedulePart = field(default_factory=SchedulePart)
    engine: EnginePart = field(default_factory=EnginePart)
    test: TestPart = field(default_factory=TestPart)
    global_batch: int = 256  # clips a step, all devices together
    epochs: int = 35
    label_smoothing: float = 0.2
    ema: float = 0.0  # decay of the averaged weights; 0: none
    keep_epoch: str = "last"  # whose weights become the model: of the last epoch, or of the best one in validation
    seed: int = 0
    output: str = ""  # empty: runs/NAME

    def __post_init__(self) -> None:
        _check(self)

    @property
    def folder(self) -> Path:
        return Path(self.output or f"runs/{self.name}")

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    def to_yaml(self) -> str:
        """The recipe in full, as a file has it."""
        return OmegaConf.to_yaml(OmegaConf.create(self.to_dict()))


def load_recipe(recipe: str | Path, overrides: Sequence[str] = ()) -> Recipe:
    """A recipe, with nothing left to defaults.

    Args:
        recipe: your YAML file, or the name of one that comes with the package: `k400/base`.
        overrides: `key=value` changes to it; `key=` makes a text empty.

    Raises:
        RecipeError: there is no such recipe, or it has an unknown key or a value that no run can mean.

    Example:
        `load_recipe("motion/easy", ["optimiser.lr=1e-3", "seed=1"])`
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
    """A recipe from plain values, as `Recipe.to_dict` gives them."""
    return _merge(OmegaConf.create(values), overrides, None)


def write_recipe(recipe: Recipe, file: Path) -> None:
    """The recipe in full, with nothing left to defaults."""
    file.write_text(recipe.to_yaml(), encoding="utf-8")


def _merge(values: Any, overrides: Sequence[str], where: str | Path | None) -> Recipe:
    wrong = [override for override in overrides if "=" not in override]
    if wrong:
        raise RecipeError(f"{wrong[0]!r} is not of the form key=value.", where)
    changes = [f"{override}''" if override.endswith("=") else override for override in overrides]  # key= is empty
    try:
        given = (_rename_keys(one) for one in (values, OmegaConf.from_dotlist(changes)))
        merged = OmegaConf.merge(OmegaConf.structured(Recipe), *given)
        made = OmegaConf.to_object(merged)
    except OmegaConfBaseException as error:
        advice = "; `motionformer recipes --show motion/easy` shows every key"
        raise RecipeError(f"{_first_lines(error)}{advice}.", where) from error
    except ValueError as error:  # an old key beside its new name
        raise RecipeError(str(error), where) from error
    assert isinstance(made, Recipe)
    return made


def _rename_keys(values: Any) -> Any:
    """`values` with the keys of 0.1 under their present names, each with a warning."""
    changes = OmegaConf.select(values, "model.changes")
    if OmegaConf.is_dict(changes) and any(old in changes for old in RENAMED):
        values = values.copy()
        values.model.changes = rename_deprecated(changes, RENAMED, "model.changes.")
    return values


def _first_lines(error: OmegaConfBaseException) -> str:
    """The sentence and the full key; OmegaConf adds the types, which are ours and no help."""
    lines = str(error).strip().splitlines()
    key = getattr(error, "full_key", None)
    return lines[0] + (f" (key {key})" if key and str(key) not in lines[0] else "")


def _check(recipe: Recipe) -> None:
    """Refuse what no run can mean, and say which key."""
    engine, schedule, optimiser = recipe.engine, recipe.schedule, recipe.optimiser
    part, _, blocks = recipe.model.train.partition(":")
    claims = {
        "global_batch is at least 1": recipe.global_batch >= 1,
        "epochs is at least 1": recipe.epochs >= 1,
        "label_smoothing lies in [0, 1)": 0 <= recipe.label_smoothing < 1,
        "ema lies in [0, 1)": 0 <= recipe.ema < 1,
        "keep_epoch is last or best": recipe.keep_epoch in ("last", "best"),
        "seed is not negative": recipe.seed >= 0,
        "model.train is all, head or last:N": part in ("all", "head") or (part == "last" and blocks.isdigit()),
        "schedule.kind is step or cosine": schedule.kind in ("step", "cosine"),
        "schedule.warmup is shorter than the run": 0 <= schedule.warmup < recipe.epochs,
        "schedule.milestones rise": schedule.milestones == sorted(schedule.milestones),
        "schedule.divisor is positive": schedule.divisor > 0,
        "schedule.final lies in [0, 1]": 0 <= schedule.final <= 1,
        "optimiser.lr is positive": optimiser.lr > 0,
        "optimiser.lr_batch is at least 1": optimiser.lr_batch >= 1,
        "optimiser.betas are two numbers in [0, 1)": len(optimiser.betas) == 2
        and all(0 <= beta < 1 for beta in optimiser.betas),
        "optimiser.weight_decay is not negative": optimiser.weight_decay >= 0,
        "optimiser.clip_norm is not negative": optimiser.clip_norm >= 0,
        "optimiser.layer_decay lies in (0, 1]": 0 < optimiser.layer_decay <= 1,
        "optimiser.new_rate is positive": optimiser.new_rate > 0,
        "engine.strategy is auto, ddp or fsdp": engine.strategy in ("auto", "ddp", "fsdp"),
        "engine.strategy fsdp goes without ema": not (engine.strategy == "fsdp" and recipe.ema),
        "engine.keep is at least 1": engine.keep >= 1,
        "engine.nodes is at least 1": engine.nodes >= 1,
        "engine.max_clips is not negative": engine.max_clips >= 0,
        "engine.checkpoint_steps is not negative": engine.checkpoint_steps >= 0,
        "engine.log_steps is at least 1": engine.log_steps >= 1,
        "data.workers is not negative": recipe.data.workers >= 0,
        "data.train_clips and val_clips are at least 1": min(recipe.data.train_clips, recipe.data.val_clips) >= 1,
        "engine.validate_epochs is at least 1": engine.validate_epochs >= 1,
        **_augmentation_claims(recipe.augmentation),
        "augmentation.repeats divides global_batch": recipe.augmentation.repeats >= 1
        and recipe.global_batch % recipe.augmentation.repeats == 0,
        "data.order is shuffled or turns": recipe.data.order in ("shuffled", "turns"),
        "data.max_failed_share lies in [0, 1]": 0 <= recipe.data.max_failed_share <= 1,
    }
    broken = [claim for claim, holds in claims.items() if not holds]
    if broken:
        raise RecipeError(f"recipe {recipe.name!r}: {'; '.join(broken)}.")


def _augmentation_claims(part: AugmentationPart) -> dict[str, bool]:
    return {
        "augmentation.jitter is empty or two positive numbers that rise": not part.jitter
        or (len(part.jitter) == 2 and 0 < part.jitter[0] <= part.jitter[1]),
        "augmentation.crop_area is empty or two shares in (0, 1] that rise": not part.crop_area
        or (len(part.crop_area) == 2 and 0 < part.crop_area[0] <= part.crop_area[1] <= 1),
        "augmentation.flip lies in [0, 1]": 0 <= part.flip <= 1,
        "augmentation.colour lies in [0, 1]": 0 <= part.colour <= 1,
        "augmentation.colour_probability lies in [0, 1]": 0 <= part.colour_probability <= 1,
        "augmentation.colour_kind is standard or released": part.colour_kind in ("standard", "released"),
        "augmentation.rand_augment is not negative": part.rand_augment >= 0,
        "augmentation.rand_augment_magnitude lies in [0, 30]": 0 <= part.rand_augment_magnitude <= 30,
        "augmentation.rand_augment_probability lies in [0, 1]": 0 <= part.rand_augment_probability <= 1,
        "augmentation.rand_augment_channels is RGB or BGR": part.rand_augment_channels in ("RGB", "BGR"),
        **_operation_claims(part.rand_augment_operations),
        "augmentation.erasing lies in [0, 1]": 0 <= part.erasing <= 1,
        "augmentation.mixup and cutmix are not negative": min(part.mixup, part.cutmix) >= 0,
    }


def _operation_claims(names: list[str]) -> dict[str, bool]:
    try:
        operation_names(names)
    except ValueError as error:
        return {f"augmentation.rand_augment_operations: {str(error).rstrip('.')}": False}
    return {}
