"""`motionformer train`"""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from motionformer.cli.report import plain_console, print_facts, print_json

if TYPE_CHECKING:
    from motionformer.training.recipe import Recipe
    from motionformer.training.run import Prepared, TrainingResult

TRAIN_HELP = """Train the model of a recipe, or resume an interrupted run of it.

RECIPE is a YAML file, or the name of a recipe that comes with the package (`motionformer recipes` lists them);
`key=value` changes a setting. The run folder (`output`, by default `runs/NAME`) gets the model, its metrics,
checkpoints and a run card. The same command again resumes an interrupted run exactly; a finished run is not
repeated. SIGTERM and SIGUSR1 save a checkpoint and end the command with exit code 75.

**Examples**

    motionformer train motion/easy

    motionformer train motion/easy seed=1 output=runs/easy-1

    motionformer train k400/base data.train=/data/k400 engine.max_clips=8 --dry-run

    motionformer train motion/easy model.variant=joint-tiny --print
"""


def train(
    recipe: Annotated[Path, typer.Argument(help="Recipe file, or the name of one that comes with the package.")],
    overrides: Annotated[list[str] | None, typer.Argument(metavar="[KEY=VALUE]...", help="Changes to it.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the plan without training.")] = False,
    print_recipe: Annotated[bool, typer.Option("--print", help="Print the recipe in full without training.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="No progress bar and no messages.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the plan or the run card as JSON.")] = False,
) -> None:
    from motionformer.training.recipe import load_recipe

    loaded = load_recipe(recipe, overrides or [])
    if print_recipe:
        print(loaded.to_yaml(), end="")
        return
    import logging

    from motionformer.distributed import is_rank_zero
    from motionformer.logging import show_messages
    from motionformer.training.run import prepare
    from motionformer.training.run import train as run_training

    if dry_run:
        _print_plan(prepare(loaded), loaded, as_json)
        return
    with show_messages(logging.WARNING if quiet else logging.INFO):
        finished = run_training(loaded, quiet=quiet)
    if is_rank_zero():
        _print_result(finished, as_json)


def _print_plan(prepared: "Prepared", recipe: "Recipe", as_json: bool) -> None:
    from motionformer.logging import show_count
    from motionformer.training.run_folder import describe_model
    from motionformer.training.sources import describe_mirroring

    model = describe_model(prepared.config)
    plan, (train_source, val_source) = prepared.plan, prepared.sources
    mirrored = describe_mirroring(recipe.augmentation, train_source.class_names)
    if as_json:
        print_json({"plan": plan.to_dict(), "model": model, "mirrored": mirrored})
        return
    spec = model["input"]
    print_facts(
        {
            "training data": train_source.how,
            "validation data": val_source.how,
            "clip": f"{show_count(spec['frames'], 'frame')} of {spec['height']} × {spec['width']}",
            "mirrored": mirrored,
            "model": model["what"],
            "parameters": f"{model['parameters'] / 1e6:.2f} M",
            "multiply-adds": f"{model['multiply_adds'] / 1e9:.3g} G per clip, forward",
            "global batch": f"{show_count(plan.processes * plan.clips_at_once * plan.accumulation, 'clip')} = "
            f"{show_count(plan.processes, 'process')} × {plan.clips_at_once} at once × {plan.accumulation} accumulated",
            "learning rate": f"{plan.lr:.4g}, scaled to the batch",
            "steps": f"{plan.total_steps}, {plan.steps_per_epoch} per epoch, {plan.warmup_steps} of warm-up",
        },
        title="plan",
    )


def _print_result(finished: "TrainingResult", as_json: bool) -> None:
    from motionformer.inference.metrics import show_share
    from motionformer.training.run_folder import describe_failures, describe_kept_epoch

    if as_json:
        print_json(finished.card)
        return
    intervals = finished.card["results"].get("confidence", {})
    scores = {
        name: show_share(intervals[name]["correct"], intervals[name]["videos"]) if name in intervals else f"{value:.4g}"
        for name, value in finished.kept.items()
        if name not in ("epoch", "step")
    }
    rows = {
        "model": str(finished.model),
        "validation": ", ".join(f"{name} {value}" for name, value in scores.items()),
        "saved": f"the weights {describe_kept_epoch(finished.card)}",
        "time": f"{finished.seconds:.0f} s",
        "run card": str(finished.folder / "card.md"),
    }
    print_facts(rows, title="trained")
    for line in describe_failures(finished.card):
        plain_console().print(line)
