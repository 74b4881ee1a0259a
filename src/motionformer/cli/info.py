"""`motionformer info`: what a model is and what it costs, before anything is trained or downloaded."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from motionformer.cli.options import Attention, JsonOption
from motionformer.cli.report import plain_console, print_facts, print_json, print_table

if TYPE_CHECKING:
    from motionformer.models import InputSpec, ModelConfig

_OWN = "the model's own"
_SAMPLING = {
    "uniform": "uniform protocol: exact stride, antialiased, square pixels",
    "released": "released protocol: as the authors' programs read videos (docs/fidelity.md)",
}


def info(
    models: Annotated[
        list[str] | None,
        typer.Argument(metavar="[MODEL]…", help="A variant, a released name, or a folder or file of weights."),
    ] = None,
    frames: Annotated[int | None, typer.Option(min=1, help="Frames per clip.", show_default=_OWN)] = None,
    size: Annotated[
        int | None, typer.Option(min=1, help="Height and width of a clip, in pixels.", show_default=_OWN)
    ] = None,
    tubelet: Annotated[
        int | None, typer.Option(min=1, help="Frames per token: 1 is square, 2 cubic tokens.", show_default=_OWN)
    ] = None,
    attention: Attention = None,
    kernel: Annotated[
        str | None,
        typer.Option(
            help="Attention kernel: exact, norm_st, orthoformer, nystrom, performer or a registered one.",
            show_default=_OWN,
        ),
    ] = None,
    prototypes: Annotated[
        int | None, typer.Option(min=1, help="Prototypes or landmarks of an approximation.", show_default=_OWN)
    ] = None,
    num_classes: Annotated[int | None, typer.Option(min=0, help="Number of classes.", show_default=_OWN)] = None,
    batch_size: Annotated[int, typer.Option(help="Clips per batch, for the memory estimates.", min=1)] = 1,
    as_json: JsonOption = False,
) -> None:
    """What a model is and what it costs: parameters, multiply-adds, memory.

    Without MODEL, lists every model. With one, its multiply-adds are given twice: by the paper's convention (its
    equations done literally) and as this code computes the same function. Several are compared in one table.

    **Examples**

        motionformer info

        motionformer info motionformer-base

        motionformer info motionformer-base --frames 32 --size 336 --kernel orthoformer --prototypes 64

        motionformer info k400_motionformer_224_16x4 --json

        motionformer info motionformer-base facebook/timesformer-base-finetuned-k400 videomae/
    """
    if not models:
        _list_models(as_json)
        return
    changes: dict[str, Any] = {"num_classes": num_classes, "frames": frames, "size": size}
    if tubelet is not None:
        changes["tubelet"] = tubelet
    if attention is not None:
        changes["attention"] = attention
    reports = [_describe(model, changes, kernel, prototypes, batch_size) for model in models]
    if as_json:
        print_json(reports[0] if len(reports) == 1 else {"models": reports})
    elif len(reports) == 1:
        _print_report(reports[0])
    else:
        _print_comparison(reports)


def _describe(
    model: str, changes: dict[str, Any], kernel: str | None, prototypes: int | None, batch_size: int
) -> dict[str, Any]:
    """All that is shown of a model, in plain values."""
    from dataclasses import replace

    from motionformer.models.adapter import describe_adapters
    from motionformer.models.costs import measure, released_parameters
    from motionformer.models.variants import adapt_config
    from motionformer.weights.families import FAMILIES

    found, notes = _find_config(model)
    config = adapt_config(found, **changes)
    if kernel is not None or prototypes is not None:
        choice = kernel or config.kernel.kind
        config = replace(
            config,
            kernel=replace(config.kernel, kind=choice, num_prototypes=prototypes or config.kernel.num_prototypes),
        )
    try:
        cost = measure(config, batch_size)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error
    family = config.source if config.source in [family.title for family in FAMILIES.values()] else None
    extra = {} if family else released_parameters(config)
    return {
        "model": model,
        "family": family or "Motionformer",
        "attention": config.attention,
        "kernel": config.kernel.kind,
        "adapters": describe_adapters(config) if config.adapter.attention else None,
        "input": {"frames": config.input.frames, "height": config.input.height, "width": config.input.width},
        "protocol": config.input.protocol,
        "segments": _describe_segments(config.input),
        "grid": list(config.grid),
        "tokens": config.num_prefix_tokens + config.grid[0] * config.grid[1] * config.grid[2],
        "parameters": cost.parameters,
        "parameters_released": cost.parameters + sum(extra.values()),
        "not_carried": extra,
        "gmacs_paper": _paper_gmacs(config),
        "gmacs": round(cost.macs / batch_size / 1e9, 3),
        "batch_size": batch_size,
        "weight_bytes": cost.weight_bytes,
        "inference_bytes": cost.inference_bytes,
        "training_step_bytes": cost.training_bytes,
        "training_total_bytes": cost.training_total_bytes,
        "notes": notes,
        "config": config.to_dict(),
    }


def _paper_gmacs(config: "ModelConfig") -> float | None:
    """None where a layer states no cost: what is not known is not shown."""
    from motionformer.errors import MotionformerError
    from motionformer.models.costs import paper_macs

    try:
        return round(paper_macs(config) / 1e9, 3)
    except MotionformerError:
        return None


def _describe_segments(spec: "InputSpec") -> str | None:
    """Of models that take a video as overlapping segments."""
    if spec.hop is None:
        return None
    return f"a segment every {spec.hop} frames at {spec.fps:g} per second, {spec.interpolation} (docs/synchformer.md)"


def _find_config(model: str) -> tuple["ModelConfig", list[str]]:
    """The configuration, and what is to be known about the weights."""
    from dataclasses import replace

    from motionformer.models.variants import VARIANTS, model_config
    from motionformer.weights.load import read_config_and_notes
    from motionformer.weights.released import RELEASED
    from motionformer.weights.synchformer import SYNCHFORMER, VISUAL

    if model in RELEASED:  # known without the file
        released = RELEASED[model]
        base = VARIANTS[f"{released.kind}-base"]
        classes: Any = {"k400": 400, "k600": 600, "ssv2": 174, "ek": {"verb": 97, "noun": 300}}[released.dataset]
        made = replace(base, input=released.input, num_classes=classes, project_values=False, position_grid=(14, 14))
        return made, []
    if model == SYNCHFORMER:
        return VISUAL, []
    if model.lower().replace("_", "-") in VARIANTS:
        return model_config(model), []
    return read_config_and_notes(model)


def _print_report(report: dict[str, Any]) -> None:
    from motionformer.logging import show_count

    spec, grid = report["input"], report["grid"]
    stated = "not stated" if report["gmacs_paper"] is None else f"{report['gmacs_paper']:.2f} G"
    prefix = ", and prefix" if report["config"]["num_prefix_tokens"] else ""
    facts = [
        *([] if report["family"] == "Motionformer" else [("family", report["family"])]),
        ("attention", f"{report['attention']}, {report['kernel']}"),
        *([("adapters", report["adapters"])] if report["adapters"] else []),
        ("clip", f"{show_count(spec['frames'], 'frame')} of {spec['height']} × {spec['width']}"),
        ("sampling", report["segments"] or _SAMPLING[report["protocol"]]),
        ("tokens", f"{report['tokens']:,} ({show_count(grid[0], 'frame')} of {grid[1]} × {grid[2]}{prefix})"),
        ("parameters", f"{report['parameters'] / 1e6:.1f} M"),
    ]
    if report["not_carried"]:
        facts.append(("  in the release", f"{report['parameters_released'] / 1e6:.1f} M; not carried here:"))
        facts += [("", f"{count / 1e6:.3f} M  {reason}") for reason, count in report["not_carried"].items()]
    facts += [
        ("multiply-adds", f"{report['gmacs']:.2f} G as computed here"),
        ("", f"{stated} by the paper's convention"),
        ("memory", f"weights {_mega(report['weight_bytes'])}, float32, batch size {report['batch_size']}:"),
        ("", f"forward pass {_mega(report['inference_bytes'])} more"),
        ("", f"training step {_mega(report['training_step_bytes'])} more (activations and gradients)"),
        ("", f"training in all {_mega(report['training_total_bytes'])}, with AdamW's moments"),
    ]
    facts += [("notes" if not number else "", note) for number, note in enumerate(report["notes"])]
    print_facts(facts, title=report["model"])


def _print_comparison(reports: list[dict[str, Any]]) -> None:
    from motionformer.weights.load import short_name

    rows = [
        (
            short_name(one["model"]),
            one["family"],
            ", ".join(part for part in (one["attention"], one["kernel"]) if part != "exact"),
            f"{one['config']['dim']} × {one['config']['depth']}",
            f"{one['input']['frames']} × {one['input']['height']} px",
            f"{one['parameters'] / 1e6:,.1f} M",
            f"{one['gmacs']:,.2f}",
        )
        for one in reports
    ]
    columns = ("model", "family", "attention", "width\n× depth", "clip", "size", "GMACs")
    print_table(columns, rows, right=("size", "GMACs"), wrap=("model", "attention"), compact=True)
    plain_console().print(
        "size: parameters; GMACs: billions of multiply-adds per clip, as computed here; `info MODEL` has the rest."
    )


def _list_models(as_json: bool) -> None:
    from motionformer.models.costs import paper_macs
    from motionformer.models.variants import VARIANTS
    from motionformer.weights.released import RELEASED
    from motionformer.weights.synchformer import SYNCHFORMER

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
        print_json({"models": rows, "released": list(RELEASED)})
        return
    listed = [
        (
            str(row["model"]),
            ", ".join(str(part) for part in (row["attention"], row["kernel"]) if part != "exact"),
            f"{row['dim']} × {row['depth']}",
            f"{row['frames']} × {row['size']} px",
            f"{row['gmacs_paper']:,.2f}",
        )
        for row in rows
    ]
    columns = ("model", "attention", "width\n× depth", "clip", "GMACs")
    print_table(columns, listed, title="models", right=("GMACs",), wrap=("attention",), compact=True)
    console = plain_console()
    console.print("GMACs: billions of multiply-adds per clip by the paper's convention; `info MODEL` counts what runs.")
    console.print("released weights: " + ", ".join((*RELEASED, SYNCHFORMER)))


def _mega(count: int) -> str:
    return f"{count / 1e6:,.0f} MB"
