"""The file of an image transformer → its weights under timm's names, whichever family of names it has.

Three are read, from a file, a folder or by hub name: timm (also the original DINO, DINOv2 and MoCo files), Hugging Face
ViT, and Hugging Face DINOv2. Layer scale is folded into the projection it follows, so the video block needs none.
"""

import math
import re
from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor

from motionformer.errors import CheckpointError, DownloadError
from motionformer.weights.checkpoint import Checkpoint, read_checkpoint
from motionformer.weights.load import CONFIG, fetch_from_hub, is_hub_name
from motionformer.weights.report import LoadReport

FILES = ("model.safetensors", "pytorch_model.bin")
"""On the hub, the first one first."""
PREFIXES = (0, 1, 2, 5)
"""Entries of a position table before the patches': none, class, class and distillation, class and four registers."""


def read_image_weights(source: str | Path) -> tuple[dict[str, Tensor], LoadReport]:
    """Image weights under timm's names, in float32, layer scale folded in; and what was left out."""
    return translate(open_image_file(source), source)


def open_image_file(source: str | Path) -> Checkpoint:
    """A file, a folder as the hub has them, or `user/name` on the hub."""
    path = Path(source).expanduser()
    if path.is_dir():
        found = [path / name for name in FILES if (path / name).is_file()]
        if not found:
            raise CheckpointError(f"{path}: a folder of image weights holds {' or '.join(FILES)}; this one does not.")
        path = found[0]
    elif not path.exists() and is_hub_name(source):
        path = _fetch(str(source))
    return read_checkpoint(path)


def translate(checkpoint: Checkpoint, source: str | Path) -> tuple[dict[str, Tensor], LoadReport]:
    """Its tensors under timm's names; errors name the file."""
    report = LoadReport(str(source))
    try:
        weights = _fold_layer_scale(_to_timm(checkpoint.tensors, report), report)
        num_places(weights)
    except CheckpointError as error:
        raise CheckpointError(f"{checkpoint.path}: {error}") from error
    return weights, report


def num_places(weights: Mapping[str, Tensor]) -> int:
    """Patches of the position table: a square that leaves the entries of class, distillation and register tokens."""
    entries = weights["pos_embed"].shape[1]
    places = math.isqrt(entries) ** 2
    if entries - places not in PREFIXES:
        raise CheckpointError(f"its position table of {entries} entries is no square grid with a class token.")
    return places


def _fetch(repo: str) -> Path:
    """Its weights, with `config.json` beside them."""
    try:
        return fetch_from_hub(repo, FILES[0], CONFIG)
    except DownloadError:
        return fetch_from_hub(repo, FILES[1], CONFIG)


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
        for pattern, new in PATTERNS:
            name = re.sub(pattern, new, name)
        split = re.fullmatch(r"(blocks\.\d+\.attn)\.(query|key|value)\.(weight|bias)", name)
        if split:
            parts.setdefault(f"{split[1]}.qkv.{split[3]}", {})[split[2]] = value
        elif re.match(
            r"(cls_token|pos_embed|patch_embed\.proj\.|norm\.|blocks\.\d+\.(norm|attn|mlp\.fc|ls[12]))", name
        ):
            weights[name] = value
        else:
            report.dropped[name] = "no place in a video model"
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


PATTERNS = (
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
