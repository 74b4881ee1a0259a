"""`motionformer probe`: the best head on a frozen backbone, from few videos, in minutes."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from motionformer.cli import options
from motionformer.cli.report import plain_console, print_json, print_table

PROBE_HELP = """Train heads on the features of a frozen backbone, choose one by cross-validation, and report on it.

For tens to thousands of labelled videos: a folder of class folders, or a csv of path,label (and group). Features are
computed once and kept: the second run takes seconds, an interrupted one resumes. A fifth of each class is held out and
scored once, at the end. Videos of one file, and of one group (a person, a camera, a day), are never on both sides.

The output folder holds the model (`predict`, `evaluate`, `trace`, `serve` and `export` take it), report.html with the
accuracy, its interval, the learning curve and the clips that went wrong, report.json, and the two lists of videos.

**Examples**

    motionformer probe videos/ --backbone timm/vit_small_patch14_dinov2.lvd142m

    motionformer probe list.csv --backbone dinov2_vits14.safetensors --heads all --seed 1 --output runs/all

    motionformer probe videos/ --backbone k400_motionformer_224_16x4 --group-by folder
"""


def probe(
    videos: Annotated[Path, typer.Argument(exists=True, metavar="FOLDER", help="Class folders, or a csv.")],
    backbone: Annotated[
        str, typer.Option("--backbone", "-b", help="Image weights (file, folder, hub name), or a video model.")
    ],
    heads: Annotated[
        list[str] | None,
        typer.Option("--heads", help="Heads to try, once for each; or all.", show_default="those that take seconds"),
    ] = None,
    frames: Annotated[
        int | None, typer.Option(min=1, help="Frames per clip.", show_default="8, or the video model's")
    ] = None,
    size: Annotated[
        int | None,
        typer.Option(
            min=8, help="Height and width of a clip.", show_default="7 patches, on a GPU 16; the video model's"
        ),
    ] = None,
    group_by: Annotated[
        Literal["column", "folder", "prefix"],
        typer.Option(help="Groups: column of the list, folder in the class folder, file name up to _ or -."),
    ] = "column",
    held_out: Annotated[float, typer.Option(min=0.01, max=0.9, help="Share of each class held out.")] = 0.2,
    folds: Annotated[int, typer.Option(min=2, help="Of the cross-validation.")] = 5,
    missing: options.MissingOption = "error",
    seed: Annotated[int, typer.Option(min=0, help="Of the split, the folds and the learning curve.")] = 0,
    output: Annotated[Path | None, typer.Option(help="Folder for all of it.", show_default="runs/NAME-probe")] = None,
    cache: Annotated[
        Path | None, typer.Option(help="Folder of features.", show_default="features in the cache folder")
    ] = None,
    cache_size: Annotated[str, typer.Option(help="What it may take, such as 500MB.")] = "4GB",
    device: options.DeviceOption = "auto",
    precision: options.PrecisionOption = "32",
    batch_size: options.BatchSizeOption = 8,
    num_workers: options.NumWorkersOption = 0,
    as_json: options.JsonOption = False,
) -> None:
    from motionformer.logging import show_messages
    from motionformer.probing import probe as run_probe
    from motionformer.probing.report import describe

    where = options.find_device(device)
    with show_messages():
        result = run_probe(
            videos,
            backbone,
            output,
            heads=heads,
            frames=frames,
            size=size,
            group_by=group_by,
            held_out=held_out,
            num_folds=folds,
            missing=missing,
            seed=seed,
            cache=cache,
            cache_size=_parse_bytes(cache_size),
            device=str(where),
            precision=precision,
            batch_size=batch_size,
            num_workers=num_workers,
        )
    if as_json:
        print_json({"folder": str(result.folder), "model": str(result.model), **result.report})
        return
    print_table(
        ("head", "cross-validated, %", "95 % CI", "parameters", "CPU s"),
        [_row(head, result.report["chosen"]) for head in result.report["heads"]],
        right=("cross-validated, %", "parameters", "CPU s"),
    )
    console = plain_console()
    for line in describe(result.report):
        console.print(line)
    console.print(f"report: {result.folder / 'report.html'}")
    console.print(f"model: {result.model}")


def _row(head: dict[str, object], chosen: str) -> tuple[str, ...]:
    from motionformer.inference.metrics import show_interval

    crossed: dict[str, float] = head["cross_validation"]  # type: ignore[assignment]
    name = f"{head['head']} (chosen)" if head["head"] == chosen else str(head["head"])
    interval = show_interval(crossed["low"], crossed["high"])
    return name, f"{100 * crossed['accuracy']:.1f}", interval, f"{head['parameters']:,}", f"{head['cpu_seconds']:.1f}"


def _parse_bytes(text: str) -> int:
    units = {"KB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12}
    number, unit = text[:-2].strip(), text[-2:].upper()
    try:
        return int(float(number) * units[unit])
    except (KeyError, ValueError):
        raise typer.BadParameter(f"{text!r} is no size, such as 500MB or 4GB.", param_hint="--cache-size") from None
