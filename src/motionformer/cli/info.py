"""`motionformer info`: what a model is and what it costs, before anything is trained or downloaded."""

import json
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from motionformer.cli.options import Attention

if TYPE_CHECKING:
    from motionformer.models import ModelConfig

SAMPLING = {
    "uniform": "uniform protocol: exact stride, antialiased, square pixels",
    "released": "released protocol: as the authors' programs read videos (docs/fidelity.md)",
}


def info(
    model: Annotated[
        str | None, typer.Argument(help="A variant, a released name, or a folder or file of weights.")
    ] = None,
    frames: Annotated[
        int | None, typer.Option(min=1, help="Frames of a clip; this and the next six: the model's own unless said.")
    ] = None,
    size: Annotated[int | None, typer.Option(min=1, help="Height and width of a clip, in pixels.")] = None,
    tubelet: Annotated[int | None, typer.Option(min=1, help="Frames of a token: 1 is square, 2 cubic tokens.")] = None,
    attention: Attention = None,
    kernel: Annotated[
        str | None,
        typer.Option(help="Attention kernel: exact, norm_st, orthoformer, nystrom, performer or a registered one."),
    ] = None,
    prototypes: Annotated[int | None, typer.Option(min=1, help="Prototypes or landmarks of an approximation.")] = None,
    classes: Annotated[int | None, typer.Option(min=0, help="Number of classes.")] = None,
    batch: Annotated[int, typer.Option(help="Clips in a batch, for the memory figures.", min=1)] = 1,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """What a model is and what it costs: parameters, multiply-adds, memory.

    Without MODEL, lists every model. With one, its multiply-adds are given twice: by the paper's convention (its
    equations done literally) and as this code computes the same function.

    **Examples**

        motionformer info

        motionformer info motionformer-base

        motionformer info motionformer-base --frames 32 --size 336 --kernel orthoformer --prototypes 64

        motionformer info k400_motionformer_224_16x4 --json
    """
    if model is None:
        _list_models(as_json)
        return
    from dataclasses import replace

    from motionformer.models.costs import measure, released_parameters
    from motionformer.models.variants import adapt_config

    changes: dict[str, Any] = {}
    if tubelet is not None:
        changes["tubelet"] = tubelet
    if attention is not None:
        changes["attention"] = attention
    config = adapt_config(_find_config(model), num_classes=classes, frames=frames, size=size, **changes)
    if kernel is not None or prototypes is not None:
        choice = kernel or config.kernel.kind
        config = replace(
            config,
            kernel=replace(config.kernel, kind=choice, num_prototypes=prototypes or config.kernel.num_prototypes),
        )
    try:
        cost = measure(config, batch)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error
    extra = released_parameters(config)
    report = {
        "model": model,
        "attention": config.attention,
        "kernel": config.kernel.kind,
        "input": {"frames": config.input.frames, "height": config.input.height, "width": config.input.width},
        "protocol": config.input.protocol,
        "grid": list(config.grid),
        "tokens": config.num_prefix_tokens + config.grid[0] * config.grid[1] * config.grid[2],
        "parameters": cost.parameters,
        "parameters_released": cost.parameters + sum(extra.values()),
        "not_carried": extra,
        "gmacs_paper": _paper_gmacs(config),
        "gmacs": round(cost.macs / batch / 1e9, 3),
        "batch": batch,
        "weight_bytes": cost.weight_bytes,
        "inference_bytes": cost.inference_bytes,
        "training_step_bytes": cost.training_bytes,
        "training_total_bytes": cost.training_total_bytes,
    }
    if as_json:
        print(json.dumps({**report, "config": config.to_dict()}, indent=2))
    else:
        _print_report(report)


def _paper_gmacs(config: "ModelConfig") -> float | None:
    """None where a layer states no cost: what is not known is not shown."""
    from motionformer.errors import MotionformerError
    from motionformer.models.costs import paper_macs

    try:
        return round(paper_macs(config) / 1e9, 3)
    except MotionformerError:
        return None


def _find_config(model: str) -> "ModelConfig":
    from dataclasses import replace

    from motionformer.models.variants import VARIANTS, model_config
    from motionformer.weights.load import read_config
    from motionformer.weights.released import RELEASED

    if model in RELEASED:  # known without the file
        released = RELEASED[model]
        base = VARIANTS[f"{released.kind}-base"]
        classes: Any = {"k400": 400, "k600": 600, "ssv2": 174, "ek": {"verb": 97, "noun": 300}}[released.dataset]
        return replace(base, input=released.input, num_classes=classes, project_values=False, position_grid=(14, 14))
    if model.lower().replace("_", "-") in VARIANTS:
        return model_config(model)
    return read_config(model)


def _print_report(report: dict[str, Any]) -> None:
    table = Table(title=report["model"], show_header=False, title_justify="left")
    table.add_column(style="bold")
    table.add_column()
    spec, grid = report["input"], report["grid"]
    table.add_row("attention", f"{report['attention']}, {report['kernel']}")
    table.add_row("clip", f"{spec['frames']} frames of {spec['height']} × {spec['width']}")
    table.add_row("sampling", SAMPLING[report["protocol"]])
    table.add_row("tokens", f"{report['tokens']:,} ({grid[0]} frames of {grid[1]} × {grid[2]}, and prefix)")
    table.add_row("parameters", f"{report['parameters'] / 1e6:.1f} M")
    if report["not_carried"]:
        table.add_row("  in the release", f"{report['parameters_released'] / 1e6:.1f} M; not carried here:")
        for reason, count in report["not_carried"].items():
            table.add_row("", f"{count / 1e6:.3f} M  {reason}")
    table.add_row("multiply-adds", f"{report['gmacs']:.2f} G as computed here")
    stated = "not stated" if report["gmacs_paper"] is None else f"{report['gmacs_paper']:.2f} G"
    table.add_row("", f"{stated} by the paper's convention")
    table.add_row("memory", f"weights {_mega(report['weight_bytes'])}, float32, batch {report['batch']}:")
    table.add_row("", f"forward pass {_mega(report['inference_bytes'])} more")
    table.add_row("", f"training step {_mega(report['training_step_bytes'])} more (activations and gradients)")
    table.add_row("", f"training in all {_mega(report['training_total_bytes'])}, with AdamW's moments")
    Console().print(table)


def _list_models(as_json: bool) -> None:
    from motionformer.models.costs import paper_macs
    from motionformer.models.variants import VARIANTS
    from motionformer.weights.released import RELEASED

    rows = [
        {
            "model": name,
            "attention": c.attention,
            "kernel": c.kernel.kind,
            "time": c.time,
            "dim": c.dim,
            "depth": c.depth,
            "frames": c.input.frames,
            "size": c.input.height,
            "gmacs_paper": round(paper_macs(c) / 1e9, 2),
        }
        for name, c in VARIANTS.items()
    ]
    if as_json:
        print(json.dumps({"models": rows, "released": list(RELEASED)}, indent=2))
        return
    table = Table(title="models", title_justify="left", box=SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for column in ("model", "attention", "width\n× depth", "clip"):
        table.add_column(column, no_wrap=column != "attention")  # what is left of 80 columns is enough for its words
    table.add_column("GMACs", justify="right", no_wrap=True)
    for row in rows:
        how = ", ".join(str(part) for part in (row["attention"], row["kernel"]) if part != "exact")
        shape, clip = f"{row['dim']} × {row['depth']}", f"{row['frames']} × {row['size']} px"
        table.add_row(str(row["model"]), how, shape, clip, f"{row['gmacs_paper']:,.2f}")
    console = Console()
    console.print(table)
    console.print(
        "GMACs: billions of multiply-adds a clip by the paper's convention; `info MODEL` says what runs here."
    )
    console.print("released weights: " + ", ".join(RELEASED))


def _mega(count: int) -> str:
    return f"{count / 1e6:,.0f} MB"
