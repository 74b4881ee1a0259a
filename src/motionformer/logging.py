"""One logger, `motionformer`: messages of a running job, and warnings.

Commands show it on stderr; a program configures it as any other logger.
"""

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)

from motionformer.distributed import is_rank_zero

logger = logging.getLogger("motionformer")
console = Console(stderr=True, highlight=False, markup=False, emoji=False)
"""Shared with progress bars, so that messages are printed above them."""


@contextmanager
def show_messages(level: int | None = logging.INFO) -> Iterator[None]:
    """Show the package's messages on stderr inside the block: all on rank zero, warnings of every other rank.

    Args:
        level: lowest level to show; `None` shows errors only.
    """
    handler = _PlainHandler()
    shown = logging.ERROR if level is None else level
    handler.setLevel(shown if is_rank_zero() else max(shown, logging.WARNING))
    before, propagate = logger.level, logger.propagate
    logger.addHandler(handler)
    logger.setLevel(min(shown, logging.WARNING))
    logger.propagate = False  # a program that runs a command in its own process has handlers of its own
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(before)
        logger.propagate = propagate


def progress_bar(*, show: bool = True, in_bytes: bool = False) -> Progress:
    """On stderr of rank zero, if it is a terminal; gone when done."""
    counts = (DownloadColumn(), TransferSpeedColumn()) if in_bytes else (MofNCompleteColumn(),)
    columns = (TextColumn("{task.description}"), BarColumn(), *counts, TimeRemainingColumn())
    hidden = not (show and console.is_terminal and is_rank_zero())
    return Progress(*columns, console=console, transient=True, disable=hidden)


def show_count(number: int, unit: str) -> str:
    """`1 step`, `2 steps`; `1 class`, `2 classes`."""
    return f"{number} {unit}{'' if number == 1 else 'es' if unit.endswith('s') else 's'}"


def show_some(names: Sequence[str], count: int = 4) -> str:
    """The first names, quoted, and how many more there are."""
    return ", ".join(map(repr, names[:count])) + (f" and {len(names) - count} more" if len(names) > count else "")


class _PlainHandler(logging.Handler):
    """Messages as they are, by rich, above a progress bar that may be running; paths are not wrapped or coloured."""

    def emit(self, record: logging.LogRecord) -> None:
        try:
            text = self.format(record)
            if record.levelno >= logging.WARNING:
                console.print(f"{record.levelname.lower()}: {text}", style="yellow", soft_wrap=True)
            else:
                console.print(text, soft_wrap=True)
        except Exception:
            self.handleError(record)
