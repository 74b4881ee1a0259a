"""`motionformer data check` and `motionformer data shard`"""

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from motionformer.cli.options import (
    ClassNamesOption,
    KindOption,
    MissingOption,
    RootOption,
    SplitOption,
)

if TYPE_CHECKING:
    from rich.console import Console

    from motionformer.data.check import ScanReport
    from motionformer.data.record import Annotations
    from motionformer.data.shards import Shard

app = typer.Typer(help="Look at data sets, and write them as shards.", no_args_is_help=True)


CHECK_HELP = """Decode every video of a data set and report what is broken, short or odd.

PATH is a list (csv, json, txt), the folder of a published data set, a folder of class folders, or videos alone.
A file that crashes or hangs the decoder is reported like any other. Exit code: 0 if no video is broken, 1 if one is,
2 for wrong usage.

**Examples**

    motionformer data check videos/

    motionformer data check train.csv val.csv --root /data/k400 --csv report.csv

    motionformer data check ssv2/ --split val --quick --json report.json
"""
SHARD_HELP = """Write a data set as tar files (WebDataset layout), to train from object storage.

Videos are stored as they are, shuffled, with their labels; `index.json` beside them lists shards and classes. A run
that was interrupted resumes when the same command is run again, and gives the same files.

**Examples**

    motionformer data shard videos/ shards/train --split train

    motionformer data shard train.csv shards/train --root /data/k400 --size 1GB --missing drop
"""


@app.command(help=CHECK_HELP)
def check(
    paths: Annotated[list[Path], typer.Argument(exists=True, metavar="PATH", help="Lists, folders or videos.")],
    kind: KindOption = "auto",
    split: SplitOption = None,
    root: RootOption = None,
    class_names: ClassNamesOption = None,
    num_workers: Annotated[int, typer.Option(min=1, help="Processes.")] = os.cpu_count() or 1,
    time_limit: Annotated[float, typer.Option(min=0.1, help="Seconds for one video.")] = 60.0,
    min_frames: Annotated[int, typer.Option(min=1, help="A video or piece with fewer frames is short.")] = 16,
    quick: Annotated[bool, typer.Option("--quick", help="Read packets and the first frame; do not decode.")] = False,
    show: Annotated[int, typer.Option(min=0, help="Problems and classes to print.")] = 20,
    csv: Annotated[Path | None, typer.Option(help="Write a line a video here.")] = None,
    json: Annotated[Path | None, typer.Option(help="Write everything here; - prints it.")] = None,
) -> None:
    from rich.console import Console

    from motionformer.data.check import ScanReport, scan
    from motionformer.data.source import open_dataset
    from motionformer.logging import progress_bar
    from motionformer.runs import check_output, write_atomically

    to_screen = json is not None and str(json) == "-"
    console = Console(stderr=to_screen)
    annotations = [
        open_dataset(path, kind, split=split, root=root, class_names=class_names, missing="keep") for path in paths
    ]
    for output in (csv, None if to_screen else json):
        if output is not None:
            check_output(output)
    for one in annotations:
        _print_how(console, one)
    running = scan(annotations, num_workers=num_workers, time_limit=time_limit, min_frames=min_frames, decode=not quick)
    num_videos = len({record.path for one in annotations for record in one})
    with progress_bar() as progress:
        files = tuple(progress.track(running, num_videos, description="checking"))
    report = ScanReport(tuple(annotations), files)
    _print_report(console, report, show)
    if csv:
        report.write_csv(csv)
    if to_screen:
        print(report.to_json())
    elif json:
        write_atomically(json, report.to_json())
    raise typer.Exit(0 if report.is_well else 1)


@app.command(help=SHARD_HELP)
def shard(
    path: Annotated[Path, typer.Argument(exists=True, help="List or folder.")],
    output: Annotated[Path, typer.Argument(help="Folder for the shards: new, empty, or of an interrupted run.")],
    size: Annotated[str, typer.Option(help="Size of a shard, such as 500MB or 1GB.")] = "1GB",
    kind: KindOption = "auto",
    split: SplitOption = None,
    root: RootOption = None,
    class_names: ClassNamesOption = None,
    missing: MissingOption = "error",
    seed: Annotated[int, typer.Option(help="Of the order of the videos.")] = 0,
) -> None:
    from rich.console import Console

    from motionformer.data.shards import write_shards
    from motionformer.data.source import open_dataset
    from motionformer.logging import progress_bar, show_count

    max_bytes = _parse_size(size)
    annotations = open_dataset(path, kind, split=split, root=root, class_names=class_names, missing=missing)
    console = Console()
    _print_how(console, annotations)
    done: list[Shard] = []
    with progress_bar() as progress:
        task = progress.add_task("writing", total=len(annotations))
        for one in write_shards(annotations, output, max_bytes=max_bytes, seed=seed):
            done.append(one)
            progress.advance(task, one.num_items)
    megabytes = sum(shard.num_bytes for shard in done) / 1e6
    counts = f"{show_count(len(annotations), 'item')} in {show_count(len(done), 'shard')}"
    console.print(f"{counts}, {megabytes:.1f} MB: {output}", highlight=False, markup=False, soft_wrap=True)


def _parse_size(text: str) -> int:
    """Bytes of `500MB`, `1 GB`, `2GiB` or a plain number."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([kmgt]?)(i?)b?", text.strip().lower())
    if not found or float(found[1]) <= 0:
        raise typer.BadParameter(f"{text!r} is not a size; write 500MB or 1GB.", param_hint="--size")
    base = 1024 if found[3] else 1000
    return max(1, int(float(found[1]) * base ** " kmgt".index(found[2] or " ")))


def _print_how(console: "Console", annotations: "Annotations") -> None:
    for line in (annotations.how, *(f"note: {note}" for note in annotations.notes)):
        console.print(line, highlight=False, markup=False, soft_wrap=True)


def _print_report(console: "Console", report: "ScanReport", show: int) -> None:
    from motionformer.logging import show_count

    for annotations in report.annotations:
        _print_classes(console, annotations, show)
    _print_problems(console, report, show)
    for name, counts in report.kinds().items():
        kinds = [f"{value} ({count})" for value, count in counts.items()]
        more = f", and {show_count(len(kinds) - 6, 'other')}" if len(kinds) > 6 else ""
        console.print(f"{name + ':':9}{', '.join(kinds[:6])}{more}", highlight=False)
    if seconds := report.durations():
        console.print(
            f"length:  {seconds['min']:.2f} to {seconds['max']:.2f} s, median {seconds['median']:.2f} s,"
            f" {seconds['total'] / 3600:.2f} hours in all",
            highlight=False,
        )
    if note := report.slow_note():
        console.print(f"note: {note}", highlight=False, markup=False, soft_wrap=True)
    found = ", ".join(f"{count} {status}" for status, count in report.statuses().items())
    console.print(
        f"{show_count(len(report.files), 'video')}: {found}",
        highlight=False,
        style="green" if report.is_well else "red",
    )


def _print_classes(console: "Console", annotations: "Annotations", show: int) -> None:
    from rich.markup import escape
    from rich.table import Table

    counts = sorted(annotations.counts().items(), key=lambda pair: -pair[1])
    if not counts[:show]:
        return
    table = Table("class", title=f"classes of {escape(annotations.name)}", title_justify="left")
    table.add_column("records", justify="right")
    for name, count in counts[:show]:
        table.add_row(escape(name), str(count))
    if len(counts) > show:
        table.add_row(f"… and {len(counts) - show} more", f"{counts[show][1]} to {counts[-1][1]}")
    console.print(table)


def _print_problems(console: "Console", report: "ScanReport", show: int) -> None:
    from rich.markup import escape
    from rich.table import Table

    problems = report.problems()
    if not problems[:show]:
        return
    base = Path(os.path.commonpath([file.path.parent for file in report.files]))
    table = Table("status", "video", "why", title=f"problems in {escape(str(base))}", title_justify="left")
    for file in problems[:show]:
        table.add_row(file.status, escape(str(file.path.relative_to(base))), escape("; ".join(file.reasons)))
    if len(problems) > show:
        table.add_row("…", f"and {len(problems) - show} more (--show, --csv)", "")
    for column in table.columns:
        column.overflow = "fold"
    console.print(table)
