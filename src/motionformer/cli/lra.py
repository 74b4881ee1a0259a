"""`motionformer lra`: make data, train and compare on the Long Range Arena tasks."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from motionformer.cli.options import DeviceOption, JsonOption, find_device
from motionformer.cli.report import print_json, print_table

if TYPE_CHECKING:
    from motionformer.experiments.lra.model import Cost

app = typer.Typer(help="Long Range Arena: long sequences, any way to compute attention.", no_args_is_help=True)


MAKE_HELP = """Generate the data of a task: ListOps (tsv, as published) or Pathfinder (npz).

An example depends on the seed, its split and its number only, so a smaller set is the beginning of a larger one.

**Examples**

    motionformer lra make listops data/listops

    motionformer lra make listops data/short --lengths 100 200

    motionformer lra make pathfinder data/pathfinder --train 20000 --dev 2000 --test 2000 --num-workers 8
"""
TRAIN_HELP = """Train the small model of the comparison on one task, and test its best checkpoint.

Batch size, steps and warm-up default to the published ones of the task. An interrupted run resumes when the same
command is given again. Without --data, ListOps and Pathfinder are generated while training.

**Examples**

    motionformer lra train listops --kernel orthoformer-64

    motionformer lra train image --kernel exact --data cifar-10-batches-bin --seed 1 --device cuda

    motionformer lra train text --kernel nystrom-128 --data aclImdb --steps 200 --batch-size 8 --lr 1e-3
"""
COSTS_HELP = """Multiply-adds of the ListOps encoder by the paper's convention, and measured memory of a training step.

**Examples**

    motionformer lra costs

    motionformer lra costs --no-memory --json
"""


@app.command(help=MAKE_HELP)
def make(
    task: Annotated[Literal["listops", "pathfinder"], typer.Argument(help="The task.")],
    out: Annotated[Path, typer.Argument(help="Folder to write.")],
    train: Annotated[int | None, typer.Option(min=1, help="Training examples.", show_default="as published")] = None,
    dev: Annotated[int | None, typer.Option(min=1, help="Development examples.", show_default="as published")] = None,
    test: Annotated[int | None, typer.Option(min=1, help="Test examples.", show_default="as published")] = None,
    seed: Annotated[int, typer.Option(min=0, help="Another seed is another set.")] = 0,
    num_workers: Annotated[int, typer.Option(min=1, help="Processes.")] = 1,
    lengths: Annotated[
        tuple[int, int] | None,
        typer.Option(help="ListOps: tokens, more than / fewer than.", show_default="500 2000, as published"),
    ] = None,
) -> None:
    from motionformer.experiments.lra import listops, pathfinder
    from motionformer.logging import progress_bar

    module = listops if task == "listops" else pathfinder
    counts = {split: count or module.SPLITS[split] for split, count in (("train", train), ("val", dev), ("test", test))}
    if task == "listops":
        try:
            allowed = listops.check_lengths(lengths or listops.LENGTHS)
        except ValueError as error:
            raise typer.BadParameter(str(error), param_hint="--lengths") from error
        written = listops.write_listops(out, counts, seed, num_workers, allowed)
    elif lengths is not None:
        raise typer.BadParameter(
            "pictures of Pathfinder have one size: only ListOps has lengths.", param_hint="--lengths"
        )
    else:
        written = pathfinder.write_pathfinder(out, counts, seed, num_workers)
    _make_folder(out, "OUT")
    there = [file.name for file in map(out.joinpath, module.FILES.values()) if file.exists()]
    if there:
        raise typer.BadParameter(f"{out} holds {there[0]} already: remove it, or choose another.", param_hint="OUT")
    with progress_bar() as progress:
        bar = progress.add_task(f"making {task}", total=sum(counts.values()))
        for done in written:
            progress.update(bar, completed=done)
    print(f"{out}: {', '.join(f'{count:,} {split}' for split, count in counts.items())} examples, seed {seed}")


@app.command(help=TRAIN_HELP)
def train(
    task: Annotated[Literal["listops", "text", "retrieval", "image", "pathfinder"], typer.Argument(help="The task.")],
    kernel: Annotated[
        str,
        typer.Option(help="Attention kernel: exact, performer-R, nystrom-R, orthoformer-R, orthoformer-R-improved."),
    ],
    data: Annotated[Path | None, typer.Option(help="Folder of the data; docs/commands/lra.md has each layout.")] = None,
    steps: Annotated[int | None, typer.Option(min=1, help="Training steps.", show_default="the task's")] = None,
    batch_size: Annotated[
        int | None, typer.Option(min=1, help="Sequences per step.", show_default="the task's")
    ] = None,
    lr: Annotated[float, typer.Option(min=0.0, help="Peak learning rate.")] = 1e-4,
    seed: Annotated[int, typer.Option(min=0, help="Of weights, order and dropout.")] = 0,
    every: Annotated[
        int | None, typer.Option(min=1, help="Steps between evaluations.", show_default="1/50 of all")
    ] = None,
    dev_examples: Annotated[
        int | None, typer.Option(min=1, help="Development examples to evaluate on.", show_default="all")
    ] = None,
    output: Annotated[
        Path | None, typer.Option(help="Folder of the run.", show_default="runs/lra/TASK-KERNEL-SEED")
    ] = None,
    device: DeviceOption = "auto",
    at_a_time: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Sequences per forward pass; the gradient is that of the whole batch.",
            show_default="8,192 tokens on a CPU, else all",
        ),
    ] = None,
    threads: Annotated[int | None, typer.Option(min=1, help="CPU threads.", show_default="PyTorch's")] = None,
    as_json: JsonOption = False,
) -> None:
    from dataclasses import asdict

    import torch

    from motionformer.experiments.lra import TASKS, Run, make_kernel
    from motionformer.experiments.lra import train as train_model
    from motionformer.inference.metrics import show_share
    from motionformer.logging import progress_bar

    if threads is not None:
        torch.set_num_threads(threads)
    resolved = find_device(device)
    facts = TASKS[task]
    try:
        make_kernel(kernel, 32)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--kernel") from error
    if data is not None:
        splits = facts.read(data)
    elif facts.make is not None:
        splits = facts.make(0)  # the data are the same for all seeds of a run
    else:
        raise typer.BadParameter(f"{task} is not generated: give the folder of its files.", param_hint="--data")
    run = Run(
        task,
        kernel,
        seed,
        steps=steps or 0,
        batch=batch_size or 0,
        lr=lr,
        evaluate_every=every or 0,
        dev_examples=dev_examples,
        at_a_time=at_a_time,
    )
    run = run.complete(facts)
    folder = output or Path("runs/lra") / f"{task}-{kernel}-{seed}"
    _make_folder(folder, "--output")
    with progress_bar() as progress:
        bar = progress.add_task(f"{task}, {kernel}", total=run.steps)

        num_dev = min(len(splits.dev), run.dev_examples or len(splits.dev))

        def show_dev(share: float) -> str:
            return show_share(round(share * num_dev), num_dev)

        def report(step: int, row: dict[str, float | int]) -> None:
            progress.update(bar, completed=step)
            if "dev_accuracy" in row:
                progress.console.print(
                    f"step {step}: loss {row['loss']:.3f}, {show_dev(row['dev_accuracy'])} of development",
                    highlight=False,
                )

        result = train_model(facts, splits, run, folder, device=str(resolved), report=report)
    if as_json:
        print_json(asdict(result))
        return
    right, total = round(result.test_accuracy * len(splits.test)), len(splits.test)
    print(
        f"{task}, {kernel}, seed {seed}: {show_share(right, total)} of test, {show_dev(result.dev_accuracy)} of "
        f"development at step {result.best_step} of {run.steps}; {result.seconds:.0f} s; {folder}"
    )


@app.command(help=COSTS_HELP)
def costs(
    memory: Annotated[bool, typer.Option(help="Measure a training step of each (Linux).")] = True,
    batch_size: Annotated[int, typer.Option(min=1, help="Sequences in the measured step.")] = 4,
    as_json: JsonOption = False,
) -> None:
    from dataclasses import asdict

    from motionformer.experiments.lra.model import COMPARED, compare_costs

    rows = compare_costs((*COMPARED, "exact-stored"), memory_batch=batch_size if memory else None)
    if as_json:
        print_json([asdict(row) for row in rows])
    else:
        _print_costs(rows, batch_size)


def _print_costs(rows: "list[Cost]", batch_size: int) -> None:
    names = ("G multiply-adds", "published", f"training step, batch size {batch_size}", "of exact")
    exact = next(row.training_bytes for row in rows if row.kernel == "exact")
    listed = []
    for row in rows:
        stored = row.training_bytes
        size = ("", "") if stored is None or exact is None else (f"{stored / 1e6:,.0f} MB", f"{stored / exact:.2f}×")
        listed.append((row.kernel, f"{row.gmacs:.2f}", "" if row.published is None else f"{row.published:.2f}", *size))
    print_table(("kernel", *names), listed, title="ListOps encoder, 2,048 tokens", right=names)
    print("exact-stored is exact attention that keeps the n × n matrix, as codes without a fused kernel do.")


def _make_folder(folder: Path, hint: str) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:  # a file has that name, or nothing may be written there
        raise typer.BadParameter(f"{folder} cannot be a folder ({error.strerror}).", param_hint=hint) from error
