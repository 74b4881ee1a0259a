"""The authors' released files: their names, what they hold, and how they map to our models (method.md §5).

The architecture is inferred from keys and shapes; the YAML inside a file is asked only for what shapes cannot tell:
the number of heads where it is not width / 64, the activation before the classifier, the approximation, the clips.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

from torch import Tensor

from motionformer.errors import CheckpointError
from motionformer.models.config import ActivationKind, InputSpec, KernelConfig, ModelConfig

URL = "https://dl.fbaipublicfiles.com/motionformer/"
Dataset = Literal["k400", "k600", "ssv2", "ek"]


@dataclass(frozen=True)
class ReleasedModel:
    """One released file. The checksum is None where the publisher states none."""

    name: str
    dataset: Dataset
    kind: Literal["joint", "divided", "motionformer"]
    size: int
    frames: int
    stride: int
    sha256: str | None = None

    @property
    def filename(self) -> str:
        return f"{self.name}.pyth"

    @property
    def input(self) -> InputSpec:
        """The clips it was trained on, and the views it was tested with."""
        segments = self.dataset == "ssv2"
        return InputSpec(
            frames=self.frames,
            height=self.size,
            width=self.size,
            stride=self.stride,
            sampling="segments" if segments else "stride",
            channels="BGR" if self.dataset == "ek" else "RGB",
            views=1 if segments else 10,
            protocol="released",
        )


def _released() -> dict[str, ReleasedModel]:
    rows: list[tuple[Dataset, Literal["joint", "divided", "motionformer"], int, int, int]] = []
    for dataset in ("k400", "ssv2"):
        rows += [(dataset, "joint", 224, 16, 4), (dataset, "divided", 224, 16, 4)]
    for dataset in get_args(Dataset):
        rows += [(dataset, "motionformer", 224, 16, 4), (dataset, "motionformer", 224, 32, 3)]
        rows += [(dataset, "motionformer", 336, 16, 8 if dataset in ("k400", "k600") else 4)]
    models = (
        ReleasedModel(f"{dataset}_{kind}_{size}_{frames}x{stride}", dataset, kind, size, frames, stride)
        for dataset, kind, size, frames, stride in rows
    )
    return {model.name: model for model in models}


RELEASED: dict[str, ReleasedModel] = _released()


def is_released_layout(tensors: Mapping[str, Tensor]) -> bool:
    """Whether these are a video model of the authors' code (and not an image transformer with similar names)."""
    return "cls_token" in tensors and ("temp_embed" in tensors or "st_embed" in tensors)


def convert_released(
    tensors: Mapping[str, Tensor], cfg: Mapping[str, Any], num_heads: int | None = None
) -> tuple[ModelConfig, dict[str, Tensor], dict[str, str], list[str]]:
    """The model of a released state dict, our state dict, released tensors that it has not (with the reason), notes."""
    config = _infer_config(tensors, cfg, num_heads)
    if config.dim % config.num_heads:
        raise CheckpointError(f"a width of {config.dim} is not a multiple of {config.num_heads} heads.")
    return config, *_convert_tensors(tensors, config), _ignored_settings(cfg, config)


def _infer_config(tensors: Mapping[str, Tensor], cfg: Mapping[str, Any], num_heads: int | None = None) -> ModelConfig:
    """The model that a released state dict is the weights of."""
    vit: Mapping[str, Any] = cfg.get("VIT", {})
    dim = _need(tensors, "cls_token").shape[-1]
    kernel = tensors.get("patch_embed_3d.proj.weight")
    tubelet = 1 if kernel is None else kernel.shape[2]
    patch = (_need(tensors, "patch_embed.proj.weight") if kernel is None else kernel).shape[-1]
    depth = 1 + max((int(name.split(".")[1]) for name in tensors if name.startswith("blocks.")), default=-1)
    attention = _attention_kind(tensors)
    frames, rows, columns = _position_grid(tensors, cfg, patch)
    spec = _input_spec(cfg, tensors, frames * tubelet, (rows * patch, columns * patch))
    grid = (spec.height // patch, spec.width // patch)
    return ModelConfig(
        dim=dim,
        depth=depth,
        num_heads=num_heads or _num_heads(dim, vit),
        mlp_ratio=_need(tensors, "blocks.0.mlp.fc1.weight").shape[0] / dim,
        patch=patch,
        tubelet=tubelet,
        qkv_bias="blocks.0.attn.qkv.bias" in tensors,
        attention=attention,
        kernel=_kernel(vit) if attention == "trajectory" else KernelConfig(),
        project_values=attention == "trajectory" and vit.get("USE_ORIGINAL_TRAJ_ATTN_CODE", True) is False,
        positions="separate" if "temp_embed" in tensors else "joint",
        position_grid=None if grid == (rows, columns) else (rows, columns),
        position_frames=None if spec.frames // tubelet == frames else frames,
        num_classes=_num_classes(tensors),
        hidden_head="pre_logits.fc.weight" in tensors,
        head_activation=_activation(vit),
        drop_path=float(vit.get("DROP_PATH", 0.2)),
        drop_path_time=attention != "divided",
        input=spec,
        source="released",
    )


def _ignored_settings(cfg: Mapping[str, Any], config: ModelConfig) -> list[str]:
    """Settings of a released configuration that its model ignores, as the authors' code does."""
    approximation = str(cfg.get("VIT", {}).get("APPROX_ATTN_TYPE", "none")).lower()
    if config.attention == "trajectory" or approximation in ("none", ""):
        return []
    return [f"its configuration names {approximation}; {config.attention} attention ignores it, as in the release"]


def _convert_tensors(tensors: Mapping[str, Tensor], config: ModelConfig) -> tuple[dict[str, Tensor], dict[str, str]]:
    ours: dict[str, Tensor] = {}
    dropped: dict[str, str] = {}
    for name, value in tensors.items():
        new, reason = _convert(name, value, config)
        ours.update(new)
        if reason is not None:
            dropped[name] = reason
    return ours, dropped


def _convert(name: str, value: Tensor, config: ModelConfig) -> tuple[dict[str, Tensor], str | None]:
    if name == "cls_token":
        return {"prefix": value}, None
    if name == "pos_embed":
        if config.positions == "joint":
            return {}, "a joint position embedding replaces it"
        return {"positions.prefix": value[0, :1], "positions.space": value[0, 1:]}, None
    if name == "temp_embed":
        return {"positions.time": value[0]}, None
    if name == "st_embed":
        return {"positions.prefix": value[0, :1], "positions.table": value[0, 1:]}, None
    if name.startswith(("patch_embed.proj.", "patch_embed_3d.proj.")):
        used = "patch_embed." if config.tubelet == 1 else "patch_embed_3d."
        if not name.startswith(used):
            return {}, "the tokeniser that is not used"
        return {"tokens.proj." + name.rsplit(".", 1)[1]: value.unsqueeze(2) if value.dim() == 4 else value}, None
    if ".attn.proj_kv." in name:
        return _convert_proj_kv(name, value, config)
    for old, new in _RENAMES:
        name = name.replace(old, new)
    return {name: value}, None


_RENAMES = (
    (".attn.proj_q.", ".attn.time.to_query."),
    (".timeattn.", ".time_attn."),
    (".norm3.", ".norm_time."),
    ("pre_logits.fc.", "head.hidden.fc."),
    ("head0.", "head.classifiers.verb."),
    ("head1.", "head.classifiers.noun."),
    *((f"head.{leaf}", f"head.classifier.{leaf}") for leaf in ("weight", "bias")),
)


def _convert_proj_kv(name: str, value: Tensor, config: ModelConfig) -> tuple[dict[str, Tensor], str | None]:
    """Rows are key, then value. A key bias cancels in the softmax over time; released models do not use the values."""
    stem, leaf = name.replace(".attn.proj_kv.", ".attn.time.").rsplit(".", 1)
    key, values = value.chunk(2)
    new = {f"{stem}.to_key.weight": key} if leaf == "weight" else {}
    if config.project_values:
        new[f"{stem}.to_value.{leaf}"] = values
    why = {
        ("weight", False): "its value half is not used",
        ("bias", False): "its value half is not used, its key half cancels in the softmax",
        ("bias", True): "its key half cancels in the softmax",
    }
    return new, why.get((leaf, config.project_values))


def _attention_kind(tensors: Mapping[str, Tensor]) -> str:
    if "blocks.0.timeattn.qkv.weight" in tensors:
        return "divided"
    return "trajectory" if "blocks.0.attn.proj_q.weight" in tensors else "joint"


def _kernel(vit: Mapping[str, Any]) -> KernelConfig:
    kind = str(vit.get("APPROX_ATTN_TYPE", "none")).lower()
    if kind in ("none", ""):
        return KernelConfig()
    if kind not in ("orthoformer", "nystrom", "performer"):
        raise CheckpointError(f"its configuration names an unknown approximation, {kind!r}.")
    return KernelConfig(kind, num_prototypes=int(vit.get("APPROX_ATTN_DIM", 128)))


def _activation(vit: Mapping[str, Any]) -> ActivationKind:
    name = str(vit.get("HEAD_ACT", "tanh")).lower()
    return "tanh" if name == "tanh" else "gelu" if name == "gelu" else "relu"


def _num_heads(dim: int, vit: Mapping[str, Any]) -> int:
    if "NUM_HEADS" in vit:
        return int(vit["NUM_HEADS"])
    if dim % 64:
        raise CheckpointError(
            f"width {dim} is not a multiple of 64 and the file has no number of heads: give num_heads."
        )
    return dim // 64


def _num_classes(tensors: Mapping[str, Tensor]) -> int | dict[str, int]:
    if "head0.weight" in tensors:
        return {"verb": tensors["head0.weight"].shape[0], "noun": _need(tensors, "head1.weight").shape[0]}
    return tensors["head.weight"].shape[0] if "head.weight" in tensors else 0


def _position_grid(tensors: Mapping[str, Tensor], cfg: Mapping[str, Any], patch: int) -> tuple[int, int, int]:
    """Frames, rows and columns of the position embeddings."""
    if "temp_embed" in tensors:
        side = math.isqrt(_need(tensors, "pos_embed").shape[1] - 1)
        return tensors["temp_embed"].shape[1], side, side
    entries = _need(tensors, "st_embed").shape[1] - 1
    crop = cfg.get("DATA", {}).get("TRAIN_CROP_SIZE")
    side = int(crop) // patch if crop else math.isqrt(_need(tensors, "pos_embed").shape[1] - 1)
    if entries % (side * side):
        raise CheckpointError(
            f"its joint position embedding of {entries} entries is not a multiple of {side} × {side} patches."
        )
    return entries // (side * side), side, side


def _input_spec(cfg: Mapping[str, Any], tensors: Mapping[str, Tensor], frames: int, size: tuple[int, int]) -> InputSpec:
    data, test = cfg.get("DATA", {}), cfg.get("TEST", {})
    dataset = str(cfg.get("TRAIN", {}).get("DATASET", "")).lower()
    height, width = (int(data.get("TRAIN_CROP_SIZE", side)) for side in size)
    epic = "head0.weight" in tensors or dataset.startswith("epic")
    return InputSpec(
        frames=int(data.get("NUM_FRAMES", frames)),
        height=height,
        width=width,
        sampling="segments" if dataset.startswith("ss") else "stride",
        stride=int(data.get("SAMPLING_RATE", 4)),
        fps=float(data.get("TARGET_FPS", 30)),
        channels="BGR" if epic else "RGB",
        mean=_triple(data.get("MEAN"), 0.5),
        std=_triple(data.get("STD"), 0.5),
        views=int(test.get("NUM_ENSEMBLE_VIEWS", 10)),
        crops=int(test.get("NUM_SPATIAL_CROPS", 3)),
        protocol="released",
    )


def _triple(values: Any, default: float) -> tuple[float, float, float]:
    if isinstance(values, list) and len(values) == 3:
        return float(values[0]), float(values[1]), float(values[2])
    return default, default, default


def _need(tensors: Mapping[str, Tensor], name: str) -> Tensor:
    if name not in tensors:
        raise CheckpointError(f"tensor {name!r} is missing.")
    return tensors[name]
