"""Old names of arguments are accepted, with a warning that gives the new one."""

import functools
import warnings
from collections.abc import Callable
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")


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
                advice = f"use `{new}`" if new else "leave it out"
                warnings.warn(
                    f"`{old}` of {function.__qualname__} is deprecated; {advice}.", DeprecationWarning, stacklevel=2
                )
                if new:
                    kwargs[new] = value
            return function(*args, **kwargs)

        return accept

    return decorate
