"""`motionformer predict`: what happens in videos, or when it happens."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from motionformer.cli.evaluate import PrecisionName, SampleByOption
from motionformer.cli.many import (
    ProtocolOption,
    frames_cell,
    only_first_talks,
    progress,
    protocol_value,
    tell_failures,
    tell_reads,
)
from motionformer.cli.options import DeviceOption, find_device

if TYPE_CHECKING:
    from rich.console import Console

    from motionformer.predict import Predictor, Timeline
    from motionformer.predict.run import Work

DEFAULT_MODEL = "k400_motionformer_224_16x4"
SHOWN = 50
"""Videos printed where a file holds all of them."""
PREDICT_HELP = """Say what happens in videos: files, folders, folders of frames, or patterns.

Frames are picked, and clips and crops averaged, as the weights were tested; `--views 1 --crops 1` is a quick look.
With `--timeline`, windows slide over long videos, and segments above a threshold are listed.

Results go to the terminal, `--json` and `--csv`. While running they are kept beside these files: after an
interruption, the same command with `--resume` goes on and gives the same file. Under `torchrun` the processes share
the videos.

Exit code: 0; 1 for an error, or if a video could not be read (the others are done, and it is listed); 2 for wrong
usage.

**Examples**

    motionformer predict clip.mp4

    motionformer predict videos/ 'more/**/*.avi' --model runs/gestures/model --json results.json --resume

    motionformer predict match.mp4 --timeline --threshold 0.4 --plot match.png

    torchrun --nproc-per-node 4 $(which motionformer) predict videos/ --csv results.csv
"""
ModelOption = Annotated[str, typer.Option("--model", "-m", help="Released name, file, or folder of weights.")]
BatchOption = Annotated[int, typer.Option(min=1, help="Clips in one forward pass.")]
ResumeOption = Annotated[bool, typer.Option("--resume", help="Go on with what an earlier run has done.")]


def check_seconds(value: float | None, option: str) -> None:
    """Before anything is loaded: a time that windows can have."""
    if value is not None and not 0 < value < float("inf"):
        raise typer.BadParameter(f"{value:g} is no number of seconds above 0.", param_hint=option)


def predict(
    paths: Annotated[list[str], typer.Argument(metavar="PATH…", help="Videos, folders, patterns.")],
    model: ModelOption = DEFAULT_MODEL,
    top: Annotated[int, typer.Option(min=1, help="Guesses to show and to write.")] = 5,
    views: Annotated[int | None, typer.Option(min=1, help="Clips along time; the weights' own unless said.")] = None,
    crops: Annotated[int | None, typer.Option(min=1, help="1 or 3; the weights' own unless said.")] = None,
    protocol: ProtocolOption = None,
    sample_by: SampleByOption = None,
    labels: Annotated[
        Path | None, typer.Option(exists=True, help="Names of the classes: txt, json, csv, or a data set.")
    ] = None,
    timeline: Annotated[bool, typer.Option("--timeline", help="Slide over long videos.")] = False,
    threshold: Annotated[float, typer.Option(min=0.0, max=1.0, help="Score that a segment reaches.")] = 0.5,
    hop: Annotated[float | None, typer.Option(help="Seconds from window to window; half a window unless said.")] = None,
    window: Annotated[float | None, typer.Option(help="Seconds of a window, for weights of segments.")] = None,
    plot: Annotated[Path | None, typer.Option(help="Draw the timeline: a PNG, or a folder for several.")] = None,
    as_json: Annotated[Path | None, typer.Option("--json", help="Write JSON here; - prints it.")] = None,
    csv: Annotated[Path | None, typer.Option(help="Write a line a guess, or a segment, here.")] = None,
    resume: ResumeOption = False,
    batch: BatchOption = 8,
    workers: Annotated[int, typer.Option(min=0, help="Processes that decode.")] = 0,
    device: DeviceOption = "auto",
    precision: Annotated[PrecisionName, typer.Option(help="32, bf16 or 16.")] = PrecisionName.full,
    time_limit: Annotated[float, typer.Option(min=0.1, help="Seconds for opening, and for reading, one video.")] = 60.0,
) -> None:
    from rich.console import Console

    from motionformer.evaluation.several import joined_processes
    from motionformer.predict import Predictor, find_inputs
    from motionformer.predict.run import run
    from motionformer.predict.tables import json_text, write_json, write_table
    from motionformer.runs import check_output, is_special

    to_screen = as_json is not None and str(as_json) == "-"
    outputs = [file for file in (None if to_screen else as_json, csv) if file is not None]
    kept = next((file for file in outputs if not is_special(file)), None)
    if not timeline and (plot or hop is not None or window is not None):
        raise typer.BadParameter("--plot, --hop and --window belong to --timeline.", param_hint="--timeline")
    if resume and kept is None:
        raise typer.BadParameter(
            "give --json FILE or --csv FILE, no device or pipe: results are kept beside it.", param_hint="--resume"
        )
    check_seconds(hop, "--hop")
    check_seconds(window, "--window")
    place = find_device(device)
    only_first_talks()
    videos = [video.path for video in find_inputs(paths)]
    _check_plot(plot, len(videos))
    for output in outputs:
        check_output(output)
    predictor = Predictor.from_pretrained(
        model,
        place,
        protocol=protocol_value(protocol),
        labels=labels,
        views=1 if timeline else views,
        crops=crops,
        sample_by=None if sample_by is None else sample_by.value,
        batch=batch,
        precision=precision.value,
        time_limit=time_limit,
    )
    say = Console(stderr=True, highlight=False, soft_wrap=True)
    work, how = _work(predictor, timeline, top, threshold, hop, window, plot, workers)
    if sample_by is not None:
        how["sample_by"] = sample_by.value
    header = {"model": model, "protocol": predictor.spec.protocol, **how}
    with joined_processes(place) as processes:
        with progress(say, "predicting", len(videos), processes) as advance:
            entries = run(
                videos,
                work,
                header=how if kept is None else {**how, **_identity(predictor)},
                journal=None if kept is None else kept.with_name(kept.name + ".journal"),
                resume=resume,
                on_entry=advance,
            )
        is_first = processes.is_first
    failed = [entry for entry in entries if "failed" in entry]
    if is_first:
        if as_json is not None and not to_screen:
            write_json(entries, header, as_json)
        if csv is not None:
            write_table(entries, csv)
        if kept is not None and not resume:
            from motionformer.predict.journal import remove_journal

            remove_journal(kept.with_name(kept.name + ".journal"))
        if to_screen:
            print(json_text(entries, header), end="")
        else:
            _print(Console(highlight=False), entries, len(entries) if kept is None else SHOWN)
        tell_reads(say, entries)
        tell_failures(say, failed, len(entries))
    if failed:
        raise typer.Exit(1)


def _work(
    predictor: "Predictor",
    timeline: bool,
    top: int,
    threshold: float,
    hop: float | None,
    window: float | None,
    plot: Path | None,
    workers: int,
) -> "tuple[Work, dict[str, Any]]":
    """What is done with each video, and what is said about it in the files."""
    from motionformer.predict.run import PredictTimelines, PredictVideos

    spec = predictor.spec
    if not timeline:
        return PredictVideos(predictor, top, workers), {"views": spec.views, "crops": spec.crops, "top": top}
    if threshold == 0:
        raise typer.BadParameter("every window reaches 0.", param_hint="--threshold")

    def draw(found: "Timeline") -> None:
        from motionformer.predict.plot import draw_timeline

        if plot is not None:
            name = plot if plot.suffix else plot / f"{Path(found.video).name}.png"
            draw_timeline(found, name, threshold)

    how = {"crops": spec.crops, "top": top, "threshold": threshold, "hop": hop, "window": window}
    return PredictTimelines(predictor, top, threshold, hop, window, draw if plot else None), how


def _identity(predictor: "Predictor") -> dict[str, Any]:
    """What an interrupted run must have been of to be gone on with."""
    from motionformer.evaluation.fingerprint import model_fingerprint

    return {
        "weights": model_fingerprint(predictor.model),
        "clips": predictor.spec.recorded(),
        "classes": predictor.labels,
        "precision": predictor.score.precision,
    }


def _check_plot(plot: Path | None, num_videos: int) -> None:
    """Before the videos are read: one picture for one video, of a kind that can be drawn, where it can be written."""
    if plot is None:
        return
    from matplotlib.figure import Figure

    from motionformer.runs import check_output

    if plot.suffix and num_videos > 1:
        raise typer.BadParameter(f"{num_videos} videos need a folder, not one picture.", param_hint="--plot")
    kinds = Figure().canvas.get_supported_filetypes()
    if plot.suffix and plot.suffix[1:].lower() not in kinds:
        raise typer.BadParameter(
            f"{plot.suffix} is no kind of picture that can be drawn; use one of {', '.join(sorted(kinds))}.",
            param_hint="--plot",
        )
    check_output(plot if plot.suffix else plot / "timeline.png")


def _print(console: "Console", entries: list[dict[str, Any]], show: int) -> None:
    from rich.table import Table

    if any("segments" in entry for entry in entries):
        table = Table("video", "from", "to", "label", title_justify="left")
    else:
        table = Table("video", "label", title_justify="left")
    table.add_column("score", justify="right")
    table.add_column("frames")
    table.columns[0].overflow = "fold"
    for entry in entries[:show]:
        _add_rows(table, entry)
    if table.row_count:
        console.print(table)
    if len(entries) > show:
        console.print(f"… and {len(entries) - show} more in the file")


def _add_rows(table: Any, entry: dict[str, Any]) -> None:
    from rich.markup import escape

    name, frames = escape(entry["video"]), frames_cell(entry)
    if "failed" in entry:
        return
    if "segments" in entry:
        for segment in entry["segments"]:
            times = (_clock(segment["start"]), _clock(segment["end"]))
            table.add_row(name, *times, escape(segment["label"]), f"{segment['score']:.3f}", frames)
            name = frames = ""
        if not entry["segments"]:
            table.add_row(name, "", "", f"[dim]nothing reaches {entry['threshold']:g}[/dim]", "", frames)
        table.add_section()
        return
    for guess in entry["top"]:
        table.add_row(name, escape(guess["label"]), f"{guess['score']:.3f}", frames)
        name = frames = ""
    table.add_section()


def _clock(seconds: float) -> str:
    hours, rest = divmod(seconds, 3600)
    return (f"{int(hours)}:" if hours else "") + f"{int(rest // 60):02d}:{rest % 60:04.1f}"
