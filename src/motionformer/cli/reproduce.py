"""`motionformer reproduce`: the tables and figures of the paper, as commands."""

import shlex
import sys
import time
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from motionformer.cli.options import JsonOption
from motionformer.cli.report import plain_console, print_json, print_table

if TYPE_CHECKING:
    from motionformer.experiments.tables.outcome import Outcome

REPRODUCE_HELP = """Run a table or figure of the paper; without a name, list them.

`--scale cpu` is the same comparison on what is built in, with a tiny model: minutes to hours on a processor. With
`--data` it is made on your own: class folders of videos (t2 to a3), a DAVIS folder (a6), a folder with files of Long
Range Arena (t5). `--scale paper` is the original: the published recipes (`data.train=… data.val=…`), tasks (t5:
`--data FOLDER`) and weights. A killed experiment resumes; finished runs are not repeated.

**Examples**

    motionformer reproduce

    motionformer reproduce t4 --seeds 3 --processes 2

    motionformer reproduce t4 --data gestures/ --seeds 3

    motionformer reproduce t5 --seeds 1 shortest=50 longest=100

    motionformer reproduce t3m --rows Orthoformer

    motionformer reproduce a6 --data DAVIS weights=dinov2_vits14.safetensors

    motionformer reproduce t6 --scale paper --rows k400 data.train=train.csv data.val=val.csv
"""


def reproduce(
    name: Annotated[str | None, typer.Argument(help="Of the experiment: t4, a1 …")] = None,
    changes: Annotated[list[str] | None, typer.Argument(help="key=value …", metavar="[KEY=VALUE]...")] = None,
    scale: Annotated[Literal["cpu", "paper"], typer.Option(help="Scale of this machine, or the original.")] = "cpu",
    data: Annotated[Path | None, typer.Option(exists=True, help="Your own data instead of what is built in.")] = None,
    seeds: Annotated[int, typer.Option(min=1, help="Runs per row.")] = 3,
    rows: Annotated[str, typer.Option(help="Only rows whose name contains this text.")] = "",
    processes: Annotated[int, typer.Option(min=1, help="Runs at the same time.")] = 1,
    threads: Annotated[int, typer.Option(min=0, help="CPU threads per run; 0 is all.")] = 0,
    output: Annotated[Path, typer.Option(help="Folder of runs and tables.")] = Path("runs/reproduce"),
    collect_only: Annotated[bool, typer.Option("--collect", help="Train nothing: collect finished runs.")] = False,
    page: Annotated[Path | None, typer.Option(help="Write reproduction.md into this folder of docs, and exit.")] = None,
    as_json: JsonOption = False,
) -> None:
    from motionformer.experiments.tables import find_experiment

    if page is not None:
        from motionformer.experiments.tables.outcome import write_page

        print(write_page(page))
        return
    if name is None:
        _list(as_json)
        return
    experiment = find_experiment(name)
    from motionformer.experiments.tables import Request
    from motionformer.experiments.tables.studies import run_experiment

    request = Request(
        output,
        scale=scale,
        seeds=seeds,
        rows=rows,
        data=data,
        changes=tuple(changes or ()),
        processes=processes,
        threads=threads,
        train=not collect_only,
        command=shlex.join(["motionformer", *sys.argv[1:]]).replace(" --collect", ""),
        tell=partial(_print_progress, time.monotonic()),
    )
    outcome = run_experiment(experiment, request)
    _show(outcome, outcome.write(output), as_json)


def _print_progress(started: float, line: str) -> None:  # picklable: other processes call it too
    typer.echo(f"{time.monotonic() - started:6.0f} s  {line}", err=True)


def _show(outcome: "Outcome", files: list[Path], as_json: bool) -> None:
    from rich.markdown import Markdown

    if as_json:
        print_json(asdict(outcome))
        return
    console = plain_console()
    console.print(f"{outcome.id}: {outcome.experiment.title}. {outcome.about}.")
    console.print(Markdown(outcome.to_markdown()))
    console.print("\n".join(map(str, files)))


def _list(as_json: bool) -> None:
    from motionformer.experiments.tables import EXPERIMENTS

    listed = []
    for one in EXPERIMENTS.values():
        here = one.here or (f"{len(one.cpu)} rows" if one.cpu else "recipes only: --scale paper")
        listed.append({"id": one.id, "title": one.title, "here": here, "needs": one.needs})
    if as_json:
        print_json(listed)
    else:
        print_table(("", "what", "here", "original needs"), [tuple(row.values()) for row in listed])
