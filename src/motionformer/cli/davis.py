"""`motionformer davis evaluate` and `motionformer davis score`"""

import json as json_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from motionformer.cli.options import TrackerOptions, with_tracker_options
from motionformer.errors import MotionformerError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rich.progress import Progress

    from motionformer.experiments.davis.layout import Sequence
    from motionformer.experiments.davis.run import Evaluation
    from motionformer.experiments.davis.score import ObjectScore

    Done = tuple[Sequence, list[ObjectScore], float | None]

app = typer.Typer(help="Video object segmentation on DAVIS.", no_args_is_help=True)


SingleOption = Annotated[bool, typer.Option("--single-object", help="Take all objects for one, as DAVIS 2016 does.")]
YearOption = Annotated[int | None, typer.Option(help="2016 or 2017, where ROOT has the lists of both.")]
SplitOption = Annotated[
    str | None, typer.Option(help="A list in ImageSets, such as val.", show_default="all sequences")
]
SequenceOption = Annotated[list[str] | None, typer.Option("--sequence", help="Only this sequence; may be given again.")]
ResolutionOption = Annotated[str, typer.Option(help="Folder of frames and masks: 480p or Full-Resolution.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]

EVALUATE_HELP = """Follow the first mask of every DAVIS sequence with a model, and score the result.

ROOT holds JPEGImages, Annotations and perhaps ImageSets. J is the overlap of regions, F that of outlines; the first
and the last frame do not count.

**Examples**

    motionformer davis evaluate DAVIS --split val --model k400_motionformer_224_16x4

    motionformer davis evaluate DAVIS --model dinov2_vits14.safetensors --from-image --overlay overlays

    motionformer davis evaluate DAVIS --model copy --json
"""
SCORE_HELP = """Score masks that any method has written: PREDICTIONS/SEQUENCE/00000.png …

**Examples**

    motionformer davis score results DAVIS --split val

    motionformer davis score results DAVIS --sequence dog --single-object --json
"""


@app.command(help=EVALUATE_HELP)
@with_tracker_options
def evaluate(
    root: Annotated[Path, typer.Argument(exists=True, file_okay=False, help="The DAVIS folder.")],
    options: TrackerOptions,
    year: YearOption = None,
    split: SplitOption = None,
    sequence: SequenceOption = None,
    resolution: ResolutionOption = "480p",
    single_object: SingleOption = False,
    masks: Annotated[Path | None, typer.Option(help="Write the masks here, as DAVIS wants them.")] = None,
    overlay: Annotated[Path | None, typer.Option(help="Write an mp4 a sequence here.")] = None,
    json: JsonOption = False,
) -> None:
    from motionformer.experiments.davis.layout import find_sequences
    from motionformer.experiments.davis.run import check_evaluate_output
    from motionformer.experiments.davis.run import evaluate as follow

    sequences = find_sequences(root, year=year, split=split, names=tuple(sequence or ()), resolution=resolution)
    check_evaluate_output(sequences, masks, overlay)
    tracker = options.build()
    with _progress() as progress:
        bar = progress.add_task("following", total=sum(len(one.masks) for one in sequences))
        running = follow(
            sequences,
            tracker,
            single_object=single_object,
            masks=masks,
            overlays=overlay,
            after_frame=lambda: progress.advance(bar),
        )
        done, error = _take(running)
    _print_done(done, error, len(sequences), json)


@app.command(help=SCORE_HELP)
def score(
    predictions: Annotated[Path, typer.Argument(exists=True, file_okay=False, help="A folder of folders of masks.")],
    root: Annotated[Path, typer.Argument(exists=True, file_okay=False, help="The DAVIS folder.")],
    year: YearOption = None,
    split: SplitOption = None,
    sequence: SequenceOption = None,
    resolution: ResolutionOption = "480p",
    single_object: SingleOption = False,
    json: JsonOption = False,
) -> None:
    from motionformer.experiments.davis.layout import find_sequences
    from motionformer.experiments.davis.run import score_folders

    sequences = find_sequences(root, year=year, split=split, names=tuple(sequence or ()), resolution=resolution)
    with _progress() as progress:
        running = score_folders(predictions, sequences, single_object=single_object)
        done, error = _take((*one, None) for one in progress.track(running, len(sequences), description="scoring"))
    _print_done(done, error, len(sequences), json)


def _progress() -> "Progress":
    from rich.console import Console
    from rich.progress import Progress

    return Progress(console=Console(stderr=True), transient=True)


def _take(running: "Iterable[Done]") -> "tuple[list[Done], BaseException | None]":
    """What comes until the end, or until an error; that one too."""
    done = []
    try:
        for one in running:
            done.append(one)  # noqa: PERF402, what came before an error is kept
    except (MotionformerError, OSError, KeyboardInterrupt) as error:
        return done, error
    return done, None


def _print_done(done: "list[Done]", error: BaseException | None, total: int, as_json: bool) -> None:
    """The figures of what is done; then the error, if one was in the way of the rest."""
    from motionformer.experiments.davis.run import Evaluation
    from motionformer.experiments.davis.score import Scores

    if done:
        each = [seconds for _, _, seconds in done if seconds is not None]
        scores = Scores(tuple(score for _, found, _ in done for score in found))
        evaluation = Evaluation(scores, sum(len(one.masks) for one, _, _ in done), sum(each) if each else None)
        if as_json:
            partial = {"sequences_done": len(done), "sequences_in_all": total} if error is not None else {}
            print(json_module.dumps({**evaluation.to_dict(), **partial}, indent=1))
        else:
            _print_table(evaluation)
    if error is None:
        return
    if done:
        typer.echo(f"only {len(done)} of {total} sequences are in these figures:", err=True)
    raise error


def _print_table(evaluation: "Evaluation") -> None:
    from rich.console import Console
    from rich.table import Table

    scores = evaluation.scores
    table = Table("sequence", "object")
    for name in ("J&F", "J", "recall", "decay", "F", "recall", "decay"):
        table.add_column(name, justify="right")
    rows = [(one.sequence, str(one.number), one.J, one.F) for one in scores.objects]
    for name, number, region, contour in [*rows, ("mean", "", scores.J, scores.F)]:
        if name == "mean":
            table.add_section()
        figures = (
            (region.mean + contour.mean) / 2,
            *(region.mean, region.recall, region.decay),
            *(contour.mean, contour.recall, contour.decay),
        )
        table.add_row(name, number, *(f"{100 * figure:.1f}" for figure in figures))
    console = Console(highlight=False)
    console.print(table)
    if evaluation.seconds is not None:
        each = evaluation.seconds / evaluation.num_frames
        console.print(f"{evaluation.num_frames} frames, {each:.2f} s each (without scoring)")
