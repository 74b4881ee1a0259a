"""Files of Synchformer, the audio-visual model that video-to-audio systems condition on: what they hold, and how they
map to our models.

The visual half (`vfeat_extractor.`) is a divided Motionformer whose readout is a vector per token frame. The audio half
and the comparison of the two follow in the same file. Files of the first training stage have the two halves alone,
under `v_encoder.` and `a_encoder.`. No file has the number of heads: they are 64 wide, the comparison's are eight.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor

from motionformer.errors import CheckpointError, UnknownModelError
from motionformer.models.config import InputSpec, ModelConfig
from motionformer.models.motionformer import Motionformer
from motionformer.models.synchformer import SoundConfig, Synchformer
from motionformer.weights.checkpoint import read_checkpoint
from motionformer.weights.download import download
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
VISUAL = ModelConfig(
    attention="divided",
    project_values=False,
    num_classes=0,
    readout="frames",
    hidden_head=False,
    drop_path=0.0,
    drop_path_time=False,
    input=INPUT,
    source=SYNCHFORMER,
)
"""The visual half of the published file."""
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


def load_synchformer(source: str | Path = SYNCHFORMER) -> Synchformer:
    """The whole of Synchformer with trained weights: both halves and the comparison, in evaluation mode.

    Args:
        source: `synchformer`, which is downloaded once, or a file in its layout.

    Returns:
        The model; `.visual` is what `load_model` returns.

    Raises:
        UnknownModelError: no such file or name.
        CheckpointError: the file cannot be read, or a tensor is missing, left over, or of another shape.
        DownloadError: it could not be fetched.

    Example:
        ```python
        model = load_synchformer("synchformer_state_dict.pth")
        model(segments, mel)  # [b, 14, 16, 3, 224, 224] and [b, 14, 1, 128, 66] -> logits of 21 offsets
        ```
    """
    path = find_file(source)
    tensors = read_checkpoint(path).tensors
    try:
        return _build(tensors)
    except CheckpointError as error:
        raise CheckpointError(f"{path}: {error}") from error


def find_file(source: str | Path) -> Path:
    """The file that a name or path means."""
    if str(source) == SYNCHFORMER and not Path(source).exists():
        return download(FILENAME, url=URL, md5=MD5)
    path = Path(source).expanduser()
    if not path.is_file():
        raise UnknownModelError(
            f"{str(source)!r} is no file of Synchformer; {SYNCHFORMER!r} is downloaded, or give the path of {FILENAME}."
        )
    return path


def _build(tensors: Mapping[str, Tensor]) -> Synchformer:
    if not is_synchformer_layout(tensors):
        raise CheckpointError("not a Synchformer: no tensor 'vfeat_extractor.…'.")
    parts = split_synchformer(tensors)
    missing = [what for what, part in (("audio half", parts.audio), ("comparison", parts.comparison)) if not part]
    if missing:
        raise CheckpointError(
            f"holds no {' and no '.join(missing)} of a Synchformer; load_model reads the visual half alone."
        )
    config, visual, _, _ = convert_visual(tensors)
    ours = {f"visual.{name}": value for name, value in visual.items()}
    ours |= {f"audio.{name}": value for name, value in _convert_audio(parts.audio).items()}
    ours |= {f"comparison.{name}": value for name, value in _convert_comparison(parts.comparison).items()}
    sound = _sound_config(ours, config)
    model = Synchformer(Motionformer(config), sound)
    _load_strictly(model, ours)
    return model.eval()


def _sound_config(ours: Mapping[str, Tensor], visual: ModelConfig) -> SoundConfig:
    positions, classifier = (ours.get(f"comparison.{name}") for name in ("positions", "classifier.weight"))
    if positions is None or classifier is None:
        raise CheckpointError("the comparison has no positions ('transformer.pos_emb_cfg.pos_emb') or no 'off_head'.")
    base = SoundConfig(visual.dim, _depth(ours, "audio.blocks."), visual.dim // 64, _depth(ours, "comparison.blocks."))
    each = visual.grid[0] + base.mel_grid[1]
    return replace(base, num_segments=(positions.shape[1] - 2) // each, num_offsets=classifier.shape[0])


def _depth(tensors: Mapping[str, Tensor], prefix: str) -> int:
    return 1 + max((int(name.split(".")[2]) for name in tensors if name.startswith(prefix)), default=-1)


def _load_strictly(model: Synchformer, tensors: Mapping[str, Tensor]) -> None:
    wanted = model.state_dict()
    for name, value in tensors.items():
        if name not in wanted:
            raise CheckpointError(f"the model has no tensor {name!r}.")
        if value.shape != wanted[name].shape:
            raise CheckpointError(
                f"tensor {name!r} is {tuple(value.shape)}, the model needs {tuple(wanted[name].shape)}."
            )
    missing = sorted(wanted.keys() - tensors.keys())
    if missing:
        raise CheckpointError(f"tensor {missing[0]!r} is missing ({len(missing)} are, in all).")
    model.load_state_dict(dict(tensors))


def _convert_audio(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Of the audio half, whose transformer has the names of `transformers`' spectrogram model."""
    layer = {name: value for name, value in tensors.items() if name.startswith("freq_attn_agg.")}
    rest = {name: value for name, value in tensors.items() if name not in layer}
    first, second = (rest.pop(f"ast.embeddings.{kind}_token", None) for kind in ("cls", "distillation"))
    renamed = _rename(_join_projections(rest, "attention.attention."), _AUDIO)
    if first is not None and second is not None:
        renamed["prefix"] = torch.cat((first, second), dim=1)
    return renamed | {f"readout.{name}": value for name, value in convert_layer(layer, "freq_attn_agg.").items()}


def _convert_comparison(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return _rename(_join_projections(tensors, "attn."), _COMPARED)


def _join_projections(tensors: Mapping[str, Tensor], inside: str) -> dict[str, Tensor]:
    """Query, key and value of a layer as one projection."""
    joined = dict(tensors)
    for name in tensors:
        found = re.fullmatch(rf"(.+)\.{re.escape(inside)}(?:query|key|value)\.(weight|bias)", name)
        if found is None or name not in joined:
            continue
        three = [f"{found[1]}.{inside}{which}.{found[2]}" for which in ("query", "key", "value")]
        missing = [one for one in three if one not in joined]
        if missing:
            raise CheckpointError(f"tensor {missing[0]!r} is missing.")
        joined[f"{found[1]}.attn.qkv.{found[2]}"] = torch.cat([joined.pop(one) for one in three])
    return joined


def _rename(tensors: Mapping[str, Tensor], renames: tuple[tuple[str, str], ...]) -> dict[str, Tensor]:
    renamed = {}
    for name, value in tensors.items():
        for old, new in renames:
            name = re.sub(old, new, name)
        renamed[name] = value
    return renamed


_AUDIO = (
    (r"^ast\.embeddings\.patch_embeddings\.projection\.", "tokens."),
    (r"^ast\.embeddings\.position_embeddings$", "positions"),
    (r"^ast\.layernorm\.", "norm."),
    (r"^ast\.encoder\.layer\.", "blocks."),
    (r"\.attention\.output\.dense\.", ".attn.proj."),
    (r"\.intermediate\.dense\.", ".mlp.fc1."),
    (r"\.output\.dense\.", ".mlp.fc2."),
    (r"\.layernorm_before\.", ".norm1."),
    (r"\.layernorm_after\.", ".norm2."),
)
_COMPARED = (
    (r"^vproj\.", "visual_proj."),
    (r"^aproj\.", "audio_proj."),
    (r"^transformer\.", ""),
    (r"^vis_in_lnorm\.", "visual_norm."),
    (r"^aud_in_lnorm\.", "audio_norm."),
    (r"^OFF_tok$", "offset_token"),
    (r"^MOD_tok$", "audio_token"),
    (r"^pos_emb_cfg\.pos_emb$", "positions"),
    (r"^ln_f\.", "norm."),
    (r"^off_head\.", "classifier."),
    (r"\.ln1\.", ".norm1."),
    (r"\.ln2\.", ".norm2."),
    (r"\.mlp\.0\.", ".mlp.fc1."),
    (r"\.mlp\.2\.", ".mlp.fc2."),
)
