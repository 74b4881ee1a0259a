"""Initialise a video model from an image transformer (method.md §5): a model of its shape, its weights inflated.

Three families of names are read, from a file, a folder or by hub name: timm (also the original DINO, DINOv2 and MoCo
files), Hugging Face ViT, and Hugging Face DINOv2. Layer scale is folded into the projection it follows, so the video
block needs none.
"""

import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from motionformer.errors import CheckpointError, DownloadError
from motionformer.models.block import DividedBlock
from motionformer.models.config import InputSpec, ModelConfig
from motionformer.models.motionformer import Motionformer
from motionformer.models.variants import adapt_config
from motionformer.weights.checkpoint import Checkpoint, read_checkpoint
from motionformer.weights.fit import LoadReport, fit_tensors
from motionformer.weights.load import CONFIG, fetch_from_hub, is_hub_name

Inflation = Literal["central", "average"]
IMAGENET_MEAN, IMAGENET_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
_NEW = (".adapter.", ".time_attn.", ".norm_time.", "positions.time", "head.")
"""Newly initialised, as is all that a scheme has beside the projections `qkv` and `proj`."""
_SCHEMES_OWN = re.compile(r"blocks\.\d+\.attn\.(?!qkv\.|proj\.)")

_FILES = ("model.safetensors", "pytorch_model.bin")
"""On the hub, the first one first."""
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
        source: a file, a folder or `user/name` on the Hugging Face hub, of a timm, DINO or Hugging Face ViT.
        num_classes: a number, 0 for features only, or several heads by name.
        frames: frames per clip.
        size: height and width of a clip, or one number for both.
        tubelet: frames of a token.
        patch: height and width of a token [default: the image model's].
        inflation: `central` puts the image kernel at the middle frame of a tubelet, `average` spreads it over all.
        mean: pixel mean [default: ImageNet's where the file looks self-supervised, with layer scale (DINOv2) or without
            a classifier or pooler (DINO, MAE, MoCo), else 0.5; the report has which].
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
            ours["prefix"] = _fit_prefix(value, config, report)
        elif name == "pos_embed":
            ours.update(_positions(value[0], weights, config))
        else:
            ours[name] = value
    side = math.isqrt(_num_patches(weights))
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
    num_heads: int | None,
    mean: tuple[float, float, float] | None,
    std: tuple[float, float, float] | None,
) -> ModelConfig:
    kernel = weights["patch_embed.proj.weight"]
    dim = kernel.shape[0]
    if num_heads is None:
        if dim % 64:
            raise CheckpointError(f"{report.source}: how many heads a width of {dim} has is unknown: give num_heads=….")
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
    """The image's position embedding as the spatial one, or repeated over frames as the joint one."""
    patches = _num_patches(weights)
    prefix, space = table[: len(table) - patches], table[len(table) - patches :]
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


def _open_image_file(source: str | Path) -> Checkpoint:
    """A file, a folder as the hub has them, or `user/name` on the hub."""
    path = Path(source).expanduser()
    if path.is_dir():
        found = [path / name for name in _FILES if (path / name).is_file()]
        if not found:
            raise CheckpointError(f"{path}: a folder of image weights holds {' or '.join(_FILES)}; this one does not.")
        path = found[0]
    elif not path.exists() and is_hub_name(source):
        path = _fetch(str(source))
    return read_checkpoint(path)


def _translate(checkpoint: Checkpoint, source: str | Path) -> tuple[dict[str, Tensor], LoadReport]:
    """Its tensors under timm's names; errors name the file."""
    report = LoadReport(str(source))
    try:
        weights = _fold_layer_scale(_to_timm(checkpoint.tensors, report), report)
        _num_patches(weights)
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


def _fetch(repo: str) -> Path:
    """Its weights, with `config.json` beside them."""
    try:
        return fetch_from_hub(repo, _FILES[0], CONFIG)
    except DownloadError:
        return fetch_from_hub(repo, _FILES[1], CONFIG)


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
    parts: dict[str, dict[str, Tensor]] = {}
    for name, value in tensors.items():
        name = re.sub(r"^(vit|dinov2|deit|base_encoder|encoder\.(?=blocks))\.", "", name)
        for pattern, new in _PATTERNS:
            name = re.sub(pattern, new, name)
        split = re.fullmatch(r"(blocks\.\d+\.attn)\.(query|key|value)\.(weight|bias)", name)
        if split:
            parts.setdefault(f"{split[1]}.qkv.{split[3]}", {})[split[2]] = value
        elif re.match(
            r"(cls_token|pos_embed|patch_embed\.proj\.|norm\.|blocks\.\d+\.(norm|attn|mlp\.fc|ls[12]))", name
        ):
            weights[name] = value
        else:
            report.dropped[name] = "not used by a video model"
    for name, part in parts.items():
        if set(part) != {"query", "key", "value"}:
            raise CheckpointError(f"{name!r} has only {', '.join(sorted(part))}.")
        weights[name] = torch.cat([part["query"], part["key"], part["value"]])
    for name in (
        "cls_token",
        "pos_embed",
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
    (r"^encoder\.layer\.", "blocks."),
    (r"^layernorm\.", "norm."),
    (r"\.layernorm_before\.", ".norm1."),
    (r"\.layernorm_after\.", ".norm2."),
    (r"\.attention\.attention\.", ".attn."),
    (r"\.attention\.output\.dense\.", ".attn.proj."),
    (r"\.intermediate\.dense\.", ".mlp.fc1."),
    (r"^(blocks\.\d+)\.output\.dense\.", r"\1.mlp.fc2."),
    (r"\.layer_scale([12])\.lambda1", r".ls\1.gamma"),
)
"""Hugging Face's names, one by one, as timm's."""
