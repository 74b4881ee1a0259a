"""The paper's way to count: multiply-adds of its equations done literally, one view (method.md §5).

LayerNorm counts 5 an element; softmax, GELU and additions count nothing. The published figures come from a counter
that reports an `einsum` to four digits, which shows in the last digit of one of them, so it is done here too
(docs/decisions.md, "counting as the paper does").
"""

from typing import Any

import torch
from torch import nn

from motionformer.errors import MotionformerError
from motionformer.models.block import MLP, StochasticDepth
from motionformer.models.build import READOUTS, build_block
from motionformer.models.config import ModelConfig


def paper_macs(config: ModelConfig) -> float:
    """Multiply-adds of one clip through the model as the paper writes it, every projection of every token done.

    Each layer states its own (`macs`).

    Raises:
        MotionformerError: a layer of the model's blocks, or the kernel inside it, states none.
    """
    f, rows, columns = config.grid
    s, c = rows * columns, config.dim
    n = f * s
    tokens = n + config.num_prefix_tokens
    embed = n * 3 * config.tubelet * config.patch**2 * c
    with torch.device("meta"):
        parts = list(build_block(config, 0.0).children())
    try:
        block = sum(_part(part, f, s, config) for part in parts) + _as_printed(config, n, f)
    except NotImplementedError as error:
        raise MotionformerError(f"the cost of attention {config.attention!r} is not known: {error}") from error
    return embed + config.depth * block + _norm(tokens, c) + _head(config)


def released_parameters(config: ModelConfig) -> dict[str, int]:
    """Parameters that the authors' code has for this model and ours does not, by reason."""
    c = config.dim
    extra: dict[str, int] = {}
    if config.tubelet > 1:
        extra["the 2-D tokeniser, which is never used"] = 3 * config.patch**2 * c + c
    if config.positions == "joint":
        extra["the spatial position table beside the joint one"] = (config.grid[1] * config.grid[2] + 1) * c
    if config.attention == "trajectory" and config.time == "attention":
        extra["the temporal key bias, which cancels in the softmax"] = config.depth * c
        if not config.project_values:
            extra["the temporal value projection, which is never used"] = config.depth * (c * c + c)
    return extra


def _part(part: nn.Module, f: int, s: int, config: ModelConfig) -> float:
    """Multiply-adds of one part of a block."""
    tokens = f * s + config.num_prefix_tokens
    if isinstance(part, nn.LayerNorm):
        return float(_norm(tokens, config.dim))
    if isinstance(part, MLP):
        return 2.0 * tokens * config.dim * part.fc1.out_features
    if isinstance(part, nn.Dropout | StochasticDepth):
        return 0.0
    macs: Any = getattr(part, "macs", None)
    if macs is None:
        raise NotImplementedError(f"{type(part).__name__} does not state its multiply-adds: give it a method macs.")
    return float(macs(f, s, config.num_prefix_tokens))


def _as_printed(config: ModelConfig, n: int, f: int) -> float:
    """What the counter's four digits add to the `einsum`s of trajectory attention: pooling space, then time."""
    if config.attention != "trajectory":
        return 0.0
    space = n * n * config.dim if config.attend.kind in ("exact", "norm_st") else 0
    time = n * f * config.dim if config.time == "attention" else 0
    return _einsum(space) - space + 2 * (_einsum(time) - time)


def _norm(tokens: int, c: int) -> int:
    return 5 * tokens * c


def _head(config: ModelConfig) -> int:
    classes = sum(config.num_classes.values()) if isinstance(config.num_classes, dict) else config.num_classes
    width = READOUTS[config.readout].width * config.dim
    return width * config.dim + config.dim * classes if config.hidden_head else width * classes


def _einsum(macs: int) -> float:
    """As the counter prints it: twice the multiply-adds, to four digits."""
    return float(f"{2 * macs:.3e}") / 2
