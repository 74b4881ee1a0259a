"""`motionformer sync`: by how much the sound of videos is early or late."""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from motionformer.cli import options
from motionformer.cli.report import frames_cell, mute_other_ranks, print_problems, print_table

if TYPE_CHECKING:
    from motionformer.inference import SyncPredictor
    from motionformer.runs import Entry

_DESYNC_SECONDS = 8.0
_SEGMENT, _HOP = 0.64, 0.32
SYNC_HELP = """Predict by how much the sound of videos is early or late, with Synchformer.

An offset above zero means that the sound is early, one below that it is late, in steps of 0.2 s up to 2 s. A
prediction is made from 4.8 s of video and sound: the first and the last of a video, or with `--every` all along it.
`--desync` gives the DeSync score of all videos together, of their first 8 seconds: the mean offset without its sign;
lower is better. `--sound` takes the sound from a folder of files that are called like the videos, as models that
generate sound write them.

Exit code: 0; 1 for an error, or if a video could not be read (the others are done, and it is listed); 2 for wrong
usage.

**Examples**

    motionformer sync clip.mp4

    motionformer sync film.mp4 --every 10 --csv film.csv

    motionformer sync videos/ --sound generated/ --desync --json desync.json --resume
"""


def sync(
    paths: Annotated[list[str], typer.Argument(metavar="PATH…", help="Videos, folders, patterns.")],
    model: Annotated[
        str, typer.Option("--model", "-m", help="synchformer (downloaded), or a file of Synchformer.")
    ] = "synchformer",
    sound: Annotated[
        Path | None,
        typer.Option(exists=True, file_okay=False, help="Folder of sounds.", show_default="the videos' own"),
    ] = None,
    every: Annotated[
        float | None, typer.Option(help="A prediction every so many seconds.", show_default="first and last 4.8 s")
    ] = None,
    seconds: Annotated[
        float | None, typer.Option(help="How much of a video is read.", show_default="all; 8 with --desync")
    ] = None,
    desync: Annotated[bool, typer.Option("--desync", help="The DeSync score of all videos.")] = False,
    resample: Annotated[
        Literal["clock", "filter"], typer.Option(help="How 25 frames per second are read, docs/synchformer.md.")
    ] = "filter",
    as_json: Annotated[Path | None, typer.Option("--json", help="Write JSON here; - prints it.")] = None,
    csv: Annotated[Path | None, typer.Option(help="Write one line per prediction here.")] = None,
    resume: options.ResumeOption = False,
    batch_size: Annotated[int, typer.Option("--batch-size", min=1, help="Segments per forward pass.")] = 4,
    device: options.DeviceOption = "auto",
    precision: options.PrecisionOption = "32",
    time_limit: Annotated[float, typer.Option(min=0.1, help="Seconds for opening one video.")] = 60.0,
) -> None:
    from motionformer.distributed import current_rank
    from motionformer.inference import SyncPredictor, find_inputs
    from motionformer.inference.inputs import run_job
    from motionformer.inference.views import model_fingerprint
    from motionformer.runs import check_output, is_special, remove_journal, write_atomically

    to_screen = as_json is not None and str(as_json) == "-"
    outputs = [file for file in (None if to_screen else as_json, csv) if file is not None]
    kept = next((file for file in outputs if not is_special(file)), None)
    if desync and every is not None:
        raise typer.BadParameter("DeSync is of the first and the last 4.8 s.", param_hint="--every")
    if resume and kept is None:
        raise typer.BadParameter("give --json FILE or --csv FILE: results are kept beside it.", param_hint="--resume")
    options.check_seconds(every, "--every")
    options.check_seconds(seconds, "--seconds")
    where = options.find_device(device)
    mute_other_ranks()
    videos = [video.path for video in find_inputs(paths)]
    for output in outputs:
        check_output(output)
    predictor = SyncPredictor(
        model,
        device=where,
        precision=precision,
        batch_size=batch_size,
        resample=resample,
        every=every,
        seconds=_DESYNC_SECONDS if desync and seconds is None else seconds,
        time_limit=time_limit,
    )
    how = {**predictor.describe(), "sound": None if sound is None else str(sound)}
    journal = None if kept is None else kept.with_name(kept.name + ".journal")
    identity = {} if journal is None else {"weights": model_fingerprint(predictor.model)}
    entries = run_job(
        videos,
        lambda some: _predict(predictor, some, sound),
        description="sync",
        header={**how, **identity},
        journal=journal,
        resume=resume,
        keeps="" if journal is None else str(journal),
    )
    if current_rank().is_zero:
        header = {"model": model, **how, **_summary(entries, how["seconds"] if desync else None)}
        if as_json is not None and not to_screen:
            write_atomically(as_json, _to_json(entries, header))
        if csv is not None:
            _write_csv(entries, csv)
        if journal is not None and not resume:
            remove_journal(journal)
        if to_screen:
            print(_to_json(entries, header), end="")
        else:
            _print(entries, header)
        print_problems(entries)
    if any("failed" in entry for entry in entries):
        raise typer.Exit(1)


def _predict(predictor: "SyncPredictor", paths: Sequence[Path], sound: Path | None) -> "Iterator[Entry]":
    from motionformer.errors import VideoError

    for path in paths:
        try:
            found = predictor(path, None if sound is None else _sound_of(path, sound))
            yield {"video": str(path), **found.to_dict()}
        except VideoError as error:
            yield {"video": str(path), "failed": str(error) if error.path not in (None, path) else error.full_reason}


def _sound_of(video: Path, folder: Path) -> Path:
    from motionformer.errors import VideoError

    found = sorted(file for file in folder.iterdir() if file.stem == video.stem and file.is_file())
    if len(found) != 1:
        which = "no file" if not found else f"{len(found)} files"
        raise VideoError(f"{folder} has {which} called {video.stem}.…: one is needed, with its sound", video)
    return found[0]


def _summary(entries: "Sequence[Entry]", seconds: float | None) -> dict[str, Any]:
    """The DeSync score of so many seconds; empty where it was not asked for, or no video could be read."""
    from motionformer.inference import desync_score

    done = [[window["offset"] for window in entry["windows"]] for entry in entries if "windows" in entry]
    if seconds is None or not done:
        return {}
    wanted = int((seconds - _SEGMENT) / _HOP + 1e-6) + 1
    shorter = sum(entry["segments"] < wanted for entry in entries if "windows" in entry)
    return {"desync": desync_score(done), "videos": len(done), "failed": len(entries) - len(done), "shorter": shorter}


def _to_json(entries: "Sequence[Entry]", header: dict[str, Any]) -> str:
    lines = ",\n".join(json.dumps(entry, ensure_ascii=False) for entry in entries)
    return json.dumps(header, ensure_ascii=False)[:-1] + f', "predictions": [\n{lines}\n]}}\n'


def _write_csv(entries: "Sequence[Entry]", file: Path) -> None:
    """One line per prediction; a failed video has one with its reason."""
    from motionformer.runs import write_csv

    rows: list[list[object]] = [["video", "start", "end", "offset", "confidence", "failed"]]
    for entry in entries:
        if "failed" in entry:
            rows.append([entry["video"], "", "", "", "", entry["failed"]])
        keys = ("start", "end", "offset", "confidence")
        rows += [[entry["video"], *(one[key] for key in keys), ""] for one in entry.get("windows", [])]
    write_csv(file, rows)


def _print(entries: "Sequence[Entry]", header: dict[str, Any]) -> None:
    from motionformer.cli.report import plain_console

    rows = []
    for entry in (entry for entry in entries if "windows" in entry):
        name = entry["video"]
        if len(entry["windows"]) > 2:
            for one in entry["windows"]:
                at = f"{one['start']:.1f}–{one['end']:.1f} s"
                rows.append((name, at, f"{one['offset']:+.1f} s", f"{one['confidence']:.2f}", frames_cell(entry)))
                name = ""
        else:
            rows.append((name, "all", f"{entry['offset']:+.1f} s", f"{entry['confidence']:.2f}", frames_cell(entry)))
    if rows:
        print_table(("video", "at", "sound is early by", "confidence", "frames"), rows, right=("sound is early by",))
    console = plain_console()
    console.print(f"25 frames per second read by the {header['resample']}; below zero the sound is late.")
    if "desync" in header:
        console.print(f"DeSync {header['desync']:.3f} s over {header['videos']} videos, {header['failed']} left out")
    if header.get("shorter"):
        console.print(f"note: {header['shorter']} videos or their sounds are shorter than {header['seconds']:g} s")
