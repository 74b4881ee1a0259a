"""Values of a configuration that comes from a file: the type that the field declares, within what can be built.

A configuration is anybody's text. Without these checks a depth of 10⁹ fills the memory, and views of "x" fail after the
first video was decoded. The limits are far beyond any model that exists.
"""

import math
import reprlib
from collections.abc import Mapping, Sequence
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin

_LIMITS: dict[str, dict[str, tuple[float, float]]] = {
    "ModelConfig": {
        "dim": (1, 65536),
        "depth": (0, 1000),
        "num_heads": (1, 1024),
        "mlp_ratio": (0, 64),
        "norm_eps": (0, 1),
        "patch": (1, 4096),
        "tubelet": (1, 4096),
        "num_prefix_tokens": (0, 4096),
        "position_grid": (1, 16384),
        "position_frames": (1, 16384),
        "num_classes": (0, 10_000_000),
        "readout_depth": (0, 100),
        "drop_path": (0, 1),
        "dropout": (0, 1),
        "attention_dropout": (0, 1),
        "head_dropout": (0, 1),
        "chunk_size": (1, 1_000_000_000),
    },
    "KernelConfig": {
        "num_prototypes": (1, 1_000_000),
        "subsample": (1, 1_000_000),
        "ridge": (0, 1_000_000),
        "num_features": (1, 16384),
    },
    "AdapterConfig": {"every": (1, 1000), "width": (0, 65536), "num_heads": (0, 1024)},
    "InputSpec": {
        "frames": (1, 16384),
        "height": (1, 16384),
        "width": (1, 16384),
        "stride": (1, 100_000),
        "fps": (0.001, 100_000),
        "mean": (-1000, 1000),
        "std": (1e-6, 1000),
        "views": (1, 10_000),
        "crops": (1, 100),
        "hop": (1, 1_000_000),
    },
}
"""Smallest and largest number of a field; of a field of several, of each."""
_WORDS = {int: "a whole number", float: "a number", bool: "true or false", str: "text", NoneType: "null"}
_short = reprlib.repr
"""A hostile value may be large, or refer to itself a billion times: an error shows its beginning."""


def check_value(owner: type[Any], name: str, value: Any, hint: Any) -> None:
    """Raise `ValueError`, with the name of the field, unless `value` is of the type `hint` and within its limits."""
    if not _fits(value, hint):
        raise ValueError(f"`{name}` must be {_describe(hint)}; not {_short(value)}.")
    limits = _LIMITS.get(owner.__name__, {}).get(name)
    if limits is None:
        return
    numbers = value.values() if isinstance(value, Mapping) else value if isinstance(value, Sequence) else [value]
    for number in numbers:
        if number is not None and not limits[0] <= number <= limits[1]:
            raise ValueError(f"`{name}` ({_short(value)}) must be from {limits[0]:,} to {limits[1]:,}.")


def _fits(value: Any, hint: Any) -> bool:
    kind, inside = get_origin(hint), get_args(hint)
    if hint is Any:
        return True
    if kind in (Union, UnionType):
        return any(_fits(value, one) for one in inside)
    if kind is Literal:
        return isinstance(value, str) and value in inside
    if kind is tuple:
        if not isinstance(value, (tuple, list)):
            return False
        hints = [inside[0]] * len(value) if inside[-1] is Ellipsis else inside
        return len(hints) == len(value) and all(map(_fits, value, hints))
    if kind is dict:
        return isinstance(value, Mapping) and all(
            _fits(key, inside[0]) and _fits(one, inside[1]) for key, one in value.items()
        )
    if hint is float:
        return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
    if hint is int:
        return isinstance(value, int) and not isinstance(value, bool)
    return isinstance(value, hint)


def _describe(hint: Any) -> str:
    kind, inside = get_origin(hint), get_args(hint)
    if kind in (Union, UnionType):
        return " or ".join(map(_describe, inside))
    if kind is Literal:
        return f"one of {', '.join(map(str, inside))}"
    if kind is tuple:
        return (
            f"a list of {_describe(inside[0])} each" if inside[-1] is Ellipsis else f"a list of {len(inside)} numbers"
        )
    if kind is dict:
        return f"a group of {_describe(inside[1])} each" if inside[1] is not Any else "a group of options"
    return _WORDS.get(hint, "a group of settings")
