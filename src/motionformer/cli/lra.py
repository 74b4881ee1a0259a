"""`motionformer lra`: make data, train and compare on the Long Range Arena tasks."""

import json
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from motionformer.cli.options import DeviceOption, find_device, renamed_options

if TYPE_CHECKING:
    from rich.progress import Progress

    from motionformer.experiments.lra.costs import Cost

app = typer.Typer(help="Long Range Arena: long sequences, any way to compute attention.", no_args_is_help=True)


class MadeTask(str, Enum):
    """Tasks that are generated."""

    listops = "listops"
    pathfinder = "pathfinder"


class TaskName(str, Enum):
    """All tasks."""

    listops = "listops"
    text = "text"
    retrieval = "retrieval"
    image = "image"
    pathfinder = "pathfinder"


MAKE_HELP = """Write the data of a generated task: ListOps (tsv, as published) or Pathfinder (npz).

An example depends on the seed, its split and its number only, so a smaller set is the beginning of a larger one.

**Examples**

    motionformer lra make listops data/listops

    motionformer lra make listops data/short --lengths 100 200

    motionformer lra make pathfinder data/pathfinder --train 20000 --dev 2000 --test 2000 --workers 8
"""
TRAIN_HELP = """Train the small model of the comparison on one task, and test its best checkpoint.

Batch, steps and warm-up default to the published ones of the task. A run that was stopped resumes when the same
command is given again. Without --data, ListOps and Pathfinder are made while training.

**Examples**

    motionformer lra train listops --kernel orthoformer-64

    motionformer lra train image --kernel exact --data cifar-10-batches-bin --seed 1 --device cuda

    motionformer lra train text --kernel nystrom-128 --data aclImdb --steps 200 --batch 8 --lr 1e-3
"""
COSTS_HELP = """Multiply-adds of the ListOps encoder by the paper's convention, and measured memory of a training step.

**Examples**

    motionformer lra costs

    motionformer lra costs --no-memory --json
"""


@app.command(help=MAKE_HELP)
def make(
    task: Annotated[MadeTask, typer.Argument(help="The task.")],
    out: Annotated[Path, typer.Argument(help="Folder to write.")],
    train: Annotated[int | None, typer.Option(min=1, help="Training examples.", show_default="as published")] = None,
    dev: Annotated[int | None, typer.Option(min=1, help="Development examples.", show_default="as published")] = None,
    test: Annotated[int | None, typer.Option(min=1, help="Test examples.", show_default="as published")] = None,
    seed: Annotated[int, typer.Option(min=0, help="Another seed is another set.")] = 0,
    workers: Annotated[int, typer.Option(min=1, help="Processes.")] = 1,
    lengths: Annotated[
        tuple[int, int] | None,
        typer.Option(help="ListOps: tokens, more than / fewer than.", show_default="500 2000, as published"),
    ] = None,
) -> None:
    from motionformer.experiments.lra import listops, pathfinder

    module = listops if task is MadeTask.listops else pathfinder
    counts = {split: count or module.SPLITS[split] for split, count in (("train", train), ("val", dev), ("test", test))}
    if task is MadeTask.listops:
        try:
            allowed = listops.check_lengths(lengths or listops.LENGTHS)
        except ValueError as error:
            raise typer.BadParameter(str(error), param_hint="--lengths") from error
        written = listops.write_listops(out, counts, seed, workers, allowed)
    elif lengths is not None:
        raise typer.BadParameter(
            "pictures of Pathfinder have one size: only ListOps has lengths.", param_hint="--lengths"
        )
    else:
        written = pathfinder.write_pathfinder(out, counts, seed, workers)
    _make_folder(out, "OUT")
    there = [file.name for file in map(out.joinpath, module.FILES.values()) if file.exists()]
    if there:
        raise typer.BadParameter(f"{out} holds {there[0]} already: remove it, or choose another.", param_hint="OUT")
    with _progress() as progress:
        bar = progress.add_task(f"making {task.value}", total=sum(counts.values()))
        for done in written:
            progress.update(bar, completed=done)
    print(f"{out}: {', '.join(f'{count:,} {split}' for split, count in counts.items())} examples, seed {seed}")


@app.command(help=TRAIN_HELP, cls=renamed_options({"--attend": "--kernel"}))
def train(
    task: Annotated[TaskName, typer.Argument(help="The task.")],
    kernel: Annotated[str, typer.Option(help="exact, performer-R, nystrom-R, orthoformer-R, orthoformer-R-improved.")],
    data: Annotated[Path | None, typer.Option(help="Folder of the data; see the page for each layout.")] = None,
    steps: Annotated[int | None, typer.Option(min=1, help="Steps.", show_default="the task's")] = None,
    batch: Annotated[int | None, typer.Option(min=1, help="Examples a step.", show_default="the task's")] = None,
    lr: Annotated[float, typer.Option(min=0.0, help="Highest learning rate of the cycle.")] = 1e-4,
    seed: Annotated[int, typer.Option(min=0, help="Of weights, order and dropout.")] = 0,
    every: Annotated[int | None, typer.Option(min=1, help="Steps between evaluations.", show_default="1/50")] = None,
    dev_examples: Annotated[
        int | None, typer.Option(min=1, help="Evaluate on so many only.", show_default="all")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Folder of the run.", show_default="runs/lra/…")] = None,
    device: DeviceOption = "auto",
    at_a_time: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Sequences a pass; same gradient but for what is drawn.",
            show_default="8,192 tokens on a CPU, else all",
        ),
    ] = None,
    threads: Annotated[int | None, typer.Option(min=1, help="Threads on a CPU.", show_default="PyTorch's")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    from dataclasses import asdict

    import torch

    from motionformer.experiments.lra import Run, find_task, make_kernel
    from motionformer.experiments.lra import train as train_model

    if threads is not None:
        torch.set_num_threads(threads)
    place = str(find_device(device))
    facts = find_task(task.value)
    try:
        make_kernel(kernel, 32)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--kernel") from error
    if data is not None:
        splits = facts.read(data)
    elif facts.make is not None:
        splits = facts.make(0)  # the data are the same for all seeds of a run
    else:
        raise typer.BadParameter(f"{task.value} is not generated: say where its files are.", param_hint="--data")
    run = Run(
        task.value,
        kernel,
        seed,
        steps=steps or 0,
        batch=batch or 0,
        lr=lr,
        evaluate_every=every or 0,
        dev_examples=dev_examples,
        at_a_time=at_a_time,
    )
    run = run.complete(facts)
    folder = out or Path("runs/lra") / f"{task.value}-{kernel}-{seed}"
    _make_folder(folder, "--out")
    with _progress() as progress:
        bar = progress.add_task(f"{task.value}, {kernel}", total=run.steps)

        def report(step: int, row: dict[str, float | int]) -> None:
            progress.update(bar, completed=step)
            if "dev_accuracy" in row:
                progress.console.print(
                    f"step {step}: loss {row['loss']:.3f}, {row['dev_accuracy']:.1%} of development",
                    highlight=False,
                )

        result = train_model(facts, splits, run, folder, device=place, report=report)
    if as_json:
        print(json.dumps(asdict(result), indent=2))
        return
    from motionformer.evaluation.intervals import show_share

    right, total = round(result.test_accuracy * len(splits.test)), len(splits.test)
    print(
        f"{task.value}, {kernel}, seed {seed}: {show_share(right, total)} of test, {result.dev_accuracy:.1%} of "
        f"development at step {result.best_step} of {run.steps}; {result.seconds:.0f} s; {folder}"
    )


@app.command(help=COSTS_HELP)
def costs(
    memory: Annotated[bool, typer.Option(help="Measure a training step of each, seconds each (Linux).")] = True,
    batch: Annotated[int, typer.Option(min=1, help="Sequences in the measured step.")] = 4,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    from dataclasses import asdict

    from motionformer.experiments.lra.costs import compare_costs
    from motionformer.experiments.lra.model import COMPARED

    rows = compare_costs((*COMPARED, "exact-stored"), memory_batch=batch if memory else None)
    if as_json:
        print(json.dumps([asdict(row) for row in rows], indent=2))
    else:
        _print_costs(rows, batch)


def _print_costs(rows: "list[Cost]", batch: int) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table("attention", title="ListOps encoder, 2,048 tokens", title_justify="left")
    for name in ("G multiply-adds", "published", f"training step, batch {batch}", "of exact"):
        table.add_column(name, justify="right")
    exact = next(row.training_bytes for row in rows if row.kernel == "exact")
    for row in rows:
        stored = row.training_bytes
        size = ("", "") if stored is None or exact is None else (f"{stored / 1e6:,.0f} MB", f"{stored / exact:.2f}×")
        table.add_row(row.kernel, f"{row.gmacs:.2f}", "" if row.published is None else f"{row.published:.2f}", *size)
    console = Console()
    console.print(table)
    console.print("exact-stored is exact attention that keeps the n × n matrix, as codes without a fused kernel do.")


def _make_folder(folder: Path, hint: str) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:  # a file has that name, or nothing may be written there
        raise typer.BadParameter(f"{folder} cannot be a folder ({error.strerror}).", param_hint=hint) from error


def _progress() -> "Progress":
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    return Progress(*columns, console=console, transient=True, disable=not console.is_terminal)
