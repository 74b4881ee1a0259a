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
            "patch": _patch(settings),
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


def _patch(settings: Settings) -> int:
    size = settings["patch_size"]
    rows, columns = (size, size) if isinstance(size, int) else size
    if rows != columns:
        raise CheckpointError(f"its `patch_size` ({size}) must be square.")
    return int(rows)


def _has(tensors: Mapping[str, Tensor], suffix: str, ndim: int | None = None) -> bool:
    return any(name.endswith(suffix) and ndim in (None, value.ndim) for name, value in tensors.items())


def _square(spec: InputSpec, settings: Settings) -> InputSpec:
    """With the size of the model's own clips."""
    size = settings["image_size"]
    height, width = (size, size) if isinstance(size, int) else size
    return replace(spec, height=int(height), width=int(width))


# Pixels


def _with_processor(spec: InputSpec, folder: Path, title: str) -> tuple[InputSpec, list[str]]:
    """The pixels that the file beside the weights describes, and what is to be known about them."""
    file = next((folder / name for name in PROCESSORS if (folder / name).is_file()), None)
    if file is None:
        return spec, [f"no {PROCESSORS[1]} beside the weights: pixels are scaled as {title} is published"]
    try:
        values = json.loads(file.read_text(encoding="utf-8"))
        mean, std = _scaling(values, spec)
        crop, short = _crop(values)
    except (ValueError, TypeError, AttributeError, KeyError, ZeroDivisionError) as error:
        raise CheckpointError(f"{file} does not describe pixels ({error}).") from error
    notes = [f"pixels are scaled as in {file.name}"]
    frames = values.get("num_frames")
    if crop not in (None, (spec.height, spec.width)) or frames not in (None, spec.frames):
        theirs = f"{frames or spec.frames} frames of {crop[0]} × {crop[1]}" if crop else f"{frames} frames"
        notes.append(
            f"{file.name} makes clips of {theirs}, but config.json is of a model for {spec.frames} frames of "
            f"{spec.height} × {spec.width}: clips are made as the model is; frames= and size= choose others"
        )
        log.warning("note: %s", notes[-1])
    if short is not None and short != min(spec.height, spec.width):
        notes.append(f"{file.name} resizes the short side to {short} before it crops; here the crop has all of it")
    return replace(spec, mean=mean, std=std), notes


def _scaling(values: Settings, spec: InputSpec) -> tuple[tuple[float, float, float], tuple[float, float, float]]:
    """Mean and std for pixels in [0, 1]: `(factor · byte − offset − mean) / std`, whatever of it is done."""
    scale = 255 * float(values.get("rescale_factor", 1 / 255)) if values.get("do_rescale", True) else 255.0
    offset = 1.0 if values.get("offset", False) else 0.0
    normalise = values.get("do_normalize", True)
    means = values.get("image_mean", spec.mean) if normalise else (0.0, 0.0, 0.0)
    stds = values.get("image_std", spec.std) if normalise else (1.0, 1.0, 1.0)
    mean = tuple((offset + float(m)) / scale for m in means)
    std = tuple(float(s) / scale for s in stds)
    if len(mean) != 3 or len(std) != 3 or not all(s > 0 for s in std):
        raise ValueError("`image_mean` and `image_std` must be three numbers each, of std positive")
    return mean, std


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
    return f"{spec.frames} frames, stride {spec.stride}"


# The families

_VIT_NAMES: Names = (
    (r"^embeddings\.cls_token$", "prefix"),
    (r"^embeddings\.patch_embeddings\.projection\.", "tokens.proj."),
    (r"^(encoder\.layer|layers)\.", "blocks."),
    (r"^layernorm\.", "norm."),
    (r"\.layernorm_before\.", ".norm1."),
    (r"\.layernorm_after\.", ".norm2."),
    (r"\.attention\.attention\.", ".attn."),
    (r"\.attention\.output\.dense\.", ".attn.proj."),
    (r"\.intermediate\.dense\.", ".mlp.fc1."),
    (r"^(blocks\.\d+)\.output\.dense\.", r"\1.mlp.fc2."),
    *((rf"\.attention\.{part[0]}_proj\.", f".attn.{part}.") for part in ("query", "key", "value")),
    (r"\.attention\.o_proj\.", ".attn.proj."),
    (r"^classifier\.", "head.classifier."),
)
"""Names that most families share: those of the published files, then those that transformers 5 writes."""


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


_SSV2 = 174
"""Classes of Something-Something v2, whose clips are sampled by segments."""
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
        defaults={
            "image_size": 224,
            "patch_size": 16,
            "num_frames": 8,
            "hidden_size": 768,
            "num_hidden_layers": 12,
            "num_attention_heads": 12,
            "intermediate_size": 3072,
            "layer_norm_eps": 1e-6,
            "qkv_bias": True,
            "attention_type": "divided_space_time",
        },
        build=_timesformer,
        input=_timesformer_input,
    ),
}
"""By the `model_type` of `config.json`."""
