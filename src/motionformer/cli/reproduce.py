"""`motionformer reproduce`: the tables and figures of the paper, as commands."""

import shlex
import sys
from enum import Enum
from pathlib import Path
from typing import Annotated, Any

import typer

REPRODUCE_HELP = """Run a table or figure of the paper; without a name, list them.

`--scale cpu` is the same comparison on the built-in motion benchmark with a tiny model: minutes to hours on a
processor. `--scale paper` trains the published recipes; give the data: `data.train=… data.val=…`.
A killed experiment goes on where it stopped; finished rows are not trained again.

**Examples**

    motionformer reproduce

    motionformer reproduce t4 --seeds 3 --processes 2

    motionformer reproduce t6 --scale paper --rows k400 data.train=train.csv data.val=val.csv
"""


class Scale(str, Enum):
    """How large."""

    cpu = "cpu"
    paper = "paper"


def reproduce(
    name: Annotated[str | None, typer.Argument(help="Of the experiment: t4, a1 …")] = None,
    changes: Annotated[list[str] | None, typer.Argument(help="key=value …", metavar="[KEY=VALUE]...")] = None,
    scale: Annotated[Scale, typer.Option(help="This machine's, or the original.")] = Scale.cpu,
    seeds: Annotated[int, typer.Option(min=1, help="Runs of every row.")] = 3,
    rows: Annotated[str, typer.Option(help="Only rows whose name holds this text.")] = "",
    processes: Annotated[int, typer.Option(min=1, help="Runs at the same time.")] = 1,
    threads: Annotated[int, typer.Option(min=0, help="CPU threads of a run; 0: all.")] = 0,
    out: Annotated[Path, typer.Option(help="Folder of runs and tables.")] = Path("runs/reproduce"),
    collect_only: Annotated[bool, typer.Option("--collect", help="Train nothing: the table of what is there.")] = False,
    page: Annotated[Path | None, typer.Option(help="Write reproduction.md into this folder of docs, and stop.")] = None,
) -> None:
    from rich.console import Console

    from motionformer.reproduce.experiments import find_experiment

    console = Console()
    if page is not None:
        from motionformer.reproduce.page import write_page

        console.print(str(write_page(page)), soft_wrap=True, highlight=False)
        return
    if name is None:
        _list(console)
        return
    experiment = find_experiment(name)
    chosen = [row for row in (experiment.cpu if scale is Scale.cpu else experiment.paper) if rows in row.label]
    if not chosen:
        raise typer.BadParameter(_why_nothing(experiment, scale, rows), param_hint="NAME")
    _run(experiment, scale, chosen, seeds, (processes, threads), out, tuple(changes or ()), collect_only, console)


def _run(
    experiment: Any,
    scale: Scale,
    rows: list[Any],
    seeds: int,
    power: tuple[int, int],
    out: Path,
    changes: tuple[str, ...],
    collect_only: bool,
    console: Any,
) -> None:
    import os
    import time

    from rich.markdown import Markdown

    from motionformer.reproduce.run import plan_jobs, run_experiment
    from motionformer.reproduce.table import collect, to_markdown, write_outcome

    jobs = plan_jobs(rows, range(seeds), out, changes)
    processes, threads = power
    total, started, done = len({job.folder for job in jobs}), time.monotonic(), 0

    def tell(job: Any, top1: float) -> None:
        nonlocal done
        done += 1
        line = f"{done} of {total}, {time.monotonic() - started:.0f} s: {job.row.label}, seed {job.seed}: {top1:.1%}"
        typer.echo(line, err=True)

    if not collect_only:
        run_experiment(jobs, processes=processes, threads=threads or os.cpu_count() or 1, tell=tell)
    command = shlex.join(["motionformer", *sys.argv[1:]]).replace(" --collect", "")
    outcome = collect(experiment, scale.value, jobs, command)
    if not outcome.lines:
        raise typer.BadParameter(f"no finished run in {out}.", param_hint="--collect")
    files = write_outcome(experiment, outcome, out)
    console.print(f"{experiment.id}: {experiment.title}. Top-1, %, {outcome.clips} clips, {outcome.steps} steps.")
    console.print(Markdown(to_markdown(outcome)))
    console.print("\n".join(map(str, files)), soft_wrap=True, highlight=False)


def _list(console: Any) -> None:
    from rich.table import Table

    from motionformer.reproduce.experiments import EXPERIMENTS

    table = Table("", "what", "rows here", "original needs")
    for one in EXPERIMENTS.values():
        here = str(len(one.cpu)) if one.cpu else one.command or "recipes only: --scale paper"
        table.add_row(one.id, one.title, here, one.needs)
    console.print(table)


def _why_nothing(experiment: Any, scale: Scale, rows: str) -> str:
    if rows:
        return f"{experiment.id} has no row with {rows!r} in its name at scale {scale.value}."
    if experiment.command:
        return f"{experiment.id} is not a matter of training: {experiment.command}"
    return f"{experiment.id} has no rows at scale {scale.value}; it needs {experiment.needs}: --scale paper."
