"""Every model by name; a new one is a new line here."""

from collections.abc import Mapping
from dataclasses import fields, replace
from difflib import get_close_matches
from fnmatch import filter as match_names
from typing import Any, get_args

from motionformer.deprecation import rename_deprecated
from motionformer.errors import UnknownModelError
from motionformer.models.config import RENAMED, AdapterConfig, InputSpec, KernelConfig, ModelConfig, SamplingProtocol
from motionformer.models.motionformer import Motionformer

_BASE = ModelConfig()
_TINY = ModelConfig(
    dim=96,
    depth=4,
    num_heads=4,
    patch=8,
    hidden_head=False,
    drop_path=0.0,
    num_classes=8,
    input=InputSpec(frames=8, height=48, width=48, stride=1, views=1, crops=1),
)
_SMALL = ModelConfig(
    dim=384,
    depth=12,
    num_heads=6,
    hidden_head=False,
    drop_path=0.1,
    input=InputSpec(frames=8, height=112, width=112, views=2, crops=1),
)

VARIANTS: dict[str, ModelConfig] = {
    # the paper's models
    "motionformer-base": _BASE,
    "motionformer-hr": replace(_BASE, position_grid=(14, 14), input=InputSpec(height=336, width=336, stride=8)),
    "motionformer-l": replace(_BASE, input=InputSpec(frames=32, stride=3)),
    "motionformer-h": replace(
        _BASE,
        dim=1024,
        depth=24,
        num_heads=16,
        kernel=KernelConfig("orthoformer", num_prototypes=196),
        position_grid=(14, 14),
        input=InputSpec(height=336, width=336),
    ),
    # its comparisons
    "joint-base": replace(_BASE, attention="joint"),
    "divided-base": replace(_BASE, attention="divided"),
    "motionformer-base-orthoformer": replace(_BASE, kernel=KernelConfig("orthoformer")),
    "motionformer-base-nystrom": replace(_BASE, kernel=KernelConfig("nystrom")),
    "motionformer-base-performer": replace(_BASE, kernel=KernelConfig("performer")),
    "motionformer-base-avg-t": replace(_BASE, time="average"),
    "motionformer-base-norm-st": replace(_BASE, kernel=KernelConfig("norm_st")),
    # for CPUs and small data
    "motionformer-small": _SMALL,
    "joint-small": replace(_SMALL, attention="joint"),
    "divided-small": replace(_SMALL, attention="divided"),
    "motionformer-tiny": _TINY,
    "joint-tiny": replace(_TINY, attention="joint"),
    "divided-tiny": replace(_TINY, attention="divided"),
}


def create_model(
    name: str,
    *,
    num_classes: int | dict[str, int] | None = None,
    frames: int | None = None,
    size: int | tuple[int, int] | None = None,
    **overrides: Any,
) -> Motionformer:
    """A new model with random weights; `load_model` makes one with trained weights.

    Args:
        name: a variant (`list_models`); case, `-` and `_` make no difference.
        num_classes: a number, 0 for features only, or several heads by name [default: the variant's].
        frames: frames per clip [default: the variant's].
        size: height and width of a clip, or one number for both [default: the variant's].
        overrides: any other field of `ModelConfig`; `kernel` may be the name of a kernel, `adapter` that of a scheme.

    Returns:
        The model, in training mode.

    Raises:
        UnknownModelError: there is no such variant.
        ValueError: a field or a value that a model does not have.

    Example:
        >>> create_model("motionformer-tiny", num_classes=5, frames=16, kernel="orthoformer").config.grid
        (8, 6, 6)
    """
    return Motionformer(model_config(name, num_classes=num_classes, frames=frames, size=size, **overrides))


def list_models(filter: str = "*") -> list[str]:
    """Names that `create_model` takes.

    Args:
        filter: a shell pattern.

    Returns:
        The names, in alphabetical order.

    Example:
        >>> list_models("*-tiny")
        ['divided-tiny', 'joint-tiny', 'motionformer-tiny']
    """
    return sorted(match_names(VARIANTS, filter))


def model_config(name: str, **changes: Any) -> ModelConfig:
    """The configuration of a variant.

    Args:
        name: a variant (`list_models`).
        changes: as `create_model` takes them.

    Returns:
        The configuration.

    Raises:
        UnknownModelError: there is no such variant.

    Example:
        >>> model_config("motionformer-base", frames=32).grid
        (16, 14, 14)
    """
    config = VARIANTS.get(name.lower().replace("_", "-"))
    if config is None:
        close = get_close_matches(name, VARIANTS, n=1, cutoff=0.5)
        hint = f" Did you mean {close[0]!r}?" if close else ""
        raise UnknownModelError(f"there is no model {name!r}.{hint} There are: {', '.join(VARIANTS)}.")
    return adapt_config(config, **changes)


def adapt_config(
    config: ModelConfig,
    *,
    num_classes: int | dict[str, int] | None = None,
    frames: int | None = None,
    size: int | tuple[int, int] | None = None,
    protocol: SamplingProtocol | None = None,
    **overrides: Any,
) -> ModelConfig:
    """`config` with changes; None leaves a value as it is.

    Without `num_classes` there are as many classes as `labels`; other classes have no labels unless given.
    """
    overrides = rename_deprecated(overrides, RENAMED)
    known = {field.name for field in fields(ModelConfig)}
    unknown = sorted(set(overrides) - known)
    if unknown:
        raise ValueError(f"a model has no {', '.join(map(repr, unknown))}; it has {', '.join(sorted(known))}.")
    labels = overrides.get("labels")
    if labels is not None:
        overrides["labels"] = tuple(labels)
        num_classes = len(labels) if num_classes is None else num_classes
    if num_classes is not None:
        overrides["num_classes"] = num_classes
        if num_classes != config.num_classes:
            overrides.setdefault("labels", None)
    if isinstance(overrides.get("kernel"), str):
        overrides["kernel"] = replace(config.kernel, kind=overrides["kernel"])
    elif isinstance(overrides.get("kernel"), Mapping):
        overrides["kernel"] = KernelConfig.from_dict(overrides["kernel"])
    if isinstance(overrides.get("adapter"), str):
        overrides["adapter"] = AdapterConfig(overrides["adapter"])
    spec = overrides.get("input", config.input)
    if frames is not None:
        spec = replace(spec, frames=frames)
    if size is not None:
        height, width = (size, size) if isinstance(size, int) else size
        spec = replace(spec, height=height, width=width)
    if protocol is not None:
        if protocol not in get_args(SamplingProtocol):
            raise ValueError(f"`protocol` must be one of {', '.join(get_args(SamplingProtocol))}; not {protocol!r}.")
        spec = replace(spec, protocol=protocol)
    return replace(config, input=spec, **{key: value for key, value in overrides.items() if key != "input"})
