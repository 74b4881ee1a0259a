"""`load_model`: any weights of ours or the authors', by file, folder or name, in one line."""

import logging
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from huggingface_hub import hf_hub_download
from huggingface_hub.errors import EntryNotFoundError, HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

from motionformer.errors import CheckpointError, DownloadError, UnknownModelError
from motionformer.models.config import ModelConfig, SamplingProtocol
from motionformer.models.motionformer import Motionformer
from motionformer.models.training_data import TRAINING_DATA, TrainingData
from motionformer.models.variants import VARIANTS, adapt_config
from motionformer.weights.checkpoint import SUFFIXES, Checkpoint, read_checkpoint
from motionformer.weights.download import download
from motionformer.weights.fit import PER_CLASS, fit_tensors
from motionformer.weights.released import (
    RELEASED,
    convert_released,
    ignored_settings,
    infer_config,
    is_released_layout,
)
from motionformer.weights.report import LoadReport
from motionformer.weights.shipped import SHIPPED

log = logging.getLogger("motionformer")
CONFIG, WEIGHTS = "config.json", "model.safetensors"


def load_model(
    source: str | Path,
    *,
    num_classes: int | dict[str, int] | None = None,
    frames: int | None = None,
    size: int | tuple[int, int] | None = None,
    protocol: SamplingProtocol | None = None,
    num_heads: int | None = None,
    **overrides: Any,
) -> Motionformer:
    """A model with weights, in evaluation mode.

    `source` is a folder made by `save_pretrained`, a released `.pyth` file, a released name such as
    `k400_motionformer_224_16x4` (downloaded once), `motion-tiny`, which comes with the package, or `user/name` on the
    Hugging Face hub. Other class counts, frame counts and sizes may be asked for; what was resized or reset for them
    is logged (`load_model_with_report` returns it). `protocol` says by which rules its clips are cut, `released` or
    `uniform` (docs/fidelity.md); the weights' own by default. `num_heads` is for released files that do not say how
    many heads they have.
    """
    model, report = load_model_with_report(
        source,
        num_classes=num_classes,
        frames=frames,
        size=size,
        protocol=protocol,
        num_heads=num_heads,
        **overrides,
    )
    log.log(logging.WARNING if report.changed else logging.INFO, "%s", report)
    return model


def load_model_with_report(
    source: str | Path,
    *,
    num_classes: int | dict[str, int] | None = None,
    frames: int | None = None,
    size: int | tuple[int, int] | None = None,
    protocol: SamplingProtocol | None = None,
    num_heads: int | None = None,
    **overrides: Any,
) -> tuple[Motionformer, LoadReport]:
    """`load_model`, and what happened to every tensor."""
    checkpoint = read_checkpoint(find_weights(source))
    report = LoadReport(str(source))
    config, tensors, report.dropped = _interpret(checkpoint, num_heads)
    if is_released_layout(checkpoint.tensors):
        report.notes += ignored_settings(checkpoint.cfg, config)
    _, rows, columns = config.grid
    table = (config.position_frames or config.grid[0], *(config.position_grid or (rows, columns)))
    if str(source) in RELEASED:
        released = RELEASED[str(source)]
        config = replace(config, input=released.input, source=released.name)
    elif protocol is None and _is_undecided(checkpoint, config):
        log.warning(
            "note: %s was saved before weights carried a sampling protocol, and is used with `uniform`. If it was "
            "converted from released weights and not trained since, convert it again, or pass `protocol`: `released`.",
            source,
        )
    wanted = adapt_config(config, num_classes=num_classes, frames=frames, size=size, protocol=protocol, **overrides)
    if wanted.grid != config.grid:  # tables of the size that was asked for, so that they can be trained there
        wanted = replace(wanted, position_grid=None, position_frames=None)
    may_reset: tuple[str, ...] = (".attend.projection",)
    if wanted.num_classes != config.num_classes:
        may_reset += PER_CLASS
    model = Motionformer(wanted)
    fit_tensors(model, tensors, table, report, may_reset=may_reset)
    model.training_data = read_training_data(checkpoint)
    return model.eval(), report


def _is_undecided(checkpoint: Checkpoint, config: ModelConfig) -> bool:
    """Whether a folder of ours comes from released weights and does not say how its clips are cut."""
    if is_released_layout(checkpoint.tensors) or config.source not in ("released", *RELEASED):
        return False
    return "protocol" not in checkpoint.cfg["architecture"].get("input", {})


def read_training_data(checkpoint: Checkpoint) -> TrainingData | None:
    """Which videos our own weights have learnt from; None where nothing beside them says."""
    if checkpoint.path.name != WEIGHTS or is_released_layout(checkpoint.tensors):
        return None
    try:
        return TrainingData.load(checkpoint.path.parent)
    except ValueError as error:
        raise CheckpointError(str(error)) from error


def read_config(source: str | Path) -> ModelConfig:
    """What model `source` holds the weights of, without building it."""
    checkpoint = read_checkpoint(find_weights(source))
    return _interpret(checkpoint, None)[0]


def find_weights(source: str | Path) -> Path:
    """The weights file that `source` means; fetches it if it is a name."""
    path = Path(source).expanduser()
    if path.is_dir():
        if (path / WEIGHTS).is_file():
            return path / WEIGHTS
        raise CheckpointError(f"{path}: a folder of weights holds {CONFIG} and {WEIGHTS}; this one does not.")
    if path.exists():
        return path
    name = str(source)
    if name in SHIPPED:
        return SHIPPED[name] / WEIGHTS
    if name in RELEASED:
        return download(RELEASED[name].filename, sha256=RELEASED[name].sha256)
    if name.lower().replace("_", "-") in VARIANTS:
        raise UnknownModelError(
            f"{name!r} is an architecture without weights: create_model({name!r}) makes a new one. "
            f"Released weights: {', '.join(RELEASED)}."
        )
    if is_hub_name(name):
        found = fetch_from_hub(name, WEIGHTS, CONFIG)
        with suppress(EntryNotFoundError):  # models that do not say what they were trained on have none
            hf_hub_download(name, TRAINING_DATA)
        return found
    raise UnknownModelError(
        f"{name!r} is no file, no folder, and no released name. Released weights: {', '.join(RELEASED)}; with the "
        f"package: {', '.join(SHIPPED)}."
    )


def short_name(source: str | Path) -> str:
    """What to call a model in a picture or a table: the last part of where it is from.

    A run keeps its model in `RUN/model`; that one is called after the run.
    """
    path = Path(source)
    parts = [part for part in path.parts if part not in ("model", "/", ".", "..")]
    return parts[-1] if parts else str(source)


def is_video_model(checkpoint: Checkpoint) -> bool:
    """Whether these are the authors' weights or ours; timm's `config.json` has an architecture too, by name."""
    described = not isinstance(checkpoint.cfg.get("architecture", ""), str)
    return described or is_released_layout(checkpoint.tensors)


def is_hub_name(source: str | Path) -> bool:
    """Whether it reads as `user/name`, possibly with dots, and not as a weights file in a folder."""
    user, slash, name = str(source).partition("/")
    is_file = name.endswith((*SUFFIXES, ".onnx", ".pt2", ".yaml", ".json"))
    return bool(slash and name) and "/" not in name and user not in ("", ".", "..", "~") and not is_file


def fetch_from_hub(repo: str, *files: str, get: Callable[..., str] = hf_hub_download) -> Path:
    """The first of `files` from a Hugging Face repository, the others beside it."""
    try:
        paths = [Path(get(repo, file)) for file in files]
    except (HfHubHTTPError, HFValidationError, LocalEntryNotFoundError, OSError) as error:
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise DownloadError(
            f"{repo}: could not fetch {', '.join(files)} from the Hugging Face hub ({reason}). Offline: put the files "
            f"in a folder and give its path."
        ) from error
    return paths[0]


def _interpret(checkpoint: Checkpoint, num_heads: int | None) -> tuple[ModelConfig, dict[str, Any], dict[str, str]]:
    """The model that these are the weights of, its tensors, and which were left out; errors name the file."""
    try:
        return _identify(checkpoint, num_heads)
    except CheckpointError as error:
        raise CheckpointError(f"{checkpoint.path}: {error}") from error
    except (TypeError, ValueError, ArithmeticError, AttributeError, LookupError) as error:
        raise CheckpointError(f"{checkpoint.path}: its configuration does not describe a model ({error}).") from error


def _identify(checkpoint: Checkpoint, num_heads: int | None) -> tuple[ModelConfig, dict[str, Any], dict[str, str]]:
    """Whose weights these are: ours (with `config.json` beside them) or the authors'."""
    tensors = checkpoint.tensors
    if is_released_layout(tensors):
        config = infer_config(tensors, checkpoint.cfg, num_heads)
        if config.dim % config.num_heads:
            raise CheckpointError(f"a width of {config.dim} is no multiple of {config.num_heads} heads.")
        return config, *convert_released(tensors, config)
    if is_video_model(checkpoint):
        config = _read_architecture(checkpoint.cfg["architecture"])
        if num_heads not in (None, config.num_heads):
            raise CheckpointError(
                f"{CONFIG} says that the model has {config.num_heads} heads, not {num_heads}. Leave num_heads out: it"
                " is for released files that do not say."
            )
        return config, tensors, {}
    if "cls_token" in tensors or any(".encoder.layer." in f".{name}" for name in tensors):
        raise CheckpointError(
            "these are image weights: start a video model from them with from_image_weights(...), or with --from-image"
            " (convert, davis, track)."
        )
    raise CheckpointError(
        f"neither a released video model (no 'temp_embed' or 'st_embed') nor one of ours (no {CONFIG} beside it)."
    )


def _read_architecture(values: Any) -> ModelConfig:
    """The model that `config.json` describes; an error if it cannot be built, which is tried without memory."""
    try:
        config = ModelConfig.from_dict(values)
        with torch.device("meta"):
            Motionformer(config)
    except (TypeError, ValueError, ArithmeticError, AttributeError, LookupError, RuntimeError) as error:
        raise CheckpointError(f"{CONFIG} does not describe a model ({error}).") from error
    return config
