"""`motionformer davis evaluate` and `motionformer davis score`"""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from motionformer.cli.options import JsonOption, TrackerOptions, with_tracker_options
from motionformer.cli.report import plain_console, print_json, print_table
from motionformer.errors import MotionformerError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from motionformer.experiments.davis import Evaluation, Sequence
    from motionformer.experiments.davis.score import ObjectScore

    Done = tuple[Sequence, list[ObjectScore], float | None]

app = typer.Typer(help="Video object segmentation on DAVIS.", no_args_is_help=True)


_SingleOption = Annotated[bool, typer.Option("--single-object", help="Merge all objects into one, as DAVIS 2016 does.")]
_YearOption = Annotated[int | None, typer.Option(help="2016 or 2017, where ROOT has the lists of both.")]
_SplitOption = Annotated[
    str | None, typer.Option(help="A list in ImageSets, such as val.", show_default="all sequences")
]
_SequenceOption = Annotated[list[str] | None, typer.Option("--sequence", help="Only this sequence; repeatable.")]
_ResolutionOption = Annotated[str, typer.Option(help="Folder of frames and masks: 480p or Full-Resolution.")]

EVALUATE_HELP = """Track the objects of every DAVIS sequence from its first mask, and score the masks.

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
    year: _YearOption = None,
    split: _SplitOption = None,
    sequence: _SequenceOption = None,
    resolution: _ResolutionOption = "480p",
    single_object: _SingleOption = False,
    output: Annotated[
        Path | None, typer.Option("--output", help="Folder for the masks, in the layout of DAVIS.")
    ] = None,
    overlay: Annotated[Path | None, typer.Option(help="Folder for overlays, one mp4 per sequence.")] = None,
    as_json: JsonOption = False,
) -> None:
    from motionformer.experiments.davis import check_outputs, find_sequences
    from motionformer.experiments.davis import evaluate as track
    from motionformer.logging import progress_bar

    sequences = find_sequences(root, year=year, split=split, names=tuple(sequence or ()), resolution=resolution)
    check_outputs(sequences, output, overlay)
    tracker = options.build()
    with progress_bar() as progress:
        bar = progress.add_task("tracking", total=sum(len(one.masks) for one in sequences))
        running = track(
            sequences,
            tracker,
            single_object=single_object,
            masks=output,
            overlays=overlay,
            after_frame=lambda: progress.advance(bar),
        )
        done, error = _take(running)
    _print_done(done, error, len(sequences), as_json)


@app.command(help=SCORE_HELP)
def score(
    predictions: Annotated[Path, typer.Argument(exists=True, file_okay=False, help="A folder of folders of masks.")],
    root: Annotated[Path, typer.Argument(exists=True, file_okay=False, help="The DAVIS folder.")],
    year: _YearOption = None,
    split: _SplitOption = None,
    sequence: _SequenceOption = None,
    resolution: _ResolutionOption = "480p",
    single_object: _SingleOption = False,
    as_json: JsonOption = False,
) -> None:
    from motionformer.experiments.davis import find_sequences, score_folders
    from motionformer.logging import progress_bar

    sequences = find_sequences(root, year=year, split=split, names=tuple(sequence or ()), resolution=resolution)
    with progress_bar() as progress:
        running = score_folders(predictions, sequences, single_object=single_object)
        done, error = _take((*one, None) for one in progress.track(running, len(sequences), description="scoring"))
    _print_done(done, error, len(sequences), as_json)


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
    """The metrics of what is done; then the error, if one stopped the rest."""
    from motionformer.experiments.davis import Evaluation
    from motionformer.experiments.davis.score import Scores

    if done:
        each = [seconds for _, _, seconds in done if seconds is not None]
        scores = Scores(tuple(score for _, found, _ in done for score in found))
        evaluation = Evaluation(scores, sum(len(one.masks) for one, _, _ in done), sum(each) if each else None)
        if as_json:
            partial = {"sequences_done": len(done), "sequences_in_all": total} if error is not None else {}
            print_json({**evaluation.to_dict(), **partial})
        else:
            _print_table(evaluation)
    if error is None:
        return
    if done:
        typer.echo(f"only {len(done)} of {total} sequences are in these metrics:", err=True)
    raise error


def _print_table(evaluation: "Evaluation") -> None:
    from motionformer.logging import show_count

    scores = evaluation.scores
    rows = []
    for name, number, region, contour in [
        *((one.sequence, str(one.number), one.J, one.F) for one in scores.objects),
        ("mean", "", scores.J, scores.F),
    ]:
        metrics = (
            (region.mean + contour.mean) / 2,
            *(region.mean, region.recall, region.decay),
            *(contour.mean, contour.recall, contour.decay),
        )
        rows.append((name, number, *(f"{100 * metric:.1f}" for metric in metrics)))
    names = ("J&F", "J", "recall", "decay", "F", "recall", "decay")
    print_table(("sequence", "object", *names), rows, right=names, last_apart=True)
    if evaluation.seconds is not None:
        each = evaluation.seconds / evaluation.num_frames
        plain_console().print(f"{show_count(evaluation.num_frames, 'frame')}, {each:.2f} s per frame (without scoring)")
