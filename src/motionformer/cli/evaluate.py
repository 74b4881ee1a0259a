"""`motionformer evaluate`: how good a model is on a data set, over views, with every failed video listed."""

from pathlib import Path
from typing import Annotated, Any

import typer

from motionformer.cli import options
from motionformer.cli.report import plain_console, print_json

EVALUATE_HELP = """Score a model on a data set: softmax averaged over temporal views and crops.

A model that was trained for any number of classes per video is scored by sigmoid and mean average precision.

MODEL is a released name, a released file, a folder made by `save_pretrained`, or the recipe of a finished run (a file,
or a name such as `motion/easy`), which brings its own test data and views. DATA is a list (csv, json, txt), the folder
of a published data set, a folder of class folders, or the built-in benchmark: `motion:easy`, `motion:hard:2000`.

With `--output` every video's label and scores are kept (csv and npz); a killed evaluation resumes when the same
command is given again. Under `torchrun` and `srun` the processes share the videos.

Videos that the model was trained on are an error (a model of `finetune` or `train` carries fingerprints of them);
`--allow-overlap` scores them, and reports how many there are.

Exit code: 0, also when videos could not be read (they are listed, and counted as wrong); 1 for an error, and with
`--strict` for a video that could not be read; 2 for wrong usage; 75 if SIGTERM or SIGUSR1 stopped it.

**Examples**

    motionformer evaluate k400_motionformer_224_16x4 k400/val.csv --root k400/videos --output results/k400

    motionformer evaluate runs/gestures/model runs/gestures/val.csv --views 3 --json

    motionformer evaluate runs/tiny/model motion:easy --reversed --reverse-of left=right --reverse-of up=down

    motionformer evaluate motion/easy                          # the run of this recipe, on its own test data
"""


def evaluate(
    model: Annotated[str, typer.Argument(help="Released name, file, or folder of weights.")],
    data: Annotated[str | None, typer.Argument(help="List, folder, or motion:LEVEL[:CLIPS].")] = None,
    split: options.SplitOption = None,
    views: options.ViewsOption = None,
    crops: options.CropsOption = None,
    protocol: options.ProtocolOption = None,
    sample_by: options.SampleByOption = None,
    batch_size: options.BatchSizeOption = 8,
    num_workers: options.NumWorkersOption = 2,
    device: options.DeviceOption = "auto",
    precision: options.PrecisionOption = "32",
    kind: options.KindOption = "auto",
    root: options.RootOption = None,
    class_names: options.ClassNamesOption = None,
    seed: Annotated[int, typer.Option(help="Of the split of class folders, or of the benchmark.")] = 0,
    output: Annotated[Path | None, typer.Option(help="Folder of results; an interrupted run resumes.")] = None,
    pictures: Annotated[bool, typer.Option("--pictures", help="Also draw pictures into --output.")] = False,
    challenge: Annotated[Path | None, typer.Option(help="Write an EPIC-Kitchens-100 submission here.")] = None,
    strict: Annotated[bool, typer.Option("--strict", help="Exit with 1 if a video could not be read.")] = False,
    allow_overlap: Annotated[
        bool, typer.Option("--allow-overlap", help="Score also videos that the model was trained on.")
    ] = False,
    backwards: Annotated[
        bool, typer.Option("--reversed", help="Score every clip backwards too: does the order of frames matter?")
    ] = False,
    reverse_of: Annotated[
        list[str] | None,
        typer.Option(metavar="A=B", help="With --reversed: classes that are each other's reverse; repeatable."),
    ] = None,
    show: Annotated[int, typer.Option(min=0, help="Classes and failed videos to print.")] = 10,
    as_json: options.JsonOption = False,
) -> None:
    from rich.console import Console

    from motionformer import inference
    from motionformer.distributed import current_rank
    from motionformer.inference.classes import order_note
    from motionformer.inference.evaluation import load_labelled, open_for
    from motionformer.inference.reversal import parse_pairs
    from motionformer.logging import logger, show_messages

    if pictures and output is None:
        raise typer.BadParameter("pictures are written into --output: give a folder.", param_hint="--pictures")
    if reverse_of and not backwards:
        raise typer.BadParameter("it is for reversed clips: add --reversed.", param_hint="--reverse-of")
    if data is None:
        run = _find_run(model)
        model, data = run["model"], run["data"]
        views, crops, split = views or run["views"], crops or run["crops"], split or run["split"]
        kind, root = run["kind"], root or run["root"]
    where = options.find_device(device)
    with show_messages():
        loaded = load_labelled(model, protocol)
        source = open_for(
            loaded,
            data,
            views=views,
            crops=crops,
            sample_by=sample_by,
            kind=kind,
            split=split,
            root=root,
            class_names=class_names,
            seed=seed,
        )
        notes = (*getattr(source, "notes", ()), order_note(loaded.config, source.class_names))
        for note in filter(None, () if as_json else notes):
            logger.info("%s", note)
        results = inference.evaluate(
            loaded,
            source,
            name=model,
            device=where,
            precision=precision,
            batch_size=batch_size,
            num_workers=num_workers,
            output=output,
            allow_overlap=allow_overlap,
        )
        turned = None
        if backwards:
            turned = inference.evaluate(
                loaded,
                inference.ReversedVideos(source, parse_pairs(reverse_of or [])),
                name=model,
                device=where,
                precision=precision,
                batch_size=batch_size,
                num_workers=num_workers,
                output=None if output is None else output / "reversed",
                allow_overlap=True,  # asked of the clips themselves
            )
    if current_rank().is_zero:
        summary = (
            inference.summarise(results, turned) if output is None else inference.write_reports(results, output, turned)
        )
        if challenge is not None:
            inference.write_challenge(results, challenge)
        if pictures and output is not None:
            from motionformer.inference.pictures import draw_pictures

            draw_pictures(results, output)
        if as_json:
            print_json(summary)
        else:
            inference.print_summary(summary, Console(), show=show, kept=output is not None)
            if output is not None:
                plain_console().print(f"results: {output}")
    if strict and results.failures:
        raise typer.Exit(1)


def _find_run(recipe: str) -> dict[str, Any]:
    """The model and the test of a recipe that was trained."""
    from motionformer.data.source import parse_motion
    from motionformer.training.recipe import load_recipe
    from motionformer.training.run import find_finished
    from motionformer.weights import RELEASED
    from motionformer.weights.load import SHIPPED

    if recipe in SHIPPED or recipe in RELEASED or (Path(recipe) / "config.json").exists():
        raise typer.BadParameter(f"{recipe} is a model; give the data to evaluate it on.", param_hint="DATA")
    loaded = load_recipe(recipe)
    finished = find_finished(loaded)
    if finished is None:
        raise typer.BadParameter(
            f"{loaded.folder} holds no finished run of this recipe: `motionformer train {recipe}` first; or give DATA"
            " to evaluate a model.",
            param_hint="MODEL",
        )
    made = parse_motion(loaded.data.val) is not None
    return {
        "model": str(finished.model),
        "data": f"{loaded.data.val}:{loaded.data.val_clips}" if made else loaded.data.val,
        "views": loaded.test.views or None,
        "crops": loaded.test.crops or None,
        "split": None if made else loaded.test.split,
        "kind": loaded.data.kind,
        "root": Path(loaded.data.root) if loaded.data.root else None,
    }
