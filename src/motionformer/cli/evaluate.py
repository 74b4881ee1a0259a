"""`motionformer evaluate`: how good a model is on a data set, over views, with every failed video told."""

import json
from enum import Enum
from pathlib import Path
from typing import Annotated, Any

import typer

from motionformer.cli.data import ClassesOption, KindName, KindOption, RootOption
from motionformer.cli.many import ProtocolOption, protocol_value
from motionformer.cli.options import find_device

EVALUATE_HELP = """Score a model on a data set: softmax averaged over temporal views and crops.

A model that was trained on videos of several classes is scored by sigmoid and mean average precision.

MODEL is a released name, a released file, a folder made by `save_pretrained`, or the recipe of a finished run (a file,
or a name such as `motion/easy`), which brings its own test data and views. DATA is a list (csv, json, txt), the folder
of a published data set, a folder of class folders, or the built-in benchmark: `motion:easy`, `motion:hard:2000`.

With `--out` every video's label and scores are kept (csv and npz); a killed evaluation goes on where it stopped when
the same command is given again. Under `torchrun` the processes share the videos.

Videos that the model was trained on are refused (a model of `finetune` or `train` carries fingerprints of them);
`--allow-overlap` scores them, and says how many there are.

Exit code: 0, also when videos could not be read (they are listed, and counted as wrong); 1 for an error, and with
`--strict` for a video that could not be read; 2 for wrong usage.

**Examples**

    motionformer evaluate k400_motionformer_224_16x4 k400/val.csv --root k400/videos --out results/k400

    motionformer evaluate runs/gestures/model runs/gestures/val.csv --views 3 --json

    motionformer evaluate runs/tiny/model motion:easy

    motionformer evaluate motion/easy                          # the run of this recipe, on its own test data
"""


class PrecisionName(str, Enum):
    """What the model computes in."""

    full = "32"
    bf16 = "bf16"
    fp16 = "16"


class SampleByName(str, Enum):
    """What a clip's stride counts."""

    time = "time"
    frames = "frames"


SampleByOption = Annotated[
    SampleByName | None,
    typer.Option(
        help="What a clip's stride counts: time (frames at the model's rate; slow videos repeat some), or frames (the"
        " video's own); the weights' own unless said."
    ),
]


def evaluate(
    model: Annotated[str, typer.Argument(help="Released name, file, or folder of weights.")],
    data: Annotated[str | None, typer.Argument(help="List, folder, or motion:LEVEL[:CLIPS].")] = None,
    split: Annotated[str | None, typer.Option(help="train, val or test, where DATA holds several.")] = None,
    views: Annotated[int | None, typer.Option(min=1, help="Clips along time; the model's own unless said.")] = None,
    crops: Annotated[int | None, typer.Option(min=1, help="1 or 3; the model's own unless said.")] = None,
    protocol: ProtocolOption = None,
    sample_by: SampleByOption = None,
    batch: Annotated[int, typer.Option(min=1, help="Clips in one forward pass.")] = 8,
    workers: Annotated[int, typer.Option(min=0, help="Processes that decode.")] = 2,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:1, mps.")] = "auto",
    precision: Annotated[PrecisionName, typer.Option(help="32, bf16 or 16.")] = PrecisionName.full,
    kind: KindOption = KindName.auto,
    root: RootOption = None,
    classes: ClassesOption = None,
    seed: Annotated[int, typer.Option(help="Of the split of class folders, or of the benchmark.")] = 0,
    out: Annotated[Path | None, typer.Option(help="Folder for results; goes on where an earlier run stopped.")] = None,
    pictures: Annotated[bool, typer.Option("--pictures", help="Also draw figures into --out.")] = False,
    challenge: Annotated[Path | None, typer.Option(help="Write an EPIC-Kitchens-100 submission here.")] = None,
    strict: Annotated[bool, typer.Option("--strict", help="Exit with 1 if a video could not be read.")] = False,
    allow_overlap: Annotated[
        bool, typer.Option("--allow-overlap", help="Score also videos that the model was trained on.")
    ] = False,
    show: Annotated[int, typer.Option(min=0, help="Classes and failed videos to print.")] = 10,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    from dataclasses import replace

    from rich.console import Console

    from motionformer import evaluation
    from motionformer.evaluation.classes import names_for_lists, order_note
    from motionformer.evaluation.several import joined_processes
    from motionformer.predict.names import known_labels
    from motionformer.weights import load_model

    if pictures and out is None:
        raise typer.BadParameter("figures go into --out: give a folder.", param_hint="--pictures")
    say = Console(stderr=True, quiet=as_json)
    if data is None:
        run = _find_run(model)
        model, data = run["model"], run["data"]
        views, crops, split = views or run["views"], crops or run["crops"], split or run["split"]
        kind, root = KindName(run["kind"]), root or run["root"]
    place = find_device(device)
    loaded = load_model(model, protocol=protocol_value(protocol))
    loaded.config = replace(loaded.config, labels=known_labels(model, loaded.config))
    source = evaluation.open_source(
        data,
        loaded.config.input,
        views=views,
        crops=crops,
        kind=kind.value,
        split=split,
        root=root,
        class_names=classes or names_for_lists(loaded.config),
        seed=seed,
        sample_by=None if sample_by is None else sample_by.value,
    )
    told = [*getattr(source, "notes", ()), order_note(loaded.config, source.class_names)]
    with joined_processes(place) as processes:
        for line in filter(None, told if processes.is_first else ()):
            say.print(line, highlight=False, markup=False, soft_wrap=True)
        results = evaluation.evaluate(
            loaded,
            source,
            name=model,
            device=place,
            batch=batch,
            num_workers=workers,
            precision=precision.value,
            output=out,
            allow_overlap=allow_overlap,
        )
        is_first = processes.is_first
    if is_first:
        summary = evaluation.summarise(results) if out is None else evaluation.write_reports(results, out)
        _write_extras(results, out if pictures else None, challenge)
        if as_json:
            print(json.dumps(summary, indent=1))
        else:
            evaluation.print_summary(summary, Console(), show=show, kept=out is not None)
            if out is not None:
                Console().print(f"results: {out}", highlight=False, markup=False, soft_wrap=True)
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
        raise typer.BadParameter(f"{recipe} is a model; say what to evaluate it on.", param_hint="DATA")
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


def _write_extras(results: Any, pictures: Path | None, challenge: Path | None) -> None:
    if challenge is not None:
        from motionformer.evaluation import write_challenge

        write_challenge(results, challenge)
    if pictures is not None:
        from motionformer.evaluation.pictures import draw_pictures

        draw_pictures(results, pictures)
