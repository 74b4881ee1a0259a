"""Files of Synchformer, the audio-visual model that video-to-audio systems condition on: what they hold, and how they
map to our models.

The visual half (`vfeat_extractor.`) is a divided Motionformer whose readout is a vector per token frame. The audio half
and the comparison of the two follow in the same file. Files of the first training stage have the two halves alone,
under `v_encoder.` and `a_encoder.`. No file has the number of heads: they are 64 wide, the comparison's are eight.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from torch import Tensor

from motionformer.errors import CheckpointError
from motionformer.models.config import InputSpec, ModelConfig
from motionformer.weights.released import convert_released

SYNCHFORMER = "synchformer"
"""What `load_model` calls the file that MMAudio and its successors download."""
FILENAME = "synchformer_state_dict.pth"
URL = "https://github.com/hkchengrex/MMAudio/releases/download/v0.1/"
MD5 = "5b2f5594b0730f70e41e549b7c94390c"
"""As its publisher states it; there is no stronger checksum of it."""
INPUT = InputSpec(
    frames=16, stride=1, fps=25.0, hop=8, interpolation="bicubic", views=1, crops=1, mean=(0.5,) * 3, std=(0.5,) * 3
)
"""Segments of 16 frames every 8 frames, at 25 per second."""
_HALVES = {"vfeat_extractor.": "visual.", "v_encoder.": "visual.", "afeat_extractor.": "audio.", "a_encoder.": "audio."}
_COMPARISON = ("vproj.", "aproj.", "transformer.")
_OF_TRAINING = ("logit_scale",)
"""Of the first stage's loss."""


@dataclass(frozen=True)
class Parts:
    """The tensors of a file by what they belong to, without prefixes."""

    visual: dict[str, Tensor]
    audio: dict[str, Tensor]
    comparison: dict[str, Tensor]


def is_synchformer_layout(tensors: Mapping[str, Tensor]) -> bool:
    """Whether these are of a Synchformer, whole or a half of it."""
    return any(name.startswith(tuple(_HALVES)) for name in tensors)


def split_synchformer(tensors: Mapping[str, Tensor]) -> Parts:
    """By halves. A tensor that is of none is an error that names it."""
    parts = Parts({}, {}, {})
    for name, value in tensors.items():
        prefix = next((prefix for prefix in _HALVES if name.startswith(prefix)), None)
        if prefix is not None:
            half = parts.visual if _HALVES[prefix] == "visual." else parts.audio
            half[name.removeprefix(prefix)] = value
        elif name.startswith(_COMPARISON):
            parts.comparison[name] = value
        elif name not in _OF_TRAINING:
            raise CheckpointError(f"a Synchformer has no tensor {name!r}.")
    return parts


def convert_visual(
    tensors: Mapping[str, Tensor], num_heads: int | None = None
) -> tuple[ModelConfig, dict[str, Tensor], dict[str, str], list[str]]:
    """The visual half as a Motionformer: its configuration and tensors, tensors that it has not, notes."""
    parts = split_synchformer(tensors)
    if not parts.visual:
        raise CheckpointError("holds no visual half of a Synchformer (no tensor 'vfeat_extractor.…').")
    layer = {name: value for name, value in parts.visual.items() if name.startswith("spatial_attn_agg.")}
    backbone = {name: value for name, value in parts.visual.items() if name not in layer}
    config, ours, dropped, notes = convert_released(backbone, {}, num_heads)
    if config.attention != "divided" or config.positions != "separate":
        raise CheckpointError(
            f"the visual half of a Synchformer has divided attention and separate positions; not {config.attention} "
            f"attention and {config.positions} positions."
        )
    spec = replace(INPUT, frames=config.input.frames, height=config.input.height, width=config.input.width)
    config = replace(
        config, readout="frames", num_classes=0, hidden_head=False, drop_path=0.0, input=spec, source=SYNCHFORMER
    )
    ours |= {f"readout.{name}": value for name, value in convert_layer(layer, "spatial_attn_agg.").items()}
    others = len(parts.audio) + len(parts.comparison)
    if others:
        notes = [*notes, f"the visual half; {others} tensors of the other parts are read by load_synchformer"]
    return config, ours, {f"vfeat_extractor.{name}": reason for name, reason in dropped.items()}, notes


def convert_layer(tensors: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """PyTorch's own transformer layer with a token in front, as a `FrameReadout`; other names stay as they are."""
    return {_LAYER.get(name.removeprefix(prefix), name): value for name, value in tensors.items()}


_LAYER = {
    "cls_token": "token",
    **{
        f"{theirs}{dot}{leaf}": f"layer.{ours}.{leaf}"
        for theirs, ours, dot in (
            ("self_attn.in_proj", "attn.qkv", "_"),
            ("self_attn.out_proj", "attn.proj", "."),
            ("linear1", "mlp.fc1", "."),
            ("linear2", "mlp.fc2", "."),
            ("norm1", "norm1", "."),
            ("norm2", "norm2", "."),
        )
        for leaf in ("weight", "bias")
    },
}
