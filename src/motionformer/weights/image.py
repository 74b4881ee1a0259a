"""Start a video model from an image transformer (method.md §5): its weights are inflated into a model of its shape."""

import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from motionformer.errors import CheckpointError
from motionformer.models.block import DividedBlock
from motionformer.models.config import InputSpec, ModelConfig
from motionformer.models.motionformer import Motionformer
from motionformer.models.variants import adapt_config
from motionformer.weights.fit import fit_tensors
from motionformer.weights.image_file import num_places, open_image_file, translate
from motionformer.weights.report import LoadReport

Inflation = Literal["central", "average"]
IMAGENET_MEAN, IMAGENET_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
NEW = (".time_attn.", ".norm_time.", "positions.time", "head.")
"""What an image model cannot have: these start as the video model initialises them. So does all that a scheme has
beside the projections `qkv` and `proj`."""
SCHEMES_OWN = re.compile(r"blocks\.\d+\.attn\.(?!qkv\.|proj\.)")


def from_image_weights(
    source: str | Path,
    *,
    num_classes: int | dict[str, int],
    frames: int = 16,
    size: int | tuple[int, int] = 224,
    tubelet: int = 2,
    patch: int | None = None,
    inflation: Inflation = "central",
    mean: tuple[float, float, float] | None = None,
    std: tuple[float, float, float] | None = None,
    **overrides: Any,
) -> tuple[Motionformer, LoadReport]:
    """A video model of the image model's width, depth and patch size, started from its weights; and what it took.

    `mean` and `std` default to ImageNet's where the file looks self-supervised, with layer scale (DINOv2) or without
    a classifier or pooler (DINO, MAE, MoCo), else to 0.5; the report says which. `num_heads` is for files that do
    not say how many heads they have (a Hugging Face `config.json` beside them does) and have not one for each 64
    channels.
    """
    checkpoint = open_image_file(source)
    weights, report = translate(checkpoint, source)
    num_heads = overrides.pop("num_heads", None) or checkpoint.cfg.get("num_attention_heads")
    config = adapt_config(
        _matching_config(weights, report, num_heads, mean, std),
        num_classes=num_classes,
        frames=frames,
        size=size,
        tubelet=tubelet,
        **{**({} if patch is None else {"patch": patch}), **overrides},
    )
    model = Motionformer(config)
    load_image_weights(model, weights, report, inflation)
    return model, report


def load_image_weights(
    model: Motionformer, weights: Mapping[str, Tensor], report: LoadReport, inflation: Inflation = "central"
) -> None:
    """Inflate image weights (timm names) into an existing model of the same width and depth.

    `central` looks at the middle frame of each tubelet and ignores the others, `average` looks at all alike; on a
    still clip both give the image model's tokens.
    """
    config = model.config
    ours: dict[str, Tensor] = {}
    for name, value in weights.items():
        if name == "patch_embed.proj.weight":
            kernel = resize_kernel(value, config.patch)
            if kernel.shape != value.shape:
                report.resized["tokens.proj.weight"] = f"patch {value.shape[-1]} to {config.patch}"
            ours["tokens.proj.weight"] = inflate(kernel, config.tubelet, inflation)
        elif name == "patch_embed.proj.bias":
            ours["tokens.proj.bias"] = value
        elif name == "cls_token":
            ours["prefix"] = _fit_prefix(value, config, report)
        elif name == "pos_embed":
            ours.update(_positions(value[0], weights, config))
        else:
            ours[name] = value
    side = math.isqrt(num_places(weights))
    frames = config.grid[0] if config.positions == "joint" else 1
    own = tuple(name for name in model.state_dict() if SCHEMES_OWN.match(name))
    fit_tensors(model, ours, (frames, side, side), report, may_reset=NEW + own)
    if isinstance(model.blocks[0], DividedBlock):
        _quiet_time_attention(model)
        for name in [name for name in report.reset if ".time_attn." in name or ".norm_time." in name]:
            del report.reset[name]  # part of its block, whatever is done to that: it has a start
        report.notes.append("time attention starts as a copy of space attention that adds nothing yet")


def inflate(kernel: Float[Tensor, "c 3 p p"], tubelet: int, how: Inflation) -> Float[Tensor, "c 3 {tubelet} p p"]:
    """A 2-D kernel `[c 3 p p]` as a 3-D one `[c 3 tubelet p p]`."""
    if how == "average":
        return kernel.unsqueeze(2).repeat(1, 1, tubelet, 1, 1) / tubelet
    if how != "central":
        raise ValueError(f"inflation is 'central' or 'average', not {how!r}.")
    inflated = kernel.new_zeros(*kernel.shape[:2], tubelet, *kernel.shape[2:])
    inflated[:, :, tubelet // 2] = kernel
    return inflated


def resize_kernel(kernel: Float[Tensor, "c 3 p p"], patch: int) -> Float[Tensor, "c 3 {patch} {patch}"]:
    """The kernel for another patch size that answers a resized patch most nearly as the old one answered the patch.

    Resizing a patch is a linear map B; the new kernel is the least-squares solution of `new · B(patch) = old · patch`
    (the pseudo-inverse resize of FlexiViT).
    """
    old = kernel.shape[-1]
    if old == patch:
        return kernel
    basis = torch.eye(old * old, dtype=torch.float64).reshape(old * old, 1, old, old)
    resized = F.interpolate(basis, size=(patch, patch), mode="bilinear", align_corners=False, antialias=patch < old)
    solved = torch.linalg.pinv(resized.flatten(1)) @ kernel.double().flatten(2).flatten(0, 1).T
    resized_kernel: Tensor = solved.T.reshape(*kernel.shape[:2], patch, patch).to(kernel.dtype)
    return resized_kernel


def _matching_config(
    weights: Mapping[str, Tensor],
    report: LoadReport,
    num_heads: int | None,
    mean: tuple[float, float, float] | None,
    std: tuple[float, float, float] | None,
) -> ModelConfig:
    kernel = weights["patch_embed.proj.weight"]
    dim = kernel.shape[0]
    if num_heads is None:
        if dim % 64:
            raise CheckpointError(f"{report.source}: how many heads has a width of {dim}? Give num_heads=….")
        num_heads = dim // 64
    elif dim % num_heads:
        raise CheckpointError(f"{report.source}: a width of {dim} is no multiple of {num_heads} heads.")
    imagenet = _is_self_supervised(report)
    if mean is None or std is None:
        report.notes.append(f"pixels are taken to be normalised by {'ImageNet statistics' if imagenet else '0.5'}")
    return ModelConfig(
        dim=dim,
        depth=1 + max(int(name.split(".")[1]) for name in weights if name.startswith("blocks.")),
        num_heads=num_heads,
        mlp_ratio=weights["blocks.0.mlp.fc1.weight"].shape[0] / dim,
        patch=kernel.shape[-1],
        qkv_bias="blocks.0.attn.qkv.bias" in weights,
        hidden_head=False,
        input=InputSpec(
            mean=mean or (IMAGENET_MEAN if imagenet else (0.5, 0.5, 0.5)),
            std=std or (IMAGENET_STD if imagenet else (0.5, 0.5, 0.5)),
        ),
        source=report.source,
    )


def _is_self_supervised(report: LoadReport) -> bool:
    if any("layer scale" in reason for reason in report.dropped.values()):
        return True
    return not any(
        re.match(r"head\.(weight|bias)$|classifier\.|pooler\.|pre_logits\.", name) for name in report.dropped
    )


def _positions(table: Float[Tensor, "m c"], weights: Mapping[str, Tensor], config: ModelConfig) -> dict[str, Tensor]:
    """The image's table as space, or repeated over frames as a joint table; the class token's entry as prefix."""
    places = num_places(weights)
    prefix, space = table[: len(table) - places], table[len(table) - places :]
    if len(prefix) < config.num_prefix_tokens:  # extra prefix tokens of the video model have no position yet
        prefix = torch.cat((prefix, prefix.new_zeros(config.num_prefix_tokens - len(prefix), prefix.shape[1])))
    found = {"positions.prefix": prefix[: config.num_prefix_tokens]} if config.num_prefix_tokens else {}
    if config.positions == "joint":
        return found | {"positions.table": space.repeat(config.grid[0], 1)}
    return found | {"positions.space": space}


def _quiet_time_attention(model: Motionformer) -> None:
    """With its output at zero every frame is seen as the image model saw it; a random one would drown the features."""
    for block in model.blocks:
        assert isinstance(block, DividedBlock)
        block.time_attn.load_state_dict(block.attn.state_dict())
        block.norm_time.load_state_dict(block.norm1.state_dict())
        for parameter in block.time_attn.get_submodule("proj").parameters():
            torch.nn.init.zeros_(parameter)


def _fit_prefix(token: Tensor, config: ModelConfig, report: LoadReport) -> Tensor:
    missing = config.num_prefix_tokens - 1
    if missing > 0:
        report.notes.append(f"{missing} more prefix tokens start at zero")
        token = torch.cat((token, token.new_zeros(1, missing, token.shape[2])), dim=1)
    return token[:, : config.num_prefix_tokens]
