"""LoRA by peft: low-rank adapters beside frozen layers, saved in peft's own format, merged into an ordinary model.

A folder of adapters holds peft's two files (`adapter_config.json`, `adapter_model.safetensors`) and, beside them,
`config.json` with the architecture and a fingerprint of the frozen weights that the adapters belong to. What was
trained whole (the head, newly initialised parameters) is in it too, as peft's `modules_to_save`.
"""

import hashlib
import json
import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from motionformer.errors import CheckpointError, RecipeError
from motionformer.models.config import ModelConfig
from motionformer.models.motionformer import Motionformer
from motionformer.models.training_data import TrainingData
from motionformer.weights.fit import LoadReport

log = logging.getLogger("motionformer")
ADAPTER_CONFIG, ADAPTER_WEIGHTS, CONFIG = "adapter_config.json", "adapter_model.safetensors", "config.json"
DEFAULT_TARGETS = ("qkv", "proj")
_PREFIX = "base_model.model."
"""Of every name in peft's files."""


@dataclass(frozen=True)
class LoraSpec:
    """`lora:RANK` or `lora:RANK:LAYERS`: rank of the adapters, and the layers of each block that have one.

    A layer is meant by the end of its name: `qkv`, `proj`, `fc1`, `fc2`, `to_query`, `time_attn.qkv`.
    """

    rank: int
    targets: tuple[str, ...] = DEFAULT_TARGETS

    @classmethod
    def parse(cls, text: str) -> "LoraSpec | None":
        """Of the words of `model.train`; None where they ask for something else or make no sense."""
        what, _, rest = text.partition(":")
        rank, colon, layers = rest.partition(":")
        targets = tuple(layers.split(",")) if colon else DEFAULT_TARGETS
        if what != "lora" or not (rank.isascii() and rank.isdigit()) or int(rank) < 1 or not all(targets):
            return None
        return cls(int(rank), targets)


def check_peft() -> None:
    """Before anything is done: an error that names the extra where peft is missing."""
    if find_spec("peft") is None:
        raise ModuleNotFoundError("LoRA needs peft: install the extra `motionformer[peft]`.", name="peft")


def attach_lora(model: Motionformer, lora: LoraSpec, new: Iterable[str] = ()) -> list[str]:
    """Wrap the target layers of every block in adapters that change nothing yet; all else is frozen.

    Layers among `new` (newly initialised parameters) get none: they are trained whole.

    Returns:
        Names of the wrapped layers.

    Raises:
        RecipeError: no layer of a block has such a name, or all that have it are new.
    """
    check_peft()
    names = _find_targets(model, lora, frozenset(new))
    with _without_import_noise():
        from peft import LoraConfig, inject_adapter_in_model
    inject_adapter_in_model(LoraConfig(r=lora.rank, lora_alpha=2 * lora.rank, target_modules=names), model)
    return names


def save_lora(
    folder: Path, config: ModelConfig, state: Mapping[str, Tensor], lora: LoraSpec, trained: Iterable[str], base: str
) -> list[str]:
    """Write the adapters of a trained model as a folder that peft and `load_model` read.

    Args:
        folder: where to; made where it does not exist.
        config: the model's.
        state: its weights, adapters included, as `state_dict` gives them.
        lora: what it was trained with.
        trained: names of parameters that were trained whole.
        base: the weights that it was initialised from.

    Returns:
        Names of layers whose adapter does nothing: it never got a gradient.
    """
    with _without_import_noise():
        from peft import LoraConfig
    layers = sorted({name.partition(".lora_")[0] for name in state if ".lora_" in name})
    whole = sorted({_module_of(name) for name in trained if ".lora_" not in name})
    tensors = {name.replace(".default.", "."): value for name, value in state.items() if ".lora_" in name}
    tensors |= {name: value for name, value in state.items() if _module_of(name) in whole}
    frozen = {n: v for n, v in plain_state(state).items() if _module_of(n) not in whole}
    folder.mkdir(parents=True, exist_ok=True)
    save_file({f"{_PREFIX}{name}": value.contiguous() for name, value in tensors.items()}, folder / ADAPTER_WEIGHTS)
    about = {"architecture": config.to_dict(), "base": {"from": base, "fingerprint": _fingerprint(frozen)}}
    (folder / CONFIG).write_text(json.dumps(about, indent=2) + "\n", encoding="utf-8")
    peft_config = LoraConfig(
        r=lora.rank,
        lora_alpha=2 * lora.rank,
        target_modules=layers,
        modules_to_save=whole,
        base_model_name_or_path=base,
        inference_mode=True,
    )
    peft_config.save_pretrained(str(folder))
    return _idle_layers(tensors)


def is_lora_folder(source: str | Path) -> bool:
    """Whether it holds adapters in peft's format."""
    return (Path(source).expanduser() / ADAPTER_CONFIG).is_file()


def load_lora(source: str | Path) -> tuple[Motionformer, LoadReport]:
    """The weights that adapters were trained on, with the adapters merged into them: an ordinary model.

    Raises:
        CheckpointError: files are missing or damaged, the base model is another one, or cannot be found.
        ModuleNotFoundError: peft is not installed.
    """
    from motionformer.weights.initial import load_initial_weights

    folder = Path(source).expanduser()
    check_peft()
    peft_config, about = (_read_json(folder / name) for name in (ADAPTER_CONFIG, CONFIG))
    try:
        model = Motionformer(ModelConfig.from_dict(about["architecture"], folder / CONFIG))
        fingerprint = str(about["base"]["fingerprint"])
        tensors = load_file(folder / ADAPTER_WEIGHTS)
    except (KeyError, TypeError, ValueError, OSError, SafetensorError) as error:
        raise CheckpointError(f"{folder}: not a folder of adapters that `finetune` wrote ({error}).") from error
    base = str(peft_config.get("base_model_name_or_path") or "")
    try:
        report = load_initial_weights(model, base)
    except CheckpointError as error:
        raise CheckpointError(f"{folder}: adapters of another base model than {base!r}: {error}") from error
    whole = set(peft_config.get("modules_to_save") or ())
    frozen = {name: value for name, value in model.state_dict().items() if _module_of(name) not in whole}
    if _fingerprint(frozen) != fingerprint:
        raise CheckpointError(
            f"{folder}: these are adapters of another base model: the frozen weights in {base!r} are not those that "
            f"they were trained on. Put the right ones there, or name them in {ADAPTER_CONFIG} "
            "(base_model_name_or_path)."
        )
    merge_lora(model, folder)
    model.training_data = TrainingData.load(folder)
    layers = {name.partition(".lora_")[0] for name in tensors if ".lora_" in name}
    merged = LoadReport(str(source), report.loaded, report.resized, {}, report.dropped, report.notes)
    merged.notes.append(f"adapters of {len(layers)} layers merged into {base}")
    if idle := _idle_layers(tensors):
        merged.notes.append(describe_idle(idle, len(layers)))
        log.warning("%s: %s", folder, merged.notes[-1])
    return model.eval(), merged


def merge_lora(model: Motionformer, folder: Path) -> None:
    """Add the adapters in `folder` to the weights of `model`, and replace what was trained whole."""
    with _without_import_noise():
        from peft import PeftModel
    try:
        adapted = PeftModel.from_pretrained(model, str(folder))
    except (RuntimeError, ValueError, KeyError) as error:
        raise CheckpointError(f"{folder}: the adapters do not fit the model ({str(error).splitlines()[0]}).") from error
    adapted.merge_and_unload()
    model.requires_grad_(True)


def plain_state(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The weights without their adapters, under the names of a model without any."""
    return {name.replace(".base_layer.", "."): value for name, value in state.items() if ".lora_" not in name}


def describe_idle(idle: list[str], layers: int) -> str:
    """One sentence on adapters that change nothing."""
    shown = ", ".join(idle[:4]) + (f" and {len(idle) - 4} more" if len(idle) > 4 else "")
    return (
        f"{len(idle)} of {layers} adapters do nothing ({shown}): their layers had no influence on the loss. "
        "Name other layers, as in lora:8:qkv,proj."
    )


def _find_targets(model: Motionformer, lora: LoraSpec, new: frozenset[str]) -> list[str]:
    layers = [
        name for name, layer in model.named_modules() if name.startswith("blocks.") and isinstance(layer, nn.Linear)
    ]
    found: list[str] = []
    for target in lora.targets:
        matching = [name for name in layers if name.endswith(f".{target}")]
        if not matching:
            known = ", ".join(sorted({name.rpartition(".")[2] for name in layers}))
            raise RecipeError(f"model.train: no layer of a block is called {target!r}; there are {known}.")
        old = [name for name in matching if f"{name}.weight" not in new]
        if not old:
            raise RecipeError(
                f"model.train: every layer called {target!r} is newly initialised and trained whole: an adapter "
                "would add nothing. Leave it out."
            )
        found += old
    return sorted(set(found))


def _module_of(parameter: str) -> str:
    """What peft saves whole for a parameter: the head, or the module that has it."""
    return "head" if parameter.startswith("head.") else parameter.rpartition(".")[0]


def _idle_layers(tensors: Mapping[str, Tensor]) -> list[str]:
    """Layers whose second matrix is still the zero that it began with."""
    return sorted(
        name.removeprefix(_PREFIX).partition(".lora_")[0]
        for name, value in tensors.items()
        if ".lora_B" in name and not value.any()
    )


def _fingerprint(frozen: Mapping[str, Tensor]) -> str:
    """Of the frozen weights; without position embeddings, which are interpolated with another rounding elsewhere."""
    digest = hashlib.sha256()
    for name, value in sorted(frozen.items()):
        if not name.startswith("positions."):
            digest.update(name.encode())
            digest.update(value.detach().cpu().float().contiguous().numpy().tobytes())
    return digest.hexdigest()[:16]


def _read_json(file: Path) -> dict[str, Any]:
    try:
        values = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{file}: cannot be read ({error}); adapters come with {CONFIG} beside them.") from error
    if not isinstance(values, dict):
        raise CheckpointError(f"{file}: holds a {type(values).__name__}, not named values.")
    return values


class _without_import_noise:  # noqa: N801
    """peft imports torchao where it is installed, which warns of kernels that another build of it has."""

    def __enter__(self) -> None:
        self.before = logging.root.manager.disable
        logging.disable(logging.WARNING)

    def __exit__(self, *error: object) -> None:
        logging.disable(self.before)
