"""The recipe's `model` part as a model: variant and changes, initial weights, trainable parameters.

The recipe alone decides the architecture; initial weights only fill it, and weights that do not fit are an error.
"""

import logging
from collections.abc import Iterable, Mapping
from typing import Any

import torch

from motionformer.data.record import ClassNames
from motionformer.errors import RecipeError
from motionformer.logging import show_count
from motionformer.models.adapter import AttentionAdapter
from motionformer.models.config import ModelConfig, ScoringKind
from motionformer.models.motionformer import Motionformer
from motionformer.models.variants import model_config
from motionformer.training.recipe import Recipe
from motionformer.weights.initial import load_initial_weights
from motionformer.weights.lora import LoraSpec, attach_lora

log = logging.getLogger("motionformer")
FROM_DATA = ("num_classes", "labels", "scoring", "source")
"""Fields of a `ModelConfig` that follow from the data and the initial weights; a recipe cannot set them."""


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
    from_data = {"num_classes": num_classes, "labels": names, "scoring": scoring, "source": part.init_from or None}
    try:
        return ModelConfig.from_dict({**merged, **from_data})
    except ValueError as error:
        raise RecipeError(f"recipe {recipe.name!r}: model.changes: {error}") from error


def build_model(recipe: Recipe, config: ModelConfig) -> tuple[Motionformer, frozenset[str]]:
    """The model of `config` with the recipe's initial weights, frozen but for `model.train`, and the names of its newly
    initialised parameters (none where all weights are random).

    Random weights depend on `recipe.seed` alone; the global random state is left as it was.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(recipe.seed)
        try:
            model = Motionformer(config)
        except (TypeError, ValueError, RuntimeError) as error:
            raise RecipeError(f"recipe {recipe.name!r}: model.changes do not make a model: {error}") from error
        new: frozenset[str] = frozenset()
        if recipe.model.init_from:
            report = load_initial_weights(model, recipe.model.init_from)
            log.debug("%s", report)
            new = frozenset(report.reset)
        _freeze(model, recipe.model.train, new)
    return model.train(), new


def _freeze(model: Motionformer, train: str, new: Iterable[str] = ()) -> None:
    """Leave only the parameters of `train` trainable: `all`, `head`, `last:N` blocks with the final norm and head,
    `lora:RANK` adapters, which are added here, or `adapter`, those of the model, with the head.

    Newly initialised parameters are always trainable. Otherwise a video model made from an image model would keep a
    temporal position embedding of zeros, and could not tell the order of its frames. Attention adapters tell frames
    apart by themselves: with them it stays zero, and no gradient has to reach the first tokens.
    """
    what, _, count = train.partition(":")
    if what == "all":
        return
    blocks = list(model.blocks)
    last = int(count) if what == "last" else 0
    if last > len(blocks):
        raise RecipeError(f"model.train={train}: the model has {show_count(len(blocks), 'block')}.")
    model.requires_grad_(False)
    if lora := LoraSpec.parse(train):
        attach_lora(model, lora, new)
    trainable = [model.head] if lora else [model.readout, model.head]
    if what == "last":
        trainable += [*blocks[len(blocks) - last :], model.norm]
    if what == "adapter":
        adapters = [module for module in model.modules() if isinstance(module, AttentionAdapter)]
        if not adapters:
            raise RecipeError("model.train=adapter: the model has no adapters; set model.changes.adapter.attention.")
        trainable += adapters
        new = set(new) - {"positions.time"}
    for module in trainable:
        module.requires_grad_(True)
    named = dict(model.named_parameters())
    for name in new:
        if name in named:
            named[name].requires_grad_(True)


def _merge_deep(values: dict[str, Any], changes: Mapping[str, Any], where: str) -> dict[str, Any]:
    """`values` with `changes` applied, group by group. Unknown keys stay for `from_dict` to name."""
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
