"""Initialise a video model from an image transformer (method.md §5): a model of its shape, its weights inflated.

Families of names that are read, from a file, a folder or by hub name: timm (also the original DINO, DINOv2 and MoCo
files), and Hugging Face's ViT, DINOv2 (also with registers) and DINOv3. Layer scale is folded into the projection it
follows, so the video block needs none. Registers become prefix tokens.
"""

import math
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from motionformer.attention import SCHEMES
from motionformer.errors import CheckpointError
from motionformer.models.block import DividedBlock
from motionformer.models.config import InputSpec, ModelConfig
from motionformer.models.motionformer import Motionformer
from motionformer.models.variants import adapt_config
from motionformer.weights.checkpoint import Checkpoint, read_checkpoint
from motionformer.weights.families import (
    IMAGENET_MEAN,
    IMAGENET_STD,
    VIT_LAYERS,
    activation,
    merge_qkv,
    read_processor,
)
from motionformer.weights.fit import LoadReport, fit_tensors
from motionformer.weights.load import find_weights

Inflation = Literal["central", "average"]
_NEW = (".adapter.", ".time_attn.", ".norm_time.", "positions.time", "head.", "readout.")
"""Newly initialised, as is all that a scheme has beside the projections `qkv` and `proj`."""
_SCHEMES_OWN = re.compile(r"blocks\.\d+\.attn\.(?!qkv\.|proj\.)")

_PREFIXES = (0, 1, 2, 5)
"""Entries of a position embedding before the patches': none, class, class and distillation, class and registers."""


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
    """A video model of the image model's width, depth and patch size, initialised from its weights.

    Args:
        source: a file, a folder or `user/name` on the Hugging Face hub, of a timm, DINO or Hugging Face ViT, DINOv2 or
            DINOv3.
        num_classes: a number, 0 for features only, or several heads by name.
        frames: frames per clip.
        size: height and width of a clip, or one number for both.
        tubelet: frames of a token.
        patch: height and width of a token [default: the image model's].
        inflation: `central` puts the image kernel at the middle frame of a tubelet, `average` spreads it over all.
        mean: pixel mean [default: that of a `preprocessor_config.json` beside the file. Without one, ImageNet's where
            the file looks self-supervised, with layer scale (DINOv2) or without a classifier or pooler (DINO, MAE,
            MoCo), else 0.5. The report has which].
        std: pixel standard deviation [default: likewise].
        overrides: any other field of `ModelConfig`. `num_heads` is needed where the file does not have it (a Hugging
            Face `config.json` does) and heads are not 64 channels wide.

    Returns:
        The model and what happened to each tensor.

    Raises:
        CheckpointError: not an image transformer that can be read.
        DownloadError: the hub could not be reached.

    Example:
        ```python
        model, report = from_image_weights("google/vit-base-patch16-224", num_classes=5, frames=8)
        print(report)
        ```
    """
    checkpoint = _open_image_file(source)
    weights, report = _translate(checkpoint, source)
    num_heads = overrides.pop("num_heads", None)
    if SCHEMES[overrides.get("attention", "trajectory")].prefix_per_frame:
        of_frame = 1 + (weights["register_tokens"].shape[1] if "register_tokens" in weights else 0)
        overrides.setdefault("num_prefix_tokens", frames // tubelet * of_frame)
    config = adapt_config(
        _matching_config(weights, report, checkpoint, num_heads, mean, std),
        num_classes=num_classes,
        frames=frames,
        size=size,
        tubelet=tubelet,
        **{**({} if patch is None else {"patch": patch}), **overrides},
    )
    model = Motionformer(config)
    load_image_weights(model, weights, report, inflation)
    return model, report


def read_image_weights(source: str | Path) -> tuple[dict[str, Tensor], LoadReport]:
    """Image weights under timm's names, in float32, layer scale folded in; and what was left out."""
    return _translate(_open_image_file(source), source)


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
            kernel = _resize_kernel(value, config.patch)
            if kernel.shape != value.shape:
                report.resized["tokens.proj.weight"] = f"patch {value.shape[-1]} to {config.patch}"
            ours["tokens.proj.weight"] = _inflate(kernel, config.tubelet, inflation)
        elif name == "patch_embed.proj.bias":
            ours["tokens.proj.bias"] = value
        elif name == "cls_token":
            ours["prefix"] = _fit_prefix(value, weights.get("register_tokens"), config, report)
        elif name == "register_tokens":
            continue
        elif name == "pos_embed":
            ours.update(_positions(value[0], weights, config))
        else:
            ours[name] = value
    side = math.isqrt(_num_patches(weights)) if "pos_embed" in weights else 0
    frames = config.grid[0] if config.positions == "joint" else 1
    own = tuple(name for name in model.state_dict() if _SCHEMES_OWN.match(name))
    fit_tensors(model, ours, (frames, side, side), report, may_reset=_NEW + own)
    if isinstance(model.blocks[0], DividedBlock):
        _quiet_time_attention(model)
        for name in [name for name in report.reset if ".time_attn." in name or ".norm_time." in name]:
            del report.reset[name]  # initialised by its block's space attention
        report.notes.append("time attention is a copy of space attention with a zero output projection")


def _inflate(kernel: Float[Tensor, "c 3 p p"], tubelet: int, how: Inflation) -> Float[Tensor, "c 3 {tubelet} p p"]:
    """A 2-D kernel `[c 3 p p]` as a 3-D one `[c 3 tubelet p p]`."""
    if how == "average":
        return kernel.unsqueeze(2).repeat(1, 1, tubelet, 1, 1) / tubelet
    if how != "central":
        raise ValueError(f"inflation is 'central' or 'average', not {how!r}.")
    inflated = kernel.new_zeros(*kernel.shape[:2], tubelet, *kernel.shape[2:])
    inflated[:, :, tubelet // 2] = kernel
    return inflated


def _resize_kernel(kernel: Float[Tensor, "c 3 p p"], patch: int) -> Float[Tensor, "c 3 {patch} {patch}"]:
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
    checkpoint: Checkpoint,
    num_heads: int | None,
    mean: tuple[float, float, float] | None,
    std: tuple[float, float, float] | None,
) -> ModelConfig:
    kernel = weights["patch_embed.proj.weight"]
    dim, settings = kernel.shape[0], checkpoint.cfg
    num_heads = num_heads or settings.get("num_attention_heads")
    if num_heads is None:
        if dim % 64:
            raise CheckpointError(f"{report.source}: how many heads a width of {dim} has is unknown: give num_heads=….")
        num_heads = dim // 64
    elif dim % num_heads:
        raise CheckpointError(f"{report.source}: a width of {dim} is no multiple of {num_heads} heads.")
    imagenet = _is_self_supervised(report)
    half = (0.5, 0.5, 0.5)
    spec = InputSpec(mean=IMAGENET_MEAN if imagenet else half, std=IMAGENET_STD if imagenet else half)
    processor = read_processor(checkpoint.path.parent, spec)
    if mean is None or std is None:
        by = "ImageNet statistics" if imagenet else "0.5"
        assumed = f"pixels are taken to be normalised by {by}"
        report.notes.append(assumed if processor is None else f"pixels are scaled as in {processor.name}")
    side = InputSpec().height // kernel.shape[-1] * kernel.shape[-1]
    rotary: dict[str, Any] = {} if "pos_embed" in weights else {"rotary": "space", "positions": "time"}
    registers = weights.get("register_tokens")
    return ModelConfig(
        dim=dim,
        depth=1 + max(int(name.split(".")[1]) for name in weights if name.startswith("blocks.")),
        num_heads=num_heads,
        mlp_ratio=weights["blocks.0.mlp.fc1.weight"].shape[0] / dim,
        patch=kernel.shape[-1],
        num_prefix_tokens=1 if registers is None else 1 + registers.shape[1],
        norm_eps=float(settings.get("layer_norm_eps", 1e-5 if rotary else 1e-6)),
        activation=activation(settings) if "model_type" in settings else "gelu",
        qkv_bias="blocks.0.attn.qkv.bias" in weights,
        hidden_head=False,
        input=replace(
            spec, height=side, width=side, mean=mean or (processor or spec).mean, std=std or (processor or spec).std
        ),
        source=report.source,
        **rotary,
    )


def _is_self_supervised(report: LoadReport) -> bool:
    if any("layer scale" in reason for reason in report.dropped.values()):
        return True
    return not any(
        re.match(r"head\.(weight|bias)$|classifier\.|pooler\.|pre_logits\.", name) for name in report.dropped
    )


def _positions(table: Float[Tensor, "m c"], weights: Mapping[str, Tensor], config: ModelConfig) -> dict[str, Tensor]:
    """The image's position embedding as the spatial one, or repeated over frames as the joint one."""
    patches = _num_patches(weights)
    prefix, space = table[: len(table) - patches], table[len(table) - patches :]
    if SCHEMES[config.attention].prefix_per_frame:
        of_frame = config.num_prefix_tokens // config.grid[0]
        prefix = F.pad(prefix[:1], (0, 0, 0, of_frame - len(prefix[:1]))).repeat(config.grid[0], 1)
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


def _fit_prefix(token: Tensor, registers: Tensor | None, config: ModelConfig, report: LoadReport) -> Tensor:
    if registers is not None:
        token = torch.cat((token, registers), dim=1)
    if SCHEMES[config.attention].prefix_per_frame:
        return token.repeat(1, config.num_prefix_tokens // token.shape[1], 1)
    if token.shape[1] > config.num_prefix_tokens > 0:
        report.notes.append(f"{token.shape[1] - config.num_prefix_tokens} registers are left out")
    missing = config.num_prefix_tokens - token.shape[1]
    if missing > 0:
        report.notes.append(f"{missing} more prefix tokens start at zero")
        token = torch.cat((token, token.new_zeros(1, missing, token.shape[2])), dim=1)
    return token[:, : config.num_prefix_tokens]


def _open_image_file(source: str | Path) -> Checkpoint:
    """A file, a folder as the hub has them, or `user/name` on the hub."""
    return read_checkpoint(find_weights(source))


def _translate(checkpoint: Checkpoint, source: str | Path) -> tuple[dict[str, Tensor], LoadReport]:
    """Its tensors under timm's names; errors name the file."""
    report = LoadReport(str(source))
    try:
        weights = _fold_layer_scale(_to_timm(checkpoint.tensors, report), report)
        _check_rotary(weights, checkpoint.cfg)
    except CheckpointError as error:
        raise CheckpointError(f"{checkpoint.path}: {error}") from error
    return weights, report


def _num_patches(weights: Mapping[str, Tensor]) -> int:
    """Patches of the position embedding: a square that leaves class, distillation and register tokens."""
    entries = weights["pos_embed"].shape[1]
    patches = math.isqrt(entries) ** 2
    if entries - patches not in _PREFIXES:
        raise CheckpointError(f"its position embedding of {entries} entries is no square grid with a class token.")
    return patches


def _check_rotary(weights: Mapping[str, Tensor], settings: Mapping[str, Any]) -> None:
    """Without a position embedding it must be a DINOv3, whose rotary positions are known."""
    if "pos_embed" in weights:
        _num_patches(weights)
    elif settings.get("model_type") != "dinov3_vit":
        raise CheckpointError(
            "tensor 'pos_embed' is missing, and no config.json beside the weights describes a DINOv3, which has none."
        )
    elif float(settings.get("rope_theta", 100.0)) != 100.0:
        raise CheckpointError(f"its `rope_theta` ({settings['rope_theta']}) must be 100, that of the published models.")


def _fold_layer_scale(weights: dict[str, Tensor], report: LoadReport) -> dict[str, Tensor]:
    folded = {name: value.float() for name, value in weights.items()}
    for name in [name for name in folded if re.fullmatch(r"blocks\.\d+\.ls[12]\.gamma", name)]:
        gamma = folded.pop(name)
        layer = name.replace("ls1.gamma", "attn.proj").replace("ls2.gamma", "mlp.fc2")
        folded[f"{layer}.weight"] = folded[f"{layer}.weight"] * gamma[:, None]
        folded[f"{layer}.bias"] = folded[f"{layer}.bias"] * gamma
        report.dropped[name] = "layer scale, folded into the projection before it"
    return folded


def _to_timm(tensors: Mapping[str, Tensor], report: LoadReport) -> dict[str, Tensor]:
    """Whatever the family, timm's names; heads, registers and training-only tensors are left out and reported."""
    weights: dict[str, Tensor] = {}
    for name, value in tensors.items():
        name = re.sub(r"^(vit|dinov2|dinov2_with_registers|deit|base_encoder|encoder\.(?=blocks))\.", "", name)
        for pattern, new in _PATTERNS:
            name = re.sub(pattern, new, name)
        if re.match(r"blocks\.\d+\.mlp\.(gate_proj|weights_in|w12)\.", name):
            raise CheckpointError("its blocks have gated MLPs (SwiGLU, as in DINOv2's giant), which are not supported.")
        if re.match(
            r"(cls_token|pos_embed|register_tokens|patch_embed\.proj\.|norm\.|blocks\.\d+\.(norm|attn|mlp\.fc|ls[12]))",
            name,
        ):
            weights[name] = value
        else:
            report.dropped[name] = "not used by a video model"
    weights = merge_qkv(weights)
    for name in (
        "cls_token",
        "patch_embed.proj.weight",
        "blocks.0.attn.qkv.weight",
        "blocks.0.mlp.fc1.weight",
    ):
        if name not in weights:
            raise CheckpointError(f"not an image transformer that can be read: tensor {name!r} is missing.")
    return weights


_PATTERNS = (
    (r"^blocks\.\d+\.(\d+)\.", r"blocks.\1."),  # DINOv2 files that keep blocks in chunks
    (r"^embeddings\.cls_token", "cls_token"),
    (r"^embeddings\.position_embeddings", "pos_embed"),
    (r"^embeddings\.patch_embeddings\.projection\.", "patch_embed.proj."),
    (r"^embeddings\.patch_embeddings\.(?=weight|bias)", "patch_embed.proj."),
    (r"^(embeddings\.register_tokens|reg_token)$", "register_tokens"),
    (r"^(encoder\.layer|layers|(model\.)?layer)\.", "blocks."),
    *VIT_LAYERS,
    (r"\.mlp\.up_proj\.(?=weight|bias)", ".mlp.fc1."),
    (r"\.mlp\.down_proj\.(?=weight|bias)", ".mlp.fc2."),
    (r"\.layer_scale([12])\.lambda1", r".ls\1.gamma"),
)
"""Hugging Face's names, one by one, as timm's."""
