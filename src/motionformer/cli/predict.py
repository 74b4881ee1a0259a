"""`motionformer predict`: what happens in videos, or when it happens."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from motionformer.cli.options import (
    BatchSizeOption,
    DeviceOption,
    ModelOption,
    NumWorkersOption,
    PrecisionOption,
    ProtocolOption,
    ResumeOption,
    SampleByOption,
    check_seconds,
    find_device,
)
from motionformer.cli.report import frames_cell, mute_other_ranks, plain_console, print_failures, print_read_notes

if TYPE_CHECKING:
    from motionformer.inference import Predictor, Timeline
    from motionformer.inference.jobs import Work

_SHOWN = 50
"""Videos printed where a file holds all of them."""
PREDICT_HELP = """Predict the classes of videos: files, folders, folders of frames, or patterns.

Frames are sampled, and clips and crops averaged, as the weights were tested; `--views 1 --crops 1` is a quick look.
With `--timeline`, windows slide over long videos, and segments above a threshold are listed.

Results go to the terminal, `--json` and `--csv`. While running they are kept beside these files: after an
interruption, the same command with `--resume` resumes and gives the same file. Under `torchrun` the processes share
the videos.

Exit code: 0; 1 for an error, or if a video could not be read (the others are done, and it is listed); 2 for wrong
usage.

**Examples**

    motionformer predict clip.mp4

    motionformer predict videos/ 'more/**/*.avi' --model runs/gestures/model --json results.json --resume

    motionformer predict match.mp4 --timeline --threshold 0.4 --plot match.png

    torchrun --nproc-per-node 4 $(which motionformer) predict videos/ --csv results.csv
"""


def predict(
    paths: Annotated[list[str], typer.Argument(metavar="PATH…", help="Videos, folders, patterns.")],
    model: ModelOption = "k400_motionformer_224_16x4",
    top: Annotated[int, typer.Option(min=1, help="Best classes to show and to write.")] = 5,
    views: Annotated[int | None, typer.Option(min=1, help="Clips along time.", show_default="the weights' own")] = None,
    crops: Annotated[
        int | None, typer.Option(min=1, help="Crops per clip: 1, 3.", show_default="the weights' own")
    ] = None,
    protocol: ProtocolOption = None,
    sample_by: SampleByOption = None,
    labels: Annotated[
        Path | None, typer.Option(exists=True, help="Names of the classes: txt, json, csv, or a data set.")
    ] = None,
    timeline: Annotated[bool, typer.Option("--timeline", help="Slide over long videos.")] = False,
    threshold: Annotated[float, typer.Option(min=0.0, max=1.0, help="Score that a segment reaches.")] = 0.5,
    hop: Annotated[
        float | None, typer.Option(help="Seconds from window to window.", show_default="half a window")
    ] = None,
    window: Annotated[float | None, typer.Option(help="Seconds of a window, for weights of segments.")] = None,
    plot: Annotated[Path | None, typer.Option(help="Draw the timeline: a PNG, or a folder for several.")] = None,
    as_json: Annotated[Path | None, typer.Option("--json", help="Write JSON here; - prints it.")] = None,
    csv: Annotated[Path | None, typer.Option(help="Write one line per class, or per segment, here.")] = None,
    resume: ResumeOption = False,
    batch_size: BatchSizeOption = 8,
    num_workers: NumWorkersOption = 0,
    device: DeviceOption = "auto",
    precision: PrecisionOption = "32",
    time_limit: Annotated[float, typer.Option(min=0.1, help="Seconds for opening, and for reading, one video.")] = 60.0,
) -> None:
    from motionformer.distributed import process_group
    from motionformer.inference import Predictor, find_inputs
    from motionformer.inference.jobs import predictions_json, run_job, write_predictions_csv
    from motionformer.runs import check_output, is_special, remove_journal, write_atomically

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
    where = find_device(device)
    mute_other_ranks()
    videos = [video.path for video in find_inputs(paths)]
    _check_plot(plot, len(videos))
    for output in outputs:
        check_output(output)
    predictor = Predictor(
        model,
        device=where,
        precision=precision,
        batch_size=batch_size,
        num_workers=num_workers,
        labels=labels,
        views=1 if timeline else views,
        crops=crops,
        sample_by=sample_by,
        protocol=protocol,
        time_limit=time_limit,
    )
    work, how = _work(predictor, timeline, top, threshold, hop, window, plot)
    if sample_by is not None:
        how["sample_by"] = sample_by
    header = {"model": model, "protocol": predictor.spec.protocol, **how}
    journal = None if kept is None else kept.with_name(kept.name + ".journal")
    identity = {} if journal is None else _identity(predictor)
    with process_group(where) as rank:
        entries = run_job(
            videos, work, description="predicting", header={**how, **identity}, journal=journal, resume=resume
        )
    failed = [entry for entry in entries if "failed" in entry]
    if rank.is_zero:
        if as_json is not None and not to_screen:
            write_atomically(as_json, predictions_json(entries, header))
        if csv is not None:
            write_predictions_csv(entries, csv)
        if journal is not None and not resume:
            remove_journal(journal)
        if to_screen:
            print(predictions_json(entries, header), end="")
        else:
            _print(entries, len(entries) if kept is None else _SHOWN)
        console = plain_console(stderr=True)
        print_read_notes(console, entries)
        print_failures(console, failed, len(entries))
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
) -> "tuple[Work, dict[str, Any]]":
    """What is done with each video, and its options as the files hold them."""
    from motionformer.inference.jobs import predict_timelines, predict_videos

    spec = predictor.spec
    if not timeline:
        how: dict[str, Any] = {"views": spec.views, "crops": spec.crops, "top": top}
        return lambda paths: predict_videos(predictor, paths, top), how
    if threshold == 0:
        raise typer.BadParameter("every window reaches 0.", param_hint="--threshold")

    def draw(found: "Timeline") -> None:
        from motionformer.inference.pictures import draw_timeline

        if plot is not None:
            draw_timeline(found, plot if plot.suffix else plot / f"{Path(found.video).name}.png", threshold)

    how = {"crops": spec.crops, "top": top, "threshold": threshold, "hop": hop, "window": window}
    options: dict[str, Any] = {"hop": hop, "window": window, "draw": draw}
    return lambda paths: predict_timelines(predictor, paths, top, threshold, **options), how


def _identity(predictor: "Predictor") -> dict[str, Any]:
    """What an interrupted run must have been of to be resumed."""
    from motionformer.inference.overlap import model_fingerprint

    return {
        "weights": model_fingerprint(predictor.model),
        "clips": predictor.spec.recorded(),
        "classes": predictor.labels,
        "precision": predictor.scorer.precision,
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


def _print(entries: list[dict[str, Any]], show: int) -> None:
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    times = ("from", "to") if any("segments" in entry for entry in entries) else ()
    table = Table("video", *times, "label")
    table.add_column("score", justify="right")
    table.add_column("frames")
    table.columns[0].overflow = "fold"
    for entry in entries[:show]:
        name, frames = escape(entry["video"]), frames_cell(entry)
        for one in entry.get("segments", entry.get("top", [])):
            bounds = [_clock(one["start"]), _clock(one["end"])] if times else []
            table.add_row(name, *bounds, escape(one["label"]), f"{one['score']:.3f}", frames)
            name = frames = ""
        if entry.get("segments") == []:
            table.add_row(name, "", "", f"[dim]nothing reaches {entry['threshold']:g}[/dim]", "", frames)
        table.add_section()
    if table.row_count:
        Console(highlight=False).print(table)
    if len(entries) > show:
        print(f"… and {len(entries) - show} more in the file")


def _clock(seconds: float) -> str:
    hours, rest = divmod(seconds, 3600)
    return (f"{int(hours)}:" if hours else "") + f"{int(rest // 60):02d}:{rest % 60:04.1f}"
