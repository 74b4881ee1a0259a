"""Names of 0.1 (arguments, keys, attributes) are accepted, each with a warning that gives the new one."""

import functools
import inspect
import warnings
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")

REMOVED_IN = "0.3"
"""The version that no longer reads the names of 0.1."""


def warn_deprecated(old: str, new: str) -> None:
    """Warn that a name is deprecated; Python shows each such warning once."""
    message = f"{old} is deprecated and will be removed in {REMOVED_IN}; use {new}."
    warnings.warn(message, FutureWarning, stacklevel=_callers_level())


def rename_deprecated(
    values: Mapping[str, Any], renamed: Mapping[str, str], prefix: str = "", file: str | Path | None = None
) -> dict[str, Any]:
    """`values` with deprecated keys under their present names, each with a warning that names the `file` they are from.

    `prefix` is the group of the keys.
    """
    found = dict(values)
    for old, new in renamed.items():
        if old in found:
            if new in found:
                raise ValueError(f"`{prefix}{old}` is the deprecated name of `{prefix}{new}`: remove one of them.")
            where = "" if file is None else f"{file}: "
            warn_deprecated(f"{where}`{prefix}{old}`", f"`{prefix}{new}`")
            found[new] = found.pop(old)
    return found


def deprecated_names(module: str, renamed: Mapping[str, Any]) -> Callable[[str], Any]:
    """The `__getattr__` of a module whose objects have had other names."""

    def get(name: str) -> Any:
        if name not in renamed:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        warn_deprecated(f"`{module}.{name}`", f"`{renamed[name].__name__}`")
        return renamed[name]

    return get


def renamed_arguments(**names: str | None) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """A decorator: `old="new"` passes an argument on by its new name, `old=None` drops one that has no meaning now.

    Example:
        >>> @renamed_arguments(batch="batch_size")
        ... def score(batch_size: int = 8) -> int:
        ...     return batch_size
        >>> with warnings.catch_warnings(action="ignore"):
        ...     score(batch=2)
        2
    """

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        @functools.wraps(function)
        def accept(*args: P.args, **kwargs: P.kwargs) -> R:
            for old in names.keys() & kwargs.keys():
                new, value = names[old], kwargs.pop(old)
                if new in kwargs:
                    raise TypeError(f"`{old}` is the deprecated name of `{new}` of {function.__qualname__}: pass one.")
                advice = f"use `{new}`" if new else "leave it out"
                message = (
                    f"`{old}` of {function.__qualname__} is deprecated and will be removed in {REMOVED_IN}; {advice}."
                )
                warnings.warn(message, FutureWarning, stacklevel=_callers_level())
                if new:
                    kwargs[new] = value
            return function(*args, **kwargs)

        accept.__dict__["renamed"] = names
        return accept

    return decorate


def check_arguments(name: str, given: Iterable[str], *takers: Callable[..., object]) -> None:
    """Raise `TypeError` for an argument that the function `name` would pass on and that none of `takers` has."""
    parameters = [one for taker in takers for one in inspect.signature(taker).parameters.values()]
    known = dict.fromkeys(one.name for one in parameters if one.kind is one.KEYWORD_ONLY)
    old = {argument for taker in takers for argument in getattr(taker, "renamed", ())}
    if wrong := [argument for argument in given if argument not in known and argument not in old]:
        raise TypeError(f"{name}() has no argument `{wrong[0]}`; by name it takes {', '.join(known)}.")


def _callers_level() -> int:
    """The `stacklevel` at which the line outside this package is that used the old name."""
    here, level = str(Path(__file__).parent), 1
    frame = inspect.currentframe()
    while frame is not None and frame.f_code.co_filename.startswith(here):
        frame, level = frame.f_back, level + 1
    return level - 1
