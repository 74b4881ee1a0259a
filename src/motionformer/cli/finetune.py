"""`motionformer finetune`: train a model on your own videos."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from motionformer.cli.options import Attention, MissingOption
from motionformer.cli.report import plain_console, print_facts, print_json

if TYPE_CHECKING:
    from rich.console import Console

    from motionformer.data.record import Missing
    from motionformer.finetuning import FinetunePlan
    from motionformer.training import TrainingResult

FINETUNE_HELP = """Train a model on your own videos: a folder of class folders, or a csv of path,label.

In a csv of path,labels a video has any number of classes, as in `run|jump`.

Splits the videos (or uses the folders train/ and val/), picks sizes for them and for this machine, and trains. The
run folder holds the recipe and the two lists: `motionformer train RECIPE` is the same run. The same command resumes
an interrupted run. SIGTERM and SIGUSR1 save a checkpoint and end the command with exit code 75. `key=value` changes any
key of the recipe.

**Examples**

    motionformer finetune videos/

    motionformer finetune videos/ --init-from dinov2_vits14.safetensors --train last:4

    motionformer finetune videos/ --init-from dinov2_vits14.safetensors --train lora:8

    motionformer finetune videos/ --init-from dinov2_vits14.safetensors --train adapter

    motionformer finetune videos/ --init-from dinov2_vits14.safetensors --time 10m

    motionformer finetune train.csv --init-from k400_motionformer_224_16x4 --train head --epochs 10 optimiser.lr=1e-3

    motionformer finetune videos/ --attention joint --seed 1 --output runs/joint-1 --plan
"""


def finetune(
    videos: Annotated[Path, typer.Argument(exists=True, metavar="FOLDER", help="Class folders, or a csv.")],
    overrides: Annotated[list[str] | None, typer.Argument(metavar="[KEY=VALUE]...", help="Keys of the recipe.")] = None,
    init_from: Annotated[
        str, typer.Option(help="Initial weights: a released name, a folder, image weights.", show_default="random")
    ] = "",
    train: Annotated[
        str,
        typer.Option(
            help="What is trained: all, head, last:N blocks, lora:RANK, adapter; or probe.",
            show_default="see --plan",
        ),
    ] = "",
    time: Annotated[
        str, typer.Option(help="How long it may take (90s, 10m, 2h): picks what is trained.", show_default="no limit")
    ] = "",
    attention: Attention = None,
    readout: Annotated[
        Literal["class", "motion", "mean", "attentive"] | None,
        typer.Option(
            help="Input of the head: the class token, motion beside it, the mean of patches, or a learnt query.",
            show_default="motion, or that of the video weights",
        ),
    ] = None,
    frames: Annotated[int | None, typer.Option(min=1, help="Frames per clip.", show_default="fits the videos")] = None,
    size: Annotated[
        int | None, typer.Option(min=8, help="Height and width of a clip.", show_default="fits the videos")
    ] = None,
    epochs: Annotated[
        int | None, typer.Option(min=1, help="Passes over the videos.", show_default="see --plan")
    ] = None,
    lr: Annotated[
        float | None, typer.Option(help="Learning rate, for the batch size used.", show_default="see --plan")
    ] = None,
    keep_epoch: Annotated[
        Literal["last", "best"], typer.Option(help="Save the last epoch's model, or the best on the held-out videos.")
    ] = "last",
    batch_size: Annotated[
        int | None, typer.Option(min=1, help="Clips per step.", show_default="32; about 16 with few videos")
    ] = None,
    held_out: Annotated[float, typer.Option(min=0.01, max=0.9, help="Share of each class held out.")] = 0.2,
    missing: MissingOption = "error",
    seed: Annotated[int, typer.Option(min=0, help="Of the split, the weights and the order.")] = 0,
    name: Annotated[str, typer.Option(help="Of the run.", show_default="that of the folder or list")] = "",
    output: Annotated[str, typer.Option(help="Run folder.", show_default="runs/NAME")] = "",
    plan: Annotated[bool, typer.Option("--plan", help="Print the plan, with every default, without training.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result, or the plan, as JSON.")] = False,
) -> None:
    from motionformer.distributed import current_rank, is_rank_zero
    from motionformer.finetuning import FinetuneOptions, plan_finetune
    from motionformer.logging import show_messages

    if train == "probe":
        _run_probe(videos, init_from, output, "as asked", as_json, frames, size, held_out, missing, seed)
        return

    options = FinetuneOptions(
        init_from=init_from,
        train=train,
        time=time,
        attention=attention,
        readout=readout,
        frames=frames,
        size=size,
        epochs=epochs,
        lr=lr,
        batch_size=batch_size,
        keep_epoch=keep_epoch,
        held_out=held_out,
        seed=seed,
        name=name,
        output=output,
        missing=missing,
    )
    console = plain_console(stderr=as_json, quiet=not is_rank_zero())
    with show_messages():
        planned = plan_finetune(videos, options, overrides or [])
    _print_plan(console, planned)
    if plan:
        if as_json:
            values = {
                "videos": {"train": len(planned.train), "val": len(planned.val)},
                "steps": planned.steps,
                "choice": asdict(planned.choice),
                "mirrored": planned.mirrored,
                "notes": planned.notes,
                "recipe": planned.recipe.to_dict(),
            }
            print_json(values)
        return
    if planned.can_probe and not overrides:
        _run_probe(videos, init_from, output, planned.choice.probe, as_json, frames, size, held_out, missing, seed)
        return
    from motionformer.training import train as run_training

    current_rank().on_zero(planned.write_lists)
    with show_messages():
        result = run_training(planned.recipe)
    if is_rank_zero():
        _print_result(result, planned, console, as_json)


def _run_probe(
    videos: Path,
    init_from: str,
    output: str,
    reason: str,
    as_json: bool,
    frames: int | None,
    size: int | None,
    held_out: float,
    missing: "Missing",
    seed: int,
) -> None:
    """Heads on frozen features instead of training (`motionformer probe`)."""
    from motionformer.errors import RecipeError
    from motionformer.logging import show_messages
    from motionformer.probing import probe
    from motionformer.probing.report import describe

    if not init_from:
        raise RecipeError("a probe needs the weights that it freezes: give --init-from.")
    console = plain_console(stderr=as_json)
    console.print(f"probe ({reason}): heads on frozen features; --train trains instead")
    with show_messages():
        result = probe(
            videos,
            init_from,
            output or None,
            frames=frames,
            size=size,
            held_out=held_out,
            missing=missing,
            seed=seed,
        )
    if as_json:
        chosen = {"train": "probe", "reason": reason}
        print_json({"folder": str(result.folder), "model": str(result.model), "choice": chosen, **result.report})
        return
    for line in describe(result.report):
        console.print(line)
    console.print(f"model: {result.model}")


def _print_plan(console: "Console", planned: "FinetunePlan") -> None:
    from motionformer.logging import show_count
    from motionformer.models.adapter import describe_adapters
    from motionformer.training.model import build_config
    from motionformer.training.run_folder import describe_shape

    recipe = planned.recipe
    config = build_config(recipe, len(planned.class_names))
    spec, videos = config.input, planned.facts
    several = "any number per video: " if planned.train.is_multi_label else ""
    how = "over the whole video" if spec.sampling == "segments" else f"at stride {spec.stride}"
    first = "the class token" if config.num_prefix_tokens else "the mean of patch tokens"
    inputs = {
        "class": first,
        "motion": f"{first} and motion moments",
        "mean": "the mean of patch tokens",
        "attentive": "what a learnt query attends to",
    }
    clips, epochs = show_count(recipe.global_batch, "clip"), show_count(recipe.epochs, "epoch")
    length = f"{show_count(planned.steps, 'step')} of {clips} ({epochs})"
    saved = {"best": "the best epoch on the held-out videos; its metrics on them are optimistic"}
    facts = [
        ("videos", f"{len(planned.train)} for training, {len(planned.val)} held out"),
        ("", f"about {show_count(videos.frames, 'frame')}, {videos.seconds:.1f} s, short side {videos.short_side} px"),
        ("classes", several + ", ".join(planned.class_names)),
        ("clip", f"{show_count(spec.frames, 'frame')} {how}, {spec.height} × {spec.width} px"),
        ("mirrored", planned.mirrored),
        ("model", describe_shape(config)),
        *([("adapters", describe_adapters(config))] if config.adapter.attention else []),
        ("head", f"on {inputs[config.readout]}"),
        ("init from", recipe.model.init_from or f"random weights, seed {recipe.seed}"),
        ("trainable", f"{recipe.model.train} ({planned.choice.reason})"),
        ("training", f"{length}, learning rate {recipe.optimiser.lr:g}"),
    ]
    if recipe.optimiser.new_rate != 1.0:
        facts.append(("", f"{recipe.optimiser.new_rate:g} × that for newly initialised parameters"))
    facts += [("saves", saved.get(recipe.keep_epoch, "the last epoch")), ("folder", str(recipe.folder))]
    print_facts(facts, title=recipe.name, console=console)
    for note in planned.notes:
        console.print(f"note: {note}")


def _print_result(run: "TrainingResult", planned: "FinetunePlan", console: "Console", as_json: bool) -> None:
    if as_json:
        values = {"folder": str(run.folder), "model": str(run.model), "last": run.last, "seconds": run.seconds}
        intervals = run.card["results"].get("confidence", {})
        values |= {"kept": run.kept, "keep_epoch": planned.recipe.keep_epoch, "confidence": intervals}
        values["choice"] = asdict(planned.choice)
        problems = {"failed": run.card["failed"], "notes": planned.notes}
        if "lora" in run.card:
            values["lora"] = {"folder": str(run.folder / "lora"), **run.card["lora"]}
        print_json({**values, **problems, "recipe": planned.recipe.to_dict()})
        return
    from motionformer.inference.metrics import show_share
    from motionformer.training.run_folder import describe_failures, describe_kept_epoch

    top1, count = run.kept.get("top1"), len(planned.val)
    if top1 is not None:
        console.print(f"{show_share(round(top1 * count), count)} held-out videos correct")
    else:
        console.print(f"mean average precision {run.kept['map']:.1%} on {count} held-out videos")
    console.print(f"the saved model is {describe_kept_epoch(run.card)}")
    for line in (*(f"note: {doubt}" for doubt in planned.doubts), *describe_failures(run.card)):
        console.print(line)
    console.print(f"model: {run.model}")
