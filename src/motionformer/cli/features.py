"""`motionformer features`: a video's tokens, for what is built on top of the model."""

from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from motionformer.cli.options import (
    BatchSizeOption,
    DeviceOption,
    ModelOption,
    PrecisionOption,
    ProtocolOption,
    ResumeOption,
    SampleByOption,
    check_seconds,
    find_device,
)
from motionformer.cli.report import frames_cell, mute_other_ranks, print_failures, print_read_notes, progress

if TYPE_CHECKING:
    from rich.console import Console

FEATURES_HELP = """Write a model's features of videos: the class token, the mean of the patch tokens, or all of them.

One file a video in `--output`, with the arrays `values` (segments first) and `times` (seconds of each segment). Without
`--segments` a video is one clip, the middle one; with it, segments of so many seconds follow one another, whatever
the video's length. `--resume` leaves alone what is done. Under `torchrun` the processes share the videos.

Exit code: 0; 1 for an error, or if a video could not be read (the others are done, and it is listed); 2 for wrong
usage.

**Examples**

    motionformer features videos/ --output features

    motionformer features talk.mp4 --what tokens --segments 0.64 --format safetensors --dtype float16

    motionformer features videos/ --what pooled --block 6 --resume
"""


class WhatName(str, Enum):
    """Which tokens."""

    cls = "class"
    pooled = "pooled"
    tokens = "tokens"


class FormatName(str, Enum):
    """Of the files."""

    npz = "npz"
    safetensors = "safetensors"


class DtypeName(str, Enum):
    """Of the values."""

    full = "float32"
    half = "float16"


def features(
    paths: Annotated[list[str], typer.Argument(metavar="PATH…", help="Videos, folders, patterns.")],
    model: ModelOption = "k400_motionformer_224_16x4",
    what: Annotated[WhatName, typer.Option(help="class, pooled or tokens.")] = WhatName.cls,
    block: Annotated[str, typer.Option(help="Number of a block (from 0), or last (with the norm).")] = "last",
    segments: Annotated[float | None, typer.Option(help="Seconds of a segment; one clip a video unless said.")] = None,
    hop: Annotated[float | None, typer.Option(help="Seconds from one to the next; their length unless said.")] = None,
    protocol: ProtocolOption = None,
    sample_by: SampleByOption = None,
    output: Annotated[Path, typer.Option(help="Folder for the files.")] = Path("features"),
    format: Annotated[FormatName, typer.Option(help="npz or safetensors.")] = FormatName.npz,
    dtype: Annotated[DtypeName, typer.Option(help="float32 or float16.")] = DtypeName.full,
    resume: ResumeOption = False,
    batch_size: BatchSizeOption = 8,
    device: DeviceOption = "auto",
    precision: PrecisionOption = "32",
    time_limit: Annotated[float, typer.Option(min=0.1, help="Seconds for opening one video.")] = 60.0,
) -> None:
    from rich.console import Console

    from motionformer.evaluation.fingerprint import model_fingerprint
    from motionformer.evaluation.several import joined_processes
    from motionformer.predict import FeatureExtractor, find_inputs
    from motionformer.predict.feature_run import extract_all

    check_seconds(segments, "--segments")
    check_seconds(hop, "--hop")
    place = find_device(device)
    mute_other_ranks()
    videos = find_inputs(paths)
    extractor = FeatureExtractor.from_pretrained(
        model,
        place,
        protocol=protocol,
        what=what.value,
        block=_block(block),
        segments=segments,
        hop=hop,
        sample_by=sample_by,
        batch=batch_size,
        precision=precision,
        time_limit=time_limit,
    )
    about = {"weights": model_fingerprint(extractor.model), "precision": precision}
    say = Console(stderr=True, highlight=False, soft_wrap=True)
    with joined_processes(place) as processes:
        with progress(say, "features", len(videos), processes) as advance:
            entries = extract_all(
                extractor,
                videos,
                output,
                about=about,
                format=format.value,
                dtype=dtype.value,
                resume=resume,
                on_entry=advance,
            )
        is_first = processes.is_first
    failed = [entry for entry in entries if "failed" in entry]
    if is_first:
        _print(Console(highlight=False), [entry for entry in entries if "failed" not in entry])
        print_read_notes(say, entries)
        print_failures(say, failed, len(entries))
    if failed:
        raise typer.Exit(1)


def _block(text: str) -> Any:
    if text == "last":
        return text
    if not text.isdecimal():
        raise typer.BadParameter(f"{text!r} is neither a number nor last.", param_hint="--block")
    return int(text)


def _print(console: "Console", entries: list[dict[str, Any]]) -> None:
    from rich.markup import escape
    from rich.table import Table

    table = Table("file", "values", "frames")
    table.columns[0].overflow = "fold"
    for entry in entries:
        shape = "kept" if entry.get("kept") else " × ".join(map(str, entry["shape"]))
        table.add_row(escape(entry["file"]), shape, frames_cell(entry))
    if entries:
        console.print(table)
