"""A recipe's `model` part becomes a model: variant and changes, starting weights, what learns.

The recipe alone decides the architecture; the starting weights only fill it, and weights that do not fit are an error.
Knows nothing of data or of how training runs.
"""

import logging
from collections.abc import Iterable, Mapping
from typing import Any

import torch

from motionformer.data.record import ClassNames
from motionformer.errors import CheckpointError, RecipeError
from motionformer.models.config import ModelConfig, ScoringKind
from motionformer.models.motionformer import Motionformer
from motionformer.models.training_data import TrainingData, VideoSet
from motionformer.models.variants import model_config
from motionformer.training.recipe import Recipe
from motionformer.weights.checkpoint import read_checkpoint
from motionformer.weights.fit import PER_CLASS, LoadReport, fit_tensors
from motionformer.weights.image import load_image_weights, read_image_weights
from motionformer.weights.load import find_weights, is_video_model, load_model_with_report, short_name

log = logging.getLogger("motionformer")
FROM_DATA = ("num_classes", "labels", "scoring", "source")
"""Fields of a `ModelConfig` that follow from the data and the start, and that a recipe cannot set."""


def build_model(
    recipe: Recipe, class_names: ClassNames, num_classes: int | dict[str, int], scoring: ScoringKind = "softmax"
) -> Motionformer:
    """The model of `recipe` for these classes, with its starting weights, frozen where the recipe says so."""
    return start_model(recipe, class_names, num_classes, scoring)[0]


def start_model(
    recipe: Recipe, class_names: ClassNames, num_classes: int | dict[str, int], scoring: ScoringKind = "softmax"
) -> tuple[Motionformer, frozenset[str]]:
    """`build_model`, and the names of the weights that the start did not bring; none without a start.

    Random weights depend on `recipe.seed` alone; the caller's random state is left as it was.
    """
    config = build_config(recipe, num_classes, class_names, scoring)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(recipe.seed)
        try:
            model = Motionformer(config)
        except (TypeError, ValueError, RuntimeError) as error:
            raise RecipeError(f"recipe {recipe.name!r}: model.changes make no model: {error}") from error
    new: frozenset[str] = frozenset()
    if recipe.model.start:
        report = load_start(model, recipe.model.start)
        log.info("%s", report)
        new = frozenset(report.reset)
    freeze(model, recipe.model.train, new)
    return model.train(), new


def build_config(
    recipe: Recipe,
    num_classes: int | dict[str, int],
    labels: ClassNames | None = None,
    scoring: ScoringKind = "softmax",
) -> ModelConfig:
    """The recipe's variant with its changes, for these classes. `labels` of several tasks are not stored."""
    part = recipe.model
    forbidden = [name for name in FROM_DATA if name in part.changes]
    if forbidden:
        raise RecipeError(f"recipe {recipe.name!r}: model.changes.{forbidden[0]} follows from the data; remove it.")
    merged = _merge_deep(model_config(part.variant).to_dict(), part.changes, "model.changes")
    names = None if labels is None or isinstance(labels, Mapping) else tuple(labels)
    try:
        from_data = {"num_classes": num_classes, "labels": names, "scoring": scoring, "source": part.start or None}
        config = ModelConfig.from_dict({**merged, **from_data})
    except ValueError as error:
        raise RecipeError(f"recipe {recipe.name!r}: model.changes: {error}") from error
    return config


def load_start(model: Motionformer, start: str) -> LoadReport:
    """Fill `model` with the weights of a video or an image model; the report says what was taken, resized and reset.

    The classifier is taken only from a model of the same classes, scored the same way.
    """
    checkpoint = read_checkpoint(find_weights(start))
    is_video = is_video_model(checkpoint)
    try:
        return _load_video_start(model, start) if is_video else _load_image_start(model, str(checkpoint.path))
    except CheckpointError as error:
        shape = f"{model.config.attention}, {model.config.dim} wide, {model.config.depth} layers"
        raise CheckpointError(
            f"{error} The recipe's model ({shape}) cannot start from {start}; change model.variant, model.changes "
            "or model.start."
        ) from error


def freeze(model: Motionformer, train: str, new: Iterable[str] = ()) -> None:
    """Let only the part named by `train` learn: `all`, `head`, or `last:N` blocks with the final norm and head.

    Weights that the start did not bring (`new`) always learn. Without that, a video model made from an image model
    would keep a table of times that is all zero, and could not tell the order of its frames.
    """
    what, _, count = train.partition(":")
    if what == "all":
        return
    blocks = list(model.blocks)
    last = int(count) if what == "last" else 0
    if last > len(blocks):
        raise RecipeError(f"model.train={train}: the model has {len(blocks)} blocks.")
    model.requires_grad_(False)
    learning = [model.head] if what == "head" else [*blocks[len(blocks) - last :], model.norm, model.head]
    for module in learning:
        module.requires_grad_(True)
    named = dict(model.named_parameters())
    for name in new:
        if name in named:
            named[name].requires_grad_(True)


def _load_video_start(model: Motionformer, start: str) -> LoadReport:
    source, report = load_model_with_report(start)
    config = source.config
    tensors = source.state_dict()
    same_labels = None in (config.labels, model.config.labels) or config.labels == model.config.labels
    same_head = config.num_classes == model.config.num_classes and config.scoring == model.config.scoring
    left_out: list[str] = [] if model.config.hidden_head else ["head.hidden."]
    left_out += [] if same_labels and same_head else PER_CLASS
    left_out += [] if config.readout == model.config.readout else ["head."]
    for name in [name for name in tensors if name.startswith(tuple(left_out))]:
        del tensors[name]
        report.dropped[name] = "the model has another head"
    _, rows, columns = config.grid
    table = (config.position_frames or config.grid[0], *(config.position_grid or (rows, columns)))
    fit_tensors(model, tensors, table, report, may_reset=("head.", ".kernel.projection"))
    model.training_data = source.training_data or TrainingData(VideoSet(), unknown=(short_name(start),))
    return report


def _load_image_start(model: Motionformer, start: str) -> LoadReport:
    weights, report = read_image_weights(start)
    load_image_weights(model, weights, report)
    return report


def _merge_deep(values: dict[str, Any], changes: Mapping[str, Any], where: str) -> dict[str, Any]:
    """`values` with `changes` put over them, group by group. Keys that are in neither stay for `from_dict` to name."""
    merged = dict(values)
    for key, change in changes.items():
        here = f"{where}.{key}"
        if isinstance(values.get(key), dict) != isinstance(change, Mapping) and key in values:
            kind = "a group of keys" if isinstance(values[key], dict) else "one value"
            raise RecipeError(f"{here} is {kind}, not {change!r}.")
        merged[key] = (
            _merge_deep(values[key], change, here) if isinstance(change, Mapping) and key in values else change
        )
    return merged
