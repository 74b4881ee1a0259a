"""The things that can be shown of a model and a clip. A kind is a function; `KINDS` is all of them.

Each is given the model, the clip as the model takes it, the token that was asked about (or None), and which layers and
heads; each answers with the rows to show.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from motionformer.errors import TraceError
from motionformer.models import Motionformer
from motionformer.trace.choice import Which, choose_heads, choose_layers, pick_all
from motionformer.trace.gradcam import find_label, grad_cam, label_name
from motionformer.trace.maps import SpaceTimeMap, split_row
from motionformer.trace.rollout import rollout_rows
from motionformer.trace.walk import walk


@dataclass(frozen=True)
class Question:
    """What is asked of a model and a clip."""

    clip: Float[Tensor, "1 3 t H W"]
    token: int | None
    """The patch token of the query, prefix tokens counted; None if no point was given."""
    layer: Which = "last"
    head: Which = "mean"
    label: Which | None = None


@dataclass(frozen=True)
class Shown:
    """One map, and the names of what it shows."""

    layer: str
    head: str
    map: SpaceTimeMap


@dataclass(frozen=True)
class Kind:
    """One way of looking."""

    look: Callable[[Motionformer, Question], tuple[list[Shown], str | None]]
    """The maps, and the name of the class if they are of one."""
    per_frame: bool
    """Whether each frame has a map of its own scale, so that it is drawn from its own smallest to its own largest."""
    takes_point: bool = False
    needs_point: bool = False
    takes_label: bool = False


def attention_of_token(model: Motionformer, question: Question) -> tuple[list[Shown], str | None]:
    """Where the query's patch looks."""
    assert question.token is not None
    return _attention(model, question, question.token), None


def attention_of_class(model: Motionformer, question: Question) -> tuple[list[Shown], str | None]:
    """Where the class token looks."""
    _require_class_token(model)
    return _attention(model, question, 0), None


def rollout(model: Motionformer, question: Question) -> tuple[list[Shown], str | None]:
    """What reaches the query's patch, or the class token if there is no query, through all layers up to one."""
    if question.token is None:
        _require_class_token(model)
    if question.head != "mean" or question.layer == "mean":
        raise TraceError("rollout multiplies layers of averaged heads: it has --head mean, and --layer last, all or i.")
    layers = choose_layers(question.layer, model.config.depth)
    rows = rollout_rows(model, question.clip, question.token or 0, layers.numbers)
    return [
        Shown(name, "mean", _split(model, question, row)) for name, row in zip(layers.names, rows, strict=True)
    ], None


def class_evidence(model: Motionformer, question: Question) -> tuple[list[Shown], str | None]:
    """Grad-CAM: which tokens entering a layer speak for the class."""
    if question.head != "mean":
        raise TraceError("Grad-CAM looks at tokens, which have no heads: leave --head out.")
    layers = choose_layers(question.layer, model.config.depth)
    label = find_label(model, question.clip, question.label)
    rows = torch.stack([grad_cam(model, question.clip, number, label) for number in layers.numbers])
    name = label_name(model.config, label)
    if not (rows > 0).any(dim=1).all():
        raise TraceError(f"no token of the layer speaks for the class {name}: ask for another layer or label.")
    picked = zip(layers.names, layers.pick(rows), strict=True)
    return [Shown(layer, "", _split(model, question, row, prefix=0)) for layer, row in picked], name


KINDS: dict[str, Kind] = {
    "trajectory": Kind(attention_of_token, per_frame=True, takes_point=True, needs_point=True),
    "class-token": Kind(attention_of_class, per_frame=False),
    "rollout": Kind(rollout, per_frame=False, takes_point=True),
    "gradcam": Kind(class_evidence, per_frame=False, takes_label=True),
}


def _attention(model: Motionformer, question: Question, token: int) -> list[Shown]:
    layers = choose_layers(question.layer, model.config.depth)
    heads = choose_heads(question.head, model.config.num_heads)
    rows = torch.stack([layer.row(token) for _, layer in walk(model, question.clip, layers.numbers)])
    return [Shown(layer, head, _split(model, question, row)) for layer, head, row in pick_all(rows, layers, heads)]


def _split(model: Motionformer, question: Question, row: Tensor, prefix: int | None = None) -> SpaceTimeMap:
    frames = model.tokens.grid(question.clip)[0]
    return split_row(row, frames, model.config.num_prefix_tokens if prefix is None else prefix)


def _require_class_token(model: Motionformer) -> None:
    if model.config.num_prefix_tokens == 0:
        raise TraceError("the model has no class token: ask about a point of a frame.")
