"""How commands print: consoles, JSON, tables, and what was wrong with videos."""

import json
import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console

_MAX_NAMED = 20  # videos that are listed by name


def plain_console(*, stderr: bool = False, quiet: bool = False) -> "Console":
    """Prints names of files and classes as they are: no markup, no :emoji:, no line breaks inside paths."""
    from rich.console import Console

    return Console(stderr=stderr, quiet=quiet, highlight=False, markup=False, emoji=False, soft_wrap=True)


def print_json(value: object) -> None:
    print(json.dumps(value, indent=2))


def print_table(
    columns: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    title: str = "",
    right: Sequence[str] = (),
    wrap: Sequence[str] | None = None,
    compact: bool = False,
    last_apart: bool = False,
) -> None:
    """A table. Columns in `right` are aligned right; only those in `wrap` are wrapped [default: all]."""
    from rich.box import HEAVY_HEAD, SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    box = SIMPLE_HEAD if compact else HEAVY_HEAD
    table = Table(title=title or None, title_justify="left", box=box, show_edge=not compact, pad_edge=not compact)
    for name in columns:
        is_fixed = wrap is not None and name not in wrap
        table.add_column(name, justify="right" if name in right else "left", overflow="fold", no_wrap=is_fixed)
    listed = list(rows)
    for index, row in enumerate(listed):
        if last_apart and index == len(listed) - 1:
            table.add_section()
        table.add_row(*map(Text, row))
    Console(highlight=False).print(table)


def print_facts(
    facts: Mapping[str, str] | Iterable[tuple[str, str]], *, title: str = "", console: "Console | None" = None
) -> None:
    """Names in bold beside their values."""
    from rich.console import Console
    from rich.table import Table

    table = Table(title=title or None, title_justify="left", show_header=False)
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in facts.items() if isinstance(facts, Mapping) else facts:
        table.add_row(name, value)
    (console or Console(highlight=False, markup=False, emoji=False)).print(table)


def frames_cell(entry: dict[str, Any]) -> str:
    """For a table: distinct frames of a clip, and whether the video is damaged; empty where it is not known."""
    if "frames" not in entry:
        return ""
    frames, distinct = entry["frames"], entry["distinct_frames"]
    cell = str(frames) if distinct == frames else f"{distinct} of {frames}"
    return f"{cell}, damaged" if entry["damaged"] else cell


def print_problems(entries: Sequence[dict[str, Any]]) -> None:
    """On stderr: how many videos repeat frames, which are damaged, and which could not be read and why."""
    from motionformer.inference.results import read_notes, summarise_reads
    from motionformer.video.source import ReadFacts

    console = plain_console(stderr=True)
    facts = [ReadFacts(*(entry[key] for key in ReadFacts.__match_args__)) for entry in entries if "frames" in entry]
    for note in read_notes(summarise_reads(facts)):
        console.print(f"note: {note}", style="yellow")
    damaged = [f"damaged: {entry['video']}" for entry in entries if entry.get("damaged")]
    failed = [f"{entry['video']}: {entry['failed']}" for entry in entries if "failed" in entry]
    for lines in (damaged, failed):
        if lines and lines is failed:
            console.print(f"{len(failed)} of {len(entries)} videos could not be read:", style="red")
        for line in lines[:_MAX_NAMED]:
            console.print(f"  {line}")
        if len(lines) > _MAX_NAMED:
            console.print(f"  … and {len(lines) - _MAX_NAMED} more")


def mute_other_ranks() -> None:
    """Of several processes, only the first logs warnings: all notice the same."""
    from motionformer.distributed import is_rank_zero

    if not is_rank_zero():
        logging.getLogger("motionformer").setLevel(logging.ERROR)
