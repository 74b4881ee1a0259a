"""`motionformer predict`: what happens in videos, or when it happens."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from motionformer.cli import options
from motionformer.cli.report import frames_cell, mute_other_ranks, print_problems

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from motionformer.inference import Predictor
    from motionformer.runs import Entry

_SHOWN = 50
"""Videos printed where a file holds all of them."""
PREDICT_HELP = """Predict the classes of videos: files, folders, folders of frames, or patterns.

Frames are sampled, and clips and crops averaged, as the weights were tested; `--views 1 --crops 1` is a quick look.
With `--timeline`, windows slide over long videos, and segments above a threshold are listed.

Results go to the terminal, `--json` and `--csv`. While running they are kept beside these files: after an
interruption, the same command with `--resume` resumes and gives the same file. Under `torchrun` and `srun` the
processes share the videos.

Exit code: 0; 1 for an error, or if a video could not be read (the others are done, and it is listed); 2 for wrong
usage; 75 if SIGTERM or SIGUSR1 stopped it.

**Examples**

    motionformer predict clip.mp4

    motionformer predict videos/ 'more/**/*.avi' --model runs/gestures/model --json results.json --resume

    motionformer predict match.mp4 --timeline --threshold 0.4 --plot match.png

    torchrun --nproc-per-node 4 $(which motionformer) predict videos/ --csv results.csv
"""


def predict(
    paths: Annotated[list[str], typer.Argument(metavar="PATH…", help="Videos, folders, patterns.")],
    model: options.ModelOption = "k400_motionformer_224_16x4",
    top: Annotated[int, typer.Option(min=1, help="Best classes to show and to write.")] = 5,
    views: options.ViewsOption = None,
    crops: options.CropsOption = None,
    protocol: options.ProtocolOption = None,
    sample_by: options.SampleByOption = None,
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
    resume: options.ResumeOption = False,
    batch_size: options.BatchSizeOption = 8,
    num_workers: options.NumWorkersOption = 0,
    device: options.DeviceOption = "auto",
    precision: options.PrecisionOption = "32",
    time_limit: Annotated[float, typer.Option(min=0.1, help="Seconds for opening, and for reading, one video.")] = 60.0,
) -> None:
    from motionformer.distributed import current_rank
    from motionformer.inference import Predictor, find_inputs
    from motionformer.inference.inputs import run_job
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
    if timeline and threshold == 0:
        raise typer.BadParameter("every window reaches 0.", param_hint="--threshold")
    options.check_seconds(hop, "--hop")
    options.check_seconds(window, "--window")
    where = options.find_device(device)
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
    how: dict[str, Any] = {"crops": predictor.spec.crops, "top": top}
    if timeline:
        how |= {"threshold": threshold, "hop": hop, "window": window}
    else:
        how = {"views": predictor.spec.views, **how}

    def work(paths: "Sequence[Path]") -> "Iterator[Entry]":
        return _timelines(predictor, paths, how, plot) if timeline else _predict_all(predictor, paths, top)

    if sample_by is not None:
        how["sample_by"] = sample_by
    header = {"model": model, "protocol": predictor.spec.protocol, **how}
    journal = None if kept is None else kept.with_name(kept.name + ".journal")
    identity = {} if journal is None else _identity(predictor)
    entries = run_job(
        videos,
        work,
        description="predicting",
        header={**how, **identity},
        journal=journal,
        resume=resume,
        keeps="" if journal is None else str(journal),
    )
    if current_rank().is_zero:
        if as_json is not None and not to_screen:
            write_atomically(as_json, _to_json(entries, header))
        if csv is not None:
            _write_csv(entries, csv)
        if journal is not None and not resume:
            remove_journal(journal)
        if to_screen:
            print(_to_json(entries, header), end="")
        else:
            _print(entries, len(entries) if kept is None else _SHOWN)
        print_problems(entries)
    if any("failed" in entry for entry in entries):
        raise typer.Exit(1)


def _predict_all(predictor: "Predictor", paths: "Sequence[Path]", top: int) -> "Iterator[Entry]":
    from motionformer.data import Failure

    for path, found in zip(paths, predictor.predict_many(paths), strict=True):
        yield {"video": str(path), "failed": found.reason} if isinstance(found, Failure) else found.to_dict(top)


def _timelines(
    predictor: "Predictor", paths: "Sequence[Path]", how: dict[str, Any], plot: Path | None
) -> "Iterator[Entry]":
    from motionformer.errors import VideoError

    for path in paths:
        try:
            timeline = predictor.timeline(path, hop=how["hop"], window=how["window"])
        except VideoError as error:
            yield {"video": str(path), "failed": error.full_reason}
            continue
        if plot is not None:
            from motionformer.inference.pictures import draw_timeline

            draw_timeline(timeline, plot if plot.suffix else plot / f"{path.name}.png", how["threshold"])
        yield timeline.to_dict(how["threshold"], how["top"])


def _to_json(entries: "Sequence[Entry]", header: "Mapping[str, Any]") -> str:
    """`{..., "predictions": [...]}`, one line per video."""
    from motionformer.runs import valid_json

    lines = ",\n".join(json.dumps(entry, ensure_ascii=False) for entry in entries)
    return valid_json(json.dumps(header, ensure_ascii=False)[:-1] + f', "predictions": [\n{lines}\n]}}\n')


def _write_csv(entries: "Sequence[Entry]", file: Path) -> None:
    """One line per class or segment, best first; a failed video has one line with its reason."""
    from motionformer.runs import write_csv
    from motionformer.video import ReadFacts

    facts = ReadFacts.__match_args__
    rows = [["video", "start", "end", "task", "rank", "index", "label", "score", "failed", *facts]]
    for entry in entries:
        video, read = entry["video"], ["" if (value := entry.get(key)) is None else str(value).lower() for key in facts]
        if "failed" in entry:
            rows.append([video, *[""] * 7, entry["failed"], *read])
        elif "segments" in entry:
            rows += [
                [video, s["start"], s["end"], s["task"], "", s["index"], s["label"], s["score"], "", *read]
                for s in entry["segments"]
            ]
        else:
            tasks = [task for task in ("verb", "noun") if task in entry]
            for task, best in (
                ("action" if tasks else "class", entry["top"]),
                *((task, entry[task]) for task in tasks),
            ):
                for rank, one in enumerate(best, start=1):
                    index = ",".join(map(str, one["index"])) if task == "action" else str(one["index"])
                    rows.append([video, "", "", task, str(rank), index, one["label"], one["score"], "", *read])
    write_csv(file, rows)


def _identity(predictor: "Predictor") -> dict[str, Any]:
    """What an interrupted run must have been of to be resumed."""
    from motionformer.inference.views import model_fingerprint

    return {
        "weights": model_fingerprint(predictor.scorer.model),
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
