"""Video transformers of others, as published on the Hugging Face hub: which they are, and how they map to ours.

A family is a table: the names of its tensors as regular expressions, its settings as fields of `ModelConfig`, and the
clips that its authors trained on. Nothing of the hub's code is executed. Files store how pixels are scaled
(`preprocessor_config.json`), not how frames are sampled: that is the family's published default, which the notes state.
"""

import json
import logging
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from motionformer.errors import CheckpointError
from motionformer.models.config import InputSpec, MLPActivation, ModelConfig
from motionformer.video.spec import Interpolation
from motionformer.weights.checkpoint import Checkpoint

log = logging.getLogger("motionformer")
PROCESSORS = ("video_preprocessor_config.json", "preprocessor_config.json")
"""Files beside the weights that describe the pixels; the first one that is there counts."""
IMAGENET_MEAN, IMAGENET_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
_ACTIVATIONS: dict[str, MLPActivation] = {
    "gelu": "gelu",
    "gelu_fast": "gelu_tanh",
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
}
_RESAMPLING: dict[int, Interpolation] = {2: "bilinear", 3: "bicubic"}
"""By the numbers that PIL has for them."""
Settings = Mapping[str, Any]
Names = tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Family:
    """One family of models, by the `model_type` of its `config.json`."""

    title: str
    owns: Callable[[Mapping[str, Tensor]], bool]
    """Whether tensors are of the family, by one or two that every file of it has."""
    names: Names
    """Its names of tensors → ours, in this order."""
    unused: Names
    """Tensors that our model does not have, and the reason."""
    defaults: dict[str, Any]
    """Settings that `config.json` leaves out because they are the default."""
    build: Callable[[Settings, dict[str, Tensor]], dict[str, Any]]
    """Fields of `ModelConfig` beyond those that all families share. It may change the tensors, which have our names."""
    input: Callable[[Settings, int], InputSpec]
    """The published clips, for the number of classes."""


def is_family(settings: Settings) -> bool:
    """Whether a `config.json` is that of one of these families."""
    return settings.get("model_type") in FAMILIES


def convert_family(checkpoint: Checkpoint) -> tuple[ModelConfig, dict[str, Tensor], dict[str, str], list[str]]:
    """The model of a family's file, our state dict, tensors of the file that it has not (with the reason), notes."""
    family = FAMILIES[checkpoint.cfg["model_type"]]
    settings = {**family.defaults, **checkpoint.cfg}
    _check_family(family, checkpoint.tensors)
    dropped: dict[str, str] = {}
    tensors = merge_qkv(_rename(checkpoint.tensors, family, dropped))
    classifier = tensors.get("head.classifier.weight")
    num_classes = 0 if classifier is None else len(classifier)
    spec = _square(family.input(settings, num_classes), settings)
    spec, notes = _with_processor(spec, checkpoint.path.parent, family.title)
    dim, heads = int(settings["hidden_size"]), int(settings["num_attention_heads"])
    if dim % heads:
        raise CheckpointError(f"a width of {dim} is not a multiple of {heads} heads.")
    fields = family.build(settings, tensors)
    config = ModelConfig(
        **{
            "dim": dim,
            "depth": int(settings["num_hidden_layers"]),
            "num_heads": heads,
            "mlp_ratio": float(settings.get("mlp_ratio", settings.get("intermediate_size", 4 * dim) / dim)),
            "activation": activation(settings),
            "norm_eps": float(settings["layer_norm_eps"]),
            "patch": _patch(settings.get("patch_size", settings.get("tubelet_size"))),
            "num_classes": num_classes,
            "labels": _labels(settings, num_classes),
            "hidden_head": False,
            "drop_path": float(settings.get("drop_path_rate", 0.0)),
            "input": spec,
            "source": family.title,
            **fields,
        }
    )
    if config.num_prefix_tokens == 0:
        tensors["prefix"] = torch.zeros(1, 0, dim)
    notes.append(
        f"{family.title}; how frames are sampled is not in the files, and is taken from its authors: {_sampling(spec)}"
    )
    return config, tensors, dropped, notes


def guess_family(tensors: Mapping[str, Tensor]) -> str | None:
    """The title of the family that tensors without a `config.json` are of."""
    return next((family.title for family in FAMILIES.values() if family.owns(tensors)), None)


def _check_family(family: Family, tensors: Mapping[str, Tensor]) -> None:
    if family.owns(tensors):
        return
    other = guess_family(tensors)
    found = f"they look like {other}'s" if other else f"there are {', '.join(list(tensors)[:3])} …"
    raise CheckpointError(
        f"config.json describes a {family.title}, but the tensors are not its own ({found}): the two files do not "
        "belong together, or the weights are only a part of the model."
    )


def _rename(tensors: Mapping[str, Tensor], family: Family, dropped: dict[str, str]) -> dict[str, Tensor]:
    renamed: dict[str, Tensor] = {}
    for name, value in tensors.items():
        reason = next((reason for pattern, reason in family.unused if re.search(pattern, name)), None)
        if reason is not None:
            dropped[name] = reason
            continue
        new = name
        for pattern, replacement in family.names:
            new = re.sub(pattern, replacement, new)
        if new == "tokens.proj.weight" and value.ndim == 4:
            value = value.unsqueeze(2)
        renamed[new] = value.float()
    return renamed


def merge_qkv(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Separate `query`, `key` and `value` projections as one, `qkv`. A missing bias among others is zero."""
    merged: dict[str, Tensor] = {}
    parts: dict[str, dict[str, Tensor]] = {}
    for name, value in tensors.items():
        found = re.fullmatch(r"(.+)\.(query|key|value)\.(weight|bias)", name)
        if found is None:
            merged[name] = value
        else:
            parts.setdefault(f"{found[1]}.qkv.{found[3]}", {})[found[2]] = value
    for name, part in parts.items():
        missing = {"query", "key", "value"} - part.keys()
        if missing and name.endswith("weight"):
            raise CheckpointError(f"{name!r} has only {', '.join(sorted(part))}.")
        zero = torch.zeros_like(next(iter(part.values())))
        merged[name] = torch.cat([part.get(which, zero) for which in ("query", "key", "value")])
    return merged


def activation(settings: Settings) -> MLPActivation:
    """Of the MLP, by a `config.json`."""
    name = settings.get("hidden_act", "gelu")
    if name not in _ACTIVATIONS:
        raise CheckpointError(f"its `hidden_act` ({name!r}) must be one of {', '.join(_ACTIVATIONS)}.")
    return _ACTIVATIONS[name]


def _labels(settings: Settings, num_classes: int) -> tuple[str, ...] | None:
    """Names of the classes; `LABEL_0` and so on are none."""
    by_number = settings.get("id2label") or {}
    if len(by_number) != num_classes or not num_classes:
        return None
    labels = tuple(str(by_number.get(str(number), f"LABEL_{number}")) for number in range(num_classes))
    return None if all(re.fullmatch(r"LABEL_\d+", label) for label in labels) else labels


def _patch(size: Any) -> int:
    """Of a patch, or of a tubelet, whose first number is frames."""
    rows, columns = (size, size) if isinstance(size, int) else size[-2:]
    if rows != columns:
        raise CheckpointError(f"its patches ({rows} × {columns}) must be square.")
    return int(rows)


def _has(tensors: Mapping[str, Tensor], suffix: str, ndim: int | None = None) -> bool:
    return any(name.endswith(suffix) and ndim in (None, value.ndim) for name, value in tensors.items())


def _square(spec: InputSpec, settings: Settings) -> InputSpec:
    """With the size of the model's own clips."""
    size = settings["crop_size"] if "crop_size" in settings else settings["image_size"]
    height, width = (size, size) if isinstance(size, int) else size
    return replace(spec, height=int(height), width=int(width))


# Pixels


@dataclass(frozen=True)
class Processor:
    """What a `preprocessor_config.json` does to pixels."""

    name: str
    mean: tuple[float, float, float]
    std: tuple[float, float, float]
    crop: tuple[int, int] | None
    short_side: int | None
    frames: int | None
    interpolation: Interpolation


def read_processor(folder: Path, spec: InputSpec) -> Processor | None:
    """The file beside the weights, if there is one; what it leaves out is as in `spec`."""
    file = next((folder / name for name in PROCESSORS if (folder / name).is_file()), None)
    if file is None:
        return None
    try:
        values = json.loads(file.read_text(encoding="utf-8"))
        resample = values.get("resample", 2)
        if resample not in _RESAMPLING:
            raise ValueError(f"`resample` must be 2 (bilinear) or 3 (bicubic), not {resample!r}")
        crop, short_side = _crop(values)
        mean, std = _scaling(values, spec)
        frames = values.get("num_frames")
        return Processor(file.name, mean, std, crop, short_side, frames, _RESAMPLING[resample])
    except (ValueError, TypeError, AttributeError, KeyError, ZeroDivisionError) as error:
        raise CheckpointError(f"{file} does not describe pixels ({error}).") from error


def _with_processor(spec: InputSpec, folder: Path, title: str) -> tuple[InputSpec, list[str]]:
    """The pixels that the file beside the weights describes, and what is to be known about them."""
    file = read_processor(folder, spec)
    if file is None:
        return spec, [f"no {PROCESSORS[1]} beside the weights: pixels are scaled as {title} is published"]
    notes = [f"pixels are scaled as in {file.name}"]
    crop, short, frames = file.crop, file.short_side, file.frames
    if crop not in (None, (spec.height, spec.width)) or frames not in (None, spec.frames):
        theirs = f"{frames or spec.frames} frames of {crop[0]} × {crop[1]}" if crop else f"{frames} frames"
        notes.append(
            f"{file.name} makes clips of {theirs}, but config.json is of a model for {spec.frames} frames of "
            f"{spec.height} × {spec.width}: clips are made as the model is; frames= and size= choose others"
        )
        log.warning("note: %s", notes[-1])
    if short is not None and short != min(spec.height, spec.width):
        notes.append(f"{file.name} resizes the short side to {short} before it crops; here the crop has all of it")
    return replace(spec, mean=file.mean, std=file.std, interpolation=file.interpolation), notes


def _scaling(values: Settings, spec: InputSpec) -> tuple[tuple[float, float, float], tuple[float, float, float]]:
    """Mean and std for pixels in [0, 1]: `(factor · byte − offset − mean) / std`, whatever of it is done."""
    scale = 255 * float(values.get("rescale_factor", 1 / 255)) if values.get("do_rescale", True) else 255.0
    offset = 1.0 if values.get("offset", False) else 0.0
    normalise = values.get("do_normalize", True)
    means = values.get("image_mean", spec.mean) if normalise else (0.0, 0.0, 0.0)
    stds = values.get("image_std", spec.std) if normalise else (1.0, 1.0, 1.0)
    (r, g, b), (*spread,) = ((offset + float(m)) / scale for m in means), (float(s) / scale for s in stds)
    if len(spread) != 3 or not all(s > 0 for s in spread):
        raise ValueError("`image_std` must be three positive numbers")
    return (r, g, b), (spread[0], spread[1], spread[2])


def _crop(values: Settings) -> tuple[tuple[int, int] | None, int | None]:
    """Height and width of what comes out, and the short side before the crop."""

    def pair(size: Any) -> tuple[int, int] | None:
        if isinstance(size, Mapping) and "height" in size:
            return int(size["height"]), int(size["width"])
        return (int(size), int(size)) if isinstance(size, int) else None

    size = values.get("size")
    short = int(size["shortest_edge"]) if isinstance(size, Mapping) and "shortest_edge" in size else None
    crop = pair(values.get("crop_size")) if values.get("do_center_crop", True) else pair(size)
    return crop, short


def _sampling(spec: InputSpec) -> str:
    if spec.sampling == "segments":
        return f"{spec.frames} frames, one from each segment of the video"
    at = "of the video's own frames" if spec.fps is None else f"at {spec.fps:g} frames per second"
    return f"{spec.frames} frames, stride {spec.stride} {at}"


# The families

VIT_LAYERS: Names = (
    (r"^layernorm\.", "norm."),
    (r"\.layernorm_before\.", ".norm1."),
    (r"\.layernorm_after\.", ".norm2."),
    (r"\.attention\.attention\.", ".attn."),
    (r"\.attention\.output\.dense\.", ".attn.proj."),
    (r"\.intermediate\.dense\.", ".mlp.fc1."),
    (r"^(blocks\.\d+)\.output\.dense\.", r"\1.mlp.fc2."),
    *((rf"\.attention\.{part[0]}_proj\.", f".attn.{part}.") for part in ("query", "key", "value")),
    (r"\.attention\.o_proj\.", ".attn.proj."),
)
"""Layers of blocks, in image and video models: as in the published files, then as transformers 5 writes them."""
_VIT_NAMES: Names = (
    (r"^embeddings\.cls_token$", "prefix"),
    (r"^embeddings\.patch_embeddings\.projection\.", "tokens.proj."),
    (r"^(encoder\.layer|layers)\.", "blocks."),
    *VIT_LAYERS,
    (r"^classifier\.", "head.classifier."),
)
"""Names that most families share."""


def _timesformer(settings: Settings, tensors: dict[str, Tensor]) -> dict[str, Any]:
    kinds = {"divided_space_time": "timesformer", "joint_space_time": "joint"}
    kind = settings["attention_type"]
    if kind not in kinds:
        raise CheckpointError(f"its `attention_type` ({kind!r}) must be one of {', '.join(kinds)}.")
    space = tensors.pop("embeddings.position_embeddings", None)
    time = tensors.pop("embeddings.time_embeddings", None)
    if space is not None:
        tensors.update({"positions.prefix": space[0, :1], "positions.space": space[0, 1:]})
    if time is not None:
        tensors["positions.time"] = time[0]
    for name in [name for name in tensors if name.endswith(".temporal_dense.weight")]:
        _fold_dense(tensors, name.removesuffix(".temporal_dense.weight"))
    return {"attention": kinds[kind], "tubelet": 1, "qkv_bias": bool(settings["qkv_bias"])}


def _fold_dense(tensors: dict[str, Tensor], block: str) -> None:
    """TimeSformer has a second linear map behind the projection of its time attention: together they are one."""
    weight, bias = (tensors.pop(f"{block}.temporal_dense.{leaf}").double() for leaf in ("weight", "bias"))
    proj = f"{block}.time_attn.proj"
    tensors[f"{proj}.bias"] = (weight @ tensors[f"{proj}.bias"].double() + bias).float()
    tensors[f"{proj}.weight"] = (weight @ tensors[f"{proj}.weight"].double()).float()


def _timesformer_input(settings: Settings, num_classes: int) -> InputSpec:
    frames = int(settings["num_frames"])
    return InputSpec(
        frames=frames,
        sampling="segments" if num_classes == _SSV2 else "stride",
        stride={8: 32, 16: 16, 96: 4}.get(frames, 32),
        mean=(0.45, 0.45, 0.45),
        std=(0.225, 0.225, 0.225),
        views=1,
    )


def _vivit(settings: Settings, tensors: dict[str, Tensor]) -> dict[str, Any]:
    table = tensors.pop("embeddings.position_embeddings", None)
    if table is not None:
        tensors.update({"positions.prefix": table[0, :1], "positions.table": table[0, 1:]})
    tubelet = int(settings["tubelet_size"][0])
    return {"attention": "joint", "positions": "joint", "tubelet": tubelet, "qkv_bias": bool(settings["qkv_bias"])}


def _videomae(settings: Settings, tensors: dict[str, Tensor]) -> dict[str, Any]:
    pooled = bool(settings["use_mean_pooling"])
    if not pooled and "head.classifier.weight" in tensors:
        raise CheckpointError(
            "`use_mean_pooling` must be true: a classifier of the first patch token is not supported."
        )
    if pooled and "readout.norm.weight" not in tensors:  # an encoder that was cut off before it
        dim = int(settings["hidden_size"])
        tensors.update({"readout.norm.weight": torch.ones(dim), "readout.norm.bias": torch.zeros(dim)})
    return {
        "attention": "joint",
        "positions": "sine",
        "num_prefix_tokens": 0,
        "tubelet": int(settings["tubelet_size"]),
        "qkv_bias": bool(settings["qv_bias"] and settings["qkv_bias"]),  # an older name
        "readout": "mean" if pooled else "class",
    }


def _vjepa2(settings: Settings, tensors: dict[str, Tensor]) -> dict[str, Any]:
    probe = any(name.startswith("readout.") for name in tensors)
    return {
        "attention": "joint",
        "positions": "none",
        "rotary": "space_time",
        "num_prefix_tokens": 0,
        "tubelet": int(settings["tubelet_size"]),
        "qkv_bias": bool(settings["qkv_bias"]),
        "readout": "attentive" if probe else "class",
        "readout_depth": int(settings["num_pooler_layers"]) if probe else 0,
    }


def _videomae_input(settings: Settings, num_classes: int) -> InputSpec:
    segments = num_classes == _SSV2
    return InputSpec(
        frames=int(settings["num_frames"]),
        sampling="segments" if segments else "stride",
        fps=None,
        mean=IMAGENET_MEAN,
        std=IMAGENET_STD,
        views=1 if segments else 5,
    )


def _vjepa2_input(settings: Settings, num_classes: int) -> InputSpec:
    """16 frames for Something-Something and 32 for Diving-48 at a stride; longer clips have 4 frames a second."""
    frames = int(settings["frames_per_clip"])
    stride = {16: 4, 32: 2}.get(frames)
    clock: dict[str, Any] = {"stride": 1, "fps": 4.0} if stride is None else {"stride": stride, "fps": None}
    return InputSpec(frames=frames, mean=IMAGENET_MEAN, std=IMAGENET_STD, views=4 if frames == 32 else 2, **clock)


_SSV2 = 174
"""Classes of Something-Something v2, whose clips are sampled by segments."""
_BASE = {
    "image_size": 224,
    "hidden_size": 768,
    "num_hidden_layers": 12,
    "num_attention_heads": 12,
    "intermediate_size": 3072,
    "layer_norm_eps": 1e-6,
    "qkv_bias": True,
}
FAMILIES: dict[str, Family] = {
    "timesformer": Family(
        title="TimeSformer",
        owns=lambda tensors: _has(tensors, "encoder.layer.0.attention.attention.qkv.weight"),
        names=(
            (r"^timesformer\.", ""),
            (r"\.temporal_attention\.attention\.", ".time_attn."),
            (r"\.temporal_attention\.output\.dense\.", ".time_attn.proj."),
            (r"\.temporal_layernorm\.", ".norm_time."),
            *_VIT_NAMES,
        ),
        unused=(),
        defaults={**_BASE, "patch_size": 16, "num_frames": 8, "attention_type": "divided_space_time"},
        build=_timesformer,
        input=_timesformer_input,
    ),
    "vivit": Family(
        title="ViViT",
        owns=lambda tensors: (
            _has(tensors, "embeddings.cls_token") and _has(tensors, "patch_embeddings.projection.weight", 5)
        ),
        names=((r"^vivit\.", ""), *_VIT_NAMES),
        unused=((r"(^|\.)pooler\.", "the pooler, which the classifier does not use"),),
        defaults={**_BASE, "num_frames": 32, "tubelet_size": [2, 16, 16], "hidden_act": "gelu_fast"},
        build=_vivit,
        input=lambda settings, _: InputSpec(frames=int(settings["num_frames"]), stride=2, fps=25.0, views=4),
    ),
    "videomae": Family(
        title="VideoMAE",
        owns=lambda tensors: (
            not _has(tensors, "embeddings.cls_token") and _has(tensors, "patch_embeddings.projection.weight", 5)
        ),
        names=(
            (r"^videomae\.", ""),
            (r"\.attention\.attention\.q_bias$", ".attn.query.bias"),
            (r"\.attention\.attention\.v_bias$", ".attn.value.bias"),
            (r"^fc_norm\.", "readout.norm."),
            *_VIT_NAMES,
        ),
        unused=((r"^(decoder|encoder_to_decoder)\.|^mask_token$", "the decoder of pre-training"),),
        defaults={
            **_BASE,
            "patch_size": 16,
            "num_frames": 16,
            "tubelet_size": 2,
            "layer_norm_eps": 1e-12,
            "qv_bias": True,
            "use_mean_pooling": True,
        },
        build=_videomae,
        input=_videomae_input,
    ),
    "vjepa2": Family(
        title="V-JEPA 2",
        owns=lambda tensors: _has(tensors, "encoder.embeddings.patch_embeddings.proj.weight", 5),
        names=(
            (r"^(vjepa2\.)?encoder\.", ""),
            (r"^embeddings\.patch_embeddings\.proj\.", "tokens.proj."),
            (r"^layer\.", "blocks."),
            (r"^layernorm\.", "norm."),
            (r"^pooler\.query_tokens$", "readout.query"),
            (r"^pooler\.self_attention_layers\.", "readout.blocks."),
            (r"^pooler\.cross_attention_layer\.", "readout.cross."),
            (r"\.layer_norm([12])\.", r".norm\1."),
            (r"\.(self_attn|cross_attn)\.", ".attention."),
            (r"\.attention\.out_proj\.", ".attention.proj."),
            *((rf"\.attention\.{part[0]}_proj\.", f".attn.{part}.") for part in ("query", "key", "value")),
            (r"\.attention\.", ".attn."),
            (r"^classifier\.", "head.classifier."),
        ),
        unused=((r"^(vjepa2\.)?predictor\.", "the predictor of pre-training"),),
        defaults={
            **_BASE,
            "crop_size": 256,
            "patch_size": 16,
            "frames_per_clip": 64,
            "tubelet_size": 2,
            "hidden_size": 1024,
            "num_hidden_layers": 24,
            "num_attention_heads": 16,
            "mlp_ratio": 4.0,
            "num_pooler_layers": 3,
        },
        build=_vjepa2,
        input=_vjepa2_input,
    ),
}
"""By the `model_type` of `config.json`."""
