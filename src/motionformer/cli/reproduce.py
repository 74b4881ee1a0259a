"""`motionformer reproduce`: the tables and figures of the paper, as commands."""

import shlex
import sys
from enum import Enum
from pathlib import Path
from typing import Annotated, Any

import typer

REPRODUCE_HELP = """Run a table or figure of the paper; without a name, list them.

`--scale cpu` is the same comparison on what is built in, with a tiny model: minutes to hours on a processor. With
`--data` it is made on your own: class folders of videos (t2 to a3), a DAVIS folder (a6), a folder with files of Long
Range Arena (t5). `--scale paper` is the
original: the published recipes (`data.train=… data.val=…`), tasks (t5: `--data FOLDER`) and weights.
A killed experiment resumes where it stopped; what is finished is not done again.

**Examples**

    motionformer reproduce

    motionformer reproduce t4 --seeds 3 --processes 2

    motionformer reproduce t4 --data gestures/ --seeds 3

    motionformer reproduce t5 --seeds 1 shortest=50 longest=100

    motionformer reproduce t3m --rows Orthoformer

    motionformer reproduce a6 --data DAVIS weights=dinov2_vits14.safetensors

    motionformer reproduce t6 --scale paper --rows k400 data.train=train.csv data.val=val.csv
"""


class ScaleName(str, Enum):
    """How large."""

    cpu = "cpu"
    paper = "paper"


def reproduce(
    name: Annotated[str | None, typer.Argument(help="Of the experiment: t4, a1 …")] = None,
    changes: Annotated[list[str] | None, typer.Argument(help="key=value …", metavar="[KEY=VALUE]...")] = None,
    scale: Annotated[ScaleName, typer.Option(help="This machine's, or the original.")] = ScaleName.cpu,
    data: Annotated[Path | None, typer.Option(exists=True, help="Your own data instead of what is built in.")] = None,
    seeds: Annotated[int, typer.Option(min=1, help="Runs of every row.")] = 3,
    rows: Annotated[str, typer.Option(help="Only rows whose name holds this text.")] = "",
    processes: Annotated[int, typer.Option(min=1, help="Runs at the same time.")] = 1,
    threads: Annotated[int, typer.Option(min=0, help="CPU threads of a run; 0: all.")] = 0,
    out: Annotated[Path, typer.Option(help="Folder of runs and tables.")] = Path("runs/reproduce"),
    collect_only: Annotated[bool, typer.Option("--collect", help="Train nothing: the table of what is there.")] = False,
    page: Annotated[Path | None, typer.Option(help="Write reproduction.md into this folder of docs, and stop.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the outcome, or the list, as JSON.")] = False,
) -> None:
    from rich.console import Console

    from motionformer.experiments.tables.experiments import find_experiment

    console = Console()
    if page is not None:
        from motionformer.experiments.tables.page import write_page

        console.print(str(write_page(page)), soft_wrap=True, highlight=False)
        return
    if name is None:
        _list(console, as_json)
        return
    experiment = find_experiment(name)
    from motionformer.experiments.tables.card import write_outcome
    from motionformer.experiments.tables.outcome import Request
    from motionformer.experiments.tables.studies import run_experiment

    request = Request(
        out,
        "cpu" if scale is ScaleName.cpu else "paper",
        seeds,
        rows,
        data,
        tuple(changes or ()),
        processes,
        threads,
        not collect_only,
        shlex.join(["motionformer", *sys.argv[1:]]).replace(" --collect", ""),
        _Teller(),
    )
    outcome = run_experiment(experiment, request)
    files = write_outcome(experiment, outcome, out)
    _show(experiment, outcome, files, console, as_json)


class _Teller:
    """Says what is done, with the time since the start."""

    def __init__(self) -> None:
        import time

        self._now, self._started = time.monotonic, time.monotonic()

    def __call__(self, line: str) -> None:
        typer.echo(f"{self._now() - self._started:6.0f} s  {line}", err=True)


def _show(experiment: Any, outcome: Any, files: list[Path], console: Any, as_json: bool) -> None:
    import json

    from rich.markdown import Markdown

    from motionformer.experiments.tables.card import to_markdown

    if as_json:
        print(json.dumps(outcome.to_dict(), indent=1))
        return
    console.print(f"{experiment.id}: {experiment.title}. {outcome.about}.", highlight=False)
    console.print(Markdown(to_markdown(outcome)))
    console.print("\n".join(map(str, files)), soft_wrap=True, highlight=False)


def _list(console: Any, as_json: bool) -> None:
    import json

    from rich.table import Table

    from motionformer.experiments.tables.experiments import EXPERIMENTS

    listed = []
    for one in EXPERIMENTS.values():
        here = one.here or (f"{len(one.cpu)} rows" if one.cpu else "recipes only: --scale paper")
        listed.append({"id": one.id, "title": one.title, "here": here, "needs": one.needs})
    if as_json:
        print(json.dumps(listed, indent=1))
        return
    table = Table("", "what", "here", "original needs")
    for values in listed:
        table.add_row(*values.values())
    console.print(table)
