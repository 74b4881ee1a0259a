"""`motionformer finetune`: your videos in, a trained model out."""

import json
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from motionformer.cli.options import Attention, MissingOption
from motionformer.cli.report import failure_lines

if TYPE_CHECKING:
    from rich.console import Console

    from motionformer.training.finetune import FineTuning
    from motionformer.training.run import FinishedRun

FINETUNE_HELP = """Train a model on your own videos: a folder of class folders, or a csv of path,label.

In a csv of path,labels a video has any number of classes, as in `run|jump`.

Splits the videos (or uses the folders train/ and val/), picks sizes for them and for this machine, and trains. The
run's folder holds the recipe and the two lists: `motionformer train RECIPE` is the same run. The same command goes on
with a run that was stopped. `key=value` changes any key of the recipe.

**Examples**

    motionformer finetune videos/

    motionformer finetune videos/ --from dinov2_vits14.safetensors --train last:4

    motionformer finetune train.csv --from k400_motionformer_224_16x4 --train head --epochs 10 optimiser.lr=1e-3

    motionformer finetune videos/ --attention joint --seed 1 --output runs/joint-1 --plan
"""


class ReadoutName(str, Enum):
    """What the head sees."""

    class_token = "class"
    motion = "motion"


class KeepName(str, Enum):
    """Whose weights become the model."""

    last = "last"
    best = "best"


def finetune(
    videos: Annotated[Path, typer.Argument(exists=True, metavar="FOLDER", help="Class folders, or a csv.")],
    overrides: Annotated[list[str] | None, typer.Argument(metavar="[KEY=VALUE]...", help="Keys of the recipe.")] = None,
    start: Annotated[
        str, typer.Option("--from", help="Weights: a released name, a folder, image weights. Default: random.")
    ] = "",
    train: Annotated[str, typer.Option(help="What learns: all, head, last:N blocks. Default: see --plan.")] = "",
    attention: Attention = None,
    readout: Annotated[
        ReadoutName | None,
        typer.Option(
            help="What the head sees: the class token, or motion beside it. Default: motion, or the video weights' own."
        ),
    ] = None,
    frames: Annotated[int | None, typer.Option(min=1, help="Frames a clip. Default: fits the videos.")] = None,
    size: Annotated[
        int | None, typer.Option(min=8, help="Height and width of a clip. Default: fits the videos.")
    ] = None,
    epochs: Annotated[int | None, typer.Option(min=1, help="Passes over the videos. Default: see --plan.")] = None,
    lr: Annotated[float | None, typer.Option(help="Learning rate, for the batch used. Default: see --plan.")] = None,
    keep_epoch: Annotated[
        KeepName, typer.Option(help="Keep the last epoch's model, or the best one on the held-out videos.")
    ] = KeepName.last,
    batch_size: Annotated[
        int | None, typer.Option(min=1, help="Clips per step.", show_default="32; about 16 for few videos")
    ] = None,
    held_out: Annotated[float, typer.Option(min=0.01, max=0.9, help="Share of each class held out.")] = 0.2,
    missing: MissingOption = "error",
    seed: Annotated[int, typer.Option(min=0, help="Of the split, the weights and the order.")] = 0,
    name: Annotated[str, typer.Option(help="Of the run; default: that of the folder or list.")] = "",
    output: Annotated[str, typer.Option(help="Folder of the run; default: runs/NAME.")] = "",
    plan: Annotated[bool, typer.Option("--plan", help="Only say what would be done, with every default.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result, or the plan, as JSON.")] = False,
) -> None:
    from rich.console import Console

    from motionformer.training.advice import Wishes
    from motionformer.training.finetune import plan_finetune, write_lists

    wishes = Wishes(
        start=start,
        train=train,
        attention=attention,
        readout=None if readout is None else readout.value,
        frames=frames,
        size=size,
        epochs=epochs,
        lr=lr,
        batch=batch_size,
        keep_epoch=keep_epoch.value,
        held_out=held_out,
        seed=seed,
        name=name,
        output=output,
        missing=missing,
    )
    # names of files and classes are printed as they are: no markup, no :emoji:
    console = Console(stderr=as_json, highlight=False, soft_wrap=True, markup=False, emoji=False)
    planned = plan_finetune(videos, wishes, overrides or [])
    _print_plan(console, planned)
    if plan:
        if as_json:
            values = {
                "videos": {"train": len(planned.train), "val": len(planned.val)},
                "steps": planned.steps,
                "mirrored": planned.mirrored,
                "notes": planned.notes,
                "recipe": planned.recipe.to_dict(),
            }
            print(json.dumps(values, indent=2))
        return
    from motionformer.training.run import train as run_training

    write_lists(planned)
    _print_result(run_training(planned.recipe), planned, console, as_json)


def _print_plan(console: "Console", planned: "FineTuning") -> None:
    from rich.table import Table

    from motionformer.training.model import build_config

    recipe = planned.recipe
    config = build_config(recipe, len(planned.class_names))
    spec, facts = config.input, planned.facts
    table = Table(title=recipe.name, title_justify="left", show_header=False)
    table.add_column(style="bold")
    table.add_column()
    table.add_row("videos", f"{len(planned.train)} to learn from, {len(planned.val)} held out")
    table.add_row("", f"about {facts.frames} frames, {facts.seconds:.1f} s, short side {facts.short_side} px")
    several = "any number a video: " if planned.train.is_multi_label else ""
    table.add_row("classes", several + ", ".join(planned.class_names))
    how = "over the whole video" if spec.sampling == "segments" else f"at stride {spec.stride}"
    table.add_row("clip", f"{spec.frames} frames {how}, {spec.height} × {spec.width} px")
    table.add_row("mirrored", planned.mirrored)
    table.add_row("model", f"{config.attention} attention, {config.dim} wide, {config.depth} layers")
    seen = {"class": "the class token", "motion": "the class token and the moments of motion"}
    table.add_row("head", f"sees {seen[config.readout]}")
    table.add_row("start", recipe.model.start or f"random weights, seed {recipe.seed}")
    table.add_row("learns", recipe.model.train)
    length = f"{planned.steps} steps of {recipe.global_batch} clips ({recipe.epochs} epochs)"
    table.add_row("training", f"{length}, learning rate {recipe.optimiser.lr:g}")
    if recipe.optimiser.new_rate != 1.0:
        table.add_row("", f"what the weights did not bring learns {recipe.optimiser.new_rate:g} times as fast")
    if recipe.keep_epoch == "best":
        table.add_row("keeps", "the best epoch on the held-out videos, which makes its figure on them optimistic")
    else:
        table.add_row("keeps", "the last epoch")
    table.add_row("folder", str(recipe.folder))
    console.print(table)
    for note in planned.notes:
        console.print(f"note: {note}")


def _print_result(run: "FinishedRun", planned: "FineTuning", console: "Console", as_json: bool) -> None:
    if as_json:
        values = {"folder": str(run.folder), "model": str(run.model), "last": run.last, "seconds": run.seconds}
        sure = run.card["results"].get("confidence", {})
        values |= {"kept": run.kept, "keep_epoch": planned.recipe.keep_epoch, "confidence": sure}
        odd = {"failed": run.card["failed"], "notes": planned.notes}
        print(json.dumps({**values, **odd, "recipe": planned.recipe.to_dict()}, indent=2))
        return
    from motionformer.inference.metrics import show_share
    from motionformer.training.card import which_epoch

    right, count = run.kept.get("top1"), len(planned.val)
    if right is not None:
        console.print(f"{show_share(round(right * count), count)} held-out videos right")
    else:
        console.print(f"mean average precision {run.kept['map']:.1%} on {count} held-out videos")
    console.print(f"the saved model is {which_epoch(run.card)}")
    for line in (*(f"note: {doubt}" for doubt in planned.doubts), *failure_lines(run.card)):
        console.print(line)
    console.print(f"model: {run.model}")
