"""`load_model`: weights of ours, the authors' or other families', by file, folder or name, in one line."""

import logging
import shutil
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from fnmatch import filter as match_names
from pathlib import Path
from typing import Any

import torch
from huggingface_hub import hf_hub_download
from huggingface_hub.errors import EntryNotFoundError, HfHubHTTPError, HFValidationError, LocalEntryNotFoundError
from safetensors.torch import load_file, save_file
from torch import Tensor

from motionformer.errors import CheckpointError, DownloadError, UnknownModelError
from motionformer.models.config import ModelConfig, SamplingProtocol
from motionformer.models.motionformer import Motionformer
from motionformer.models.training_data import TRAINING_DATA, TrainingData
from motionformer.models.variants import VARIANTS, adapt_config
from motionformer.weights import synchformer
from motionformer.weights.checkpoint import SUFFIXES, Checkpoint, read_checkpoint
from motionformer.weights.download import download
from motionformer.weights.families import FAMILIES, PROCESSORS, convert_family, guess_family, is_family
from motionformer.weights.fit import PER_CLASS, LoadReport, fit_tensors
from motionformer.weights.lora import is_lora_folder, load_lora
from motionformer.weights.released import RELEASED, convert_released, is_released_layout

log = logging.getLogger("motionformer")
CONFIG, WEIGHTS, OLDER_WEIGHTS = "config.json", "model.safetensors", "pytorch_model.bin"
MOTION_TINY = "motion-tiny"
SHIPPED = {MOTION_TINY: Path(__file__).parent / MOTION_TINY}
"""Weights that come with the package: folders of `config.json`, `model.safetensors` and `training_data.json`."""


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
    """A model with trained weights, in evaluation mode.

    What was resized or newly initialised is logged; `load_model_with_report` returns it.

    Args:
        source: a folder made by `save_pretrained`, a folder of LoRA adapters (they are merged), a released `.pyth`
            file, a file of Synchformer (its visual half; `load_synchformer` reads all of it), a name of `list_weights`
            (released files are downloaded once), or `user/name` on the Hugging Face hub.
        num_classes: other classes; the classifier is then newly initialised [default: the weights'].
        frames: frames per clip; position embeddings are interpolated [default: the weights'].
        size: height and width of a clip, or one number for both; likewise [default: the weights'].
        protocol: sampling rules, `released` or `uniform` (docs/fidelity.md) [default: the weights'].
        num_heads: for released files that do not have it.
        overrides: any other field of `ModelConfig`.

    Returns:
        The model.

    Raises:
        UnknownModelError: no such file, folder or name.
        CheckpointError: the weights cannot be read, or do not fit.
        DownloadError: they could not be fetched.

    Example:
        >>> load_model("motion-tiny").config.num_classes
        8
    """
    model, report = load_model_with_report(
        source,
        protocol=protocol,
        num_heads=num_heads,
        num_classes=num_classes,
        frames=frames,
        size=size,
        **overrides,
    )
    log.log(logging.WARNING if report.changed else logging.INFO, "%s", report)
    return model


def list_weights(filter: str = "*") -> list[str]:
    """Names of weights that `load_model` takes: those of the package, the authors' released files, Synchformer.

    Args:
        filter: a shell pattern.

    Returns:
        The names.

    Example:
        >>> list_weights("k600*")
        ['k600_motionformer_224_16x4', 'k600_motionformer_224_32x3', 'k600_motionformer_336_16x8']
    """
    return match_names([*SHIPPED, *RELEASED, synchformer.SYNCHFORMER], filter)


def load_model_with_report(
    source: str | Path, *, protocol: SamplingProtocol | None = None, num_heads: int | None = None, **changes: Any
) -> tuple[Motionformer, LoadReport]:
    """`load_model`, and what happened to each tensor.

    Args:
        source: as in `load_model`.
        protocol: as in `load_model`.
        num_heads: as in `load_model`.
        changes: further arguments of `load_model`.

    Returns:
        The model and the report.

    Raises:
        MotionformerError: as in `load_model`.

    Example:
        >>> model, report = load_model_with_report("motion-tiny", frames=16)
        >>> report
        LoadReport('motion-tiny': 78 tensors loaded, 1 resized, 0 reset, 0 dropped)
    """
    if is_lora_folder(source):
        asked = [name for name, value in (("protocol", protocol), *changes.items()) if value is not None]
        if asked:
            raise CheckpointError(
                f"{source}: these are adapters: merge them first (`motionformer convert`), then change `{asked[0]}`."
            )
        return load_lora(source)
    checkpoint = read_checkpoint(find_weights(source))
    report = LoadReport(str(source))
    config, tensors, report.dropped, report.notes = _interpret(checkpoint, num_heads)
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
    wanted = adapt_config(config, protocol=protocol, **changes)
    if wanted.grid != config.grid:  # position embeddings of the new size, so that they can be trained at it
        wanted = replace(wanted, **config.resized_positions())
    may_reset: tuple[str, ...] = (".kernel.projection",)
    if wanted.num_classes != config.num_classes:
        may_reset += PER_CLASS
    if wanted.readout != config.readout:
        may_reset += ("readout.",)
        kept = {name: value for name, value in tensors.items() if not name.startswith("readout.")}
        report.dropped |= dict.fromkeys(tensors.keys() - kept.keys(), "the model has another readout")
        tensors = kept
    model = Motionformer(wanted)
    fit_tensors(model, tensors, table, report, may_reset=may_reset)
    model.training_data = _read_training_data(checkpoint)
    return model.eval(), report


def _is_undecided(checkpoint: Checkpoint, config: ModelConfig) -> bool:
    """Whether a folder of ours comes from released weights and has no sampling protocol."""
    if is_released_layout(checkpoint.tensors) or config.source not in ("released", *RELEASED):
        return False
    return "protocol" not in checkpoint.cfg["architecture"].get("input", {})


def _read_training_data(checkpoint: Checkpoint) -> TrainingData | None:
    """Which videos our own weights were trained on, where that is known."""
    if checkpoint.path.name != WEIGHTS or is_released_layout(checkpoint.tensors):
        return None
    try:
        return TrainingData.load(checkpoint.path.parent)
    except ValueError as error:
        raise CheckpointError(str(error)) from error


def read_config(source: str | Path) -> ModelConfig:
    """The configuration of the model that `source` has the weights of."""
    return read_config_and_notes(source)[0]


def read_config_and_notes(source: str | Path) -> tuple[ModelConfig, list[str]]:
    """`read_config`, and what is to be known about the weights."""
    config, _, _, notes = _interpret(read_checkpoint(find_weights(source)), None)
    return config, notes


def find_weights(source: str | Path) -> Path:
    """The weights file that `source` means; fetches it if it is a name."""
    path = Path(source).expanduser()
    if path.is_dir():
        for file in (WEIGHTS, OLDER_WEIGHTS):
            if (path / file).is_file():
                return path / file
        if is_lora_folder(path):
            raise CheckpointError(f"{path}: these are adapters: merge them first (`motionformer convert`).")
        raise CheckpointError(
            f"{path}: a folder of weights holds {CONFIG} and {WEIGHTS} (or {OLDER_WEIGHTS}); this one does not."
        )
    if path.exists():
        return path
    name = str(source)
    if name in SHIPPED:
        return SHIPPED[name] / WEIGHTS
    if name in RELEASED:
        return download(RELEASED[name].filename, sha256=RELEASED[name].sha256)
    if name == synchformer.SYNCHFORMER:
        return synchformer.find_file(name)
    if name.lower().replace("_", "-") in VARIANTS:
        raise UnknownModelError(
            f"{name!r} is an architecture without weights: create_model({name!r}) makes a new one. "
            f"Released weights: {', '.join(RELEASED)}."
        )
    if is_hub_name(name):
        try:
            found = fetch_from_hub(name, WEIGHTS, CONFIG)
        except DownloadError as error:
            absent = isinstance(error.__cause__, EntryNotFoundError)  # the file, not the connection
            if not absent or isinstance(error.__cause__, LocalEntryNotFoundError):
                raise
            found = fetch_from_hub(name, OLDER_WEIGHTS, CONFIG)
        for file in (TRAINING_DATA, *PROCESSORS):
            with suppress(DownloadError):  # our models may have the first, other families the others
                fetch_from_hub(name, file)
        return found
    raise UnknownModelError(
        f"{name!r} is no file, no folder, and no released name. Released weights: {', '.join(RELEASED)}; with the "
        f"package: {', '.join(SHIPPED)}."
    )


def ship(trained: str | Path, name: str = MOTION_TINY) -> Path:
    """Store a trained folder under a name of `SHIPPED`, in float16. `motion-tiny` is the recipe `motion/easy`."""
    trained, target = Path(trained), SHIPPED[name]
    target.mkdir(parents=True, exist_ok=True)
    tensors = load_file(trained / WEIGHTS)
    save_file({key: value.to(torch.float16) for key, value in tensors.items()}, target / WEIGHTS)
    for file in (CONFIG, TRAINING_DATA):
        if (trained / file).exists():
            shutil.copyfile(trained / file, target / file)
    return target


def short_name(source: str | Path) -> str:
    """What to call a model in a picture or a table: the last part of its path; a run's `RUN/model` by the run."""
    path = Path(source)
    parts = [part for part in path.parts if part not in ("model", "/", ".", "..")]
    return parts[-1] if parts else str(source)


def is_video_model(checkpoint: Checkpoint) -> bool:
    """Whether these are weights of a video model that is known here; timm's `architecture` is a name."""
    described = not isinstance(checkpoint.cfg.get("architecture", ""), str) or is_family(checkpoint.cfg)
    tensors = checkpoint.tensors
    return described or is_released_layout(tensors) or synchformer.is_synchformer_layout(tensors)


def is_hub_name(source: str | Path) -> bool:
    """Whether it reads as `user/name`, possibly with dots, and not as a weights file in a folder."""
    user, slash, name = str(source).partition("/")
    is_file = name.endswith((*SUFFIXES, ".onnx", ".pt2", ".xml", ".yaml", ".json"))
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


_Interpreted = tuple[ModelConfig, dict[str, Tensor], dict[str, str], list[str]]


def _interpret(checkpoint: Checkpoint, num_heads: int | None) -> _Interpreted:
    """The model that these are the weights of, its tensors, which were left out, and notes; errors name the file."""
    try:
        return _identify(checkpoint, num_heads)
    except CheckpointError as error:
        raise CheckpointError(f"{checkpoint.path}: {error}") from error
    except (TypeError, ValueError, ArithmeticError, AttributeError, LookupError) as error:
        raise CheckpointError(f"{checkpoint.path}: its configuration does not describe a model ({error}).") from error


def _identify(checkpoint: Checkpoint, num_heads: int | None) -> _Interpreted:
    """Whose weights these are: the authors', or by the `config.json` beside them another family's or ours."""
    tensors = checkpoint.tensors
    if is_released_layout(tensors):
        return convert_released(tensors, checkpoint.cfg, num_heads)
    if synchformer.is_synchformer_layout(tensors):
        return synchformer.convert_visual(tensors, num_heads)
    if is_family(checkpoint.cfg):
        config, tensors, dropped, notes = convert_family(checkpoint)
        _check_heads(config, num_heads)
        return config, tensors, dropped, notes
    if is_video_model(checkpoint):
        config = _read_architecture(checkpoint)
        _check_heads(config, num_heads)
        return config, {name.replace(".attend.", ".kernel."): value for name, value in tensors.items()}, {}, []
    family = guess_family(tensors)
    if family is not None:
        raise CheckpointError(
            f"these are the tensors of {family}, but no {CONFIG} beside them says so: put the one that was published "
            "with them there."
        )
    if any(name.endswith("cls_token") for name in tensors) or any(".encoder.layer." in f".{name}" for name in tensors):
        raise CheckpointError(
            "these are image weights: initialise a video model from them with from_image_weights(...), or with "
            "--from-image (convert, davis, track)."
        )
    by = (
        f"its model_type is {checkpoint.cfg['model_type']!r}"
        if "model_type" in checkpoint.cfg
        else f"no {CONFIG} beside it"
    )
    titles = ", ".join(one.title for one in FAMILIES.values())
    raise CheckpointError(
        f"neither a released video model (no 'temp_embed' or 'st_embed'), nor one of ours, nor of {titles} ({by})."
    )


def _check_heads(config: ModelConfig, num_heads: int | None) -> None:
    if num_heads not in (None, config.num_heads):
        raise CheckpointError(
            f"by {CONFIG} the model has {config.num_heads} heads, not {num_heads}. Leave num_heads out: it is for "
            "released files that do not have it."
        )


def _read_architecture(checkpoint: Checkpoint) -> ModelConfig:
    """The model that `config.json` describes; an error if it cannot be built, which is tried without memory."""
    try:
        config = ModelConfig.from_dict(checkpoint.cfg["architecture"], checkpoint.path.with_name(CONFIG))
        with torch.device("meta"):
            Motionformer(config)
    except (TypeError, ValueError, ArithmeticError, AttributeError, LookupError, RuntimeError) as error:
        raise CheckpointError(f"{CONFIG} does not describe a model ({error}).") from error
    return config
