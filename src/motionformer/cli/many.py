"""What commands over many videos share: a bar while they run, a list of what failed at the end."""

import logging
import os
from collections.abc import Sequence
from enum import Enum
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from rich.console import Console

    from motionformer.models.config import SamplingProtocol

NAMED = 20


class ProtocolName(str, Enum):
    """By which rules clips are cut from videos."""

    uniform = "uniform"
    released = "released"


ProtocolOption = Annotated[
    ProtocolName | None,
    typer.Option(help="How clips are cut and resized, docs/fidelity.md. [default: the weights' own]"),
]


def protocol_value(protocol: ProtocolName | None) -> "SamplingProtocol | None":
    return None if protocol is None else protocol.value


def tell_failures(console: "Console", failed: Sequence[dict[str, Any]], total: int) -> None:
    """How many videos could not be read, which, and why."""
    if not failed:
        return
    console.print(f"{len(failed)} of {total} videos could not be read:", style="red")
    for entry in failed[:NAMED]:
        console.print(f"  {entry['video']}: {entry['failed']}", markup=False)
    if len(failed) > NAMED:
        console.print(f"  … and {len(failed) - NAMED} more")


def frames_cell(entry: dict[str, Any]) -> str:
    """For a table: how many frames of a clip differ, and whether the video is damaged; empty where it is not known."""
    if "frames" not in entry:
        return ""
    frames, distinct = entry["frames"], entry["distinct_frames"]
    cell = str(frames) if distinct == frames else f"{distinct} of {frames}"
    return f"{cell}, damaged" if entry["damaged"] else cell


def tell_reads(console: "Console", entries: Sequence[dict[str, Any]]) -> None:
    """How many videos repeat frames, and how many are damaged, and which."""
    from motionformer.inference.report import read_notes, summarise_reads
    from motionformer.video import ReadFacts

    facts = [ReadFacts(*(entry[key] for key in ReadFacts.__match_args__)) for entry in entries if "frames" in entry]
    for note in read_notes(summarise_reads(facts)):
        console.print(f"note: {note}", style="yellow", markup=False)
    damaged = [entry["video"] for entry in entries if entry.get("damaged")]
    for video in damaged[:NAMED]:
        console.print(f"  damaged: {video}", markup=False)
    if len(damaged) > NAMED:
        console.print(f"  … and {len(damaged) - NAMED} more")


def only_first_talks() -> None:
    """Of several processes, the others keep what they notice to themselves: the first notices the same."""
    if os.environ.get("RANK", "0") != "0":
        logging.getLogger("motionformer").setLevel(logging.ERROR)
