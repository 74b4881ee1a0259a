"""`motionformer features`: a video's tokens, for what is built on top of the model."""

from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from motionformer.cli import options
from motionformer.cli.report import frames_cell, mute_other_ranks, print_problems, print_table

FEATURES_HELP = """Write a model's features of videos: the class token, the mean of the patch tokens, or all of them.

One file per video in `--output`, with the arrays `values` (segments first) and `times` (seconds of each segment).
Without `--segments` a video is one clip, the middle one; with it, segments of so many seconds follow one another,
whatever the video's length. `--resume` keeps files that are done. Under `torchrun` and `srun` the processes share the
videos.

Exit code: 0; 1 for an error, or if a video could not be read (the others are done, and it is listed); 2 for wrong
usage; 75 if SIGTERM or SIGUSR1 stopped it.

**Examples**

    motionformer features videos/ --output features

    motionformer features talk.mp4 --what tokens --segments 0.64 --format safetensors --dtype float16

    motionformer features videos/ --what pooled --block 6 --resume

    motionformer features videos/ --model synchformer --seconds 8
"""


def features(
    paths: Annotated[list[str], typer.Argument(metavar="PATH…", help="Videos, folders, patterns.")],
    model: options.ModelOption = "k400_motionformer_224_16x4",
    what: Annotated[
        Literal["class", "pooled", "tokens", "frames"] | None,
        typer.Option(
            help="Class token, mean of the patch tokens, all of these, or (Synchformer) a vector per token frame.",
            show_default="class; pooled without a class token, frames for a Synchformer",
        ),
    ] = None,
    block: Annotated[str, typer.Option(help="Number of a block (from 0), or last (with the norm).")] = "last",
    segments: Annotated[
        float | None, typer.Option(help="Seconds of a segment.", show_default="one clip per video")
    ] = None,
    hop: Annotated[
        float | None, typer.Option(help="Seconds from one to the next.", show_default="their length")
    ] = None,
    protocol: options.ProtocolOption = None,
    sample_by: options.SampleByOption = None,
    resample: Annotated[
        Literal["clock", "filter"] | None,
        typer.Option(help="With frames: how 25 per second are read, docs/synchformer.md.", show_default="clock"),
    ] = None,
    seconds: Annotated[
        float | None, typer.Option(help="With frames: how much of a video is read.", show_default="all")
    ] = None,
    output: Annotated[Path, typer.Option(help="Folder for the files.")] = Path("features"),
    format: Annotated[Literal["npz", "safetensors"], typer.Option(help="Of the files.")] = "npz",
    dtype: Annotated[Literal["float32", "float16"], typer.Option(help="Of the values.")] = "float32",
    resume: options.ResumeOption = False,
    batch_size: options.BatchSizeOption = 8,
    device: options.DeviceOption = "auto",
    precision: options.PrecisionOption = "32",
    time_limit: Annotated[float, typer.Option(min=0.1, help="Seconds for opening one video.")] = 60.0,
) -> None:
    from motionformer.distributed import current_rank
    from motionformer.inference import FeatureExtractor, find_inputs
    from motionformer.inference.features import extract_all
    from motionformer.inference.views import model_fingerprint

    options.check_seconds(segments, "--segments")
    options.check_seconds(hop, "--hop")
    options.check_seconds(seconds, "--seconds")
    where = options.find_device(device)
    mute_other_ranks()
    videos = find_inputs(paths)
    extractor = FeatureExtractor(
        model,
        device=where,
        precision=precision,
        batch_size=batch_size,
        what=what,
        block=_block(block),
        segments=segments,
        hop=hop,
        sample_by=sample_by,
        protocol=protocol,
        resample=resample,
        seconds=seconds,
        time_limit=time_limit,
    )
    about = {"weights": model_fingerprint(extractor.model), "precision": precision}
    entries = extract_all(extractor, videos, output, about=about, format=format, dtype=dtype, resume=resume)
    if current_rank().is_zero:
        rows = [
            (entry["file"], "kept" if entry.get("kept") else " × ".join(map(str, entry["shape"])), frames_cell(entry))
            for entry in entries
            if "failed" not in entry
        ]
        if rows:
            print_table(("file", "values", "frames"), rows)
        print_problems(entries)
    if any("failed" in entry for entry in entries):
        raise typer.Exit(1)


def _block(text: str) -> Any:
    if text == "last":
        return text
    if not text.isdecimal():
        raise typer.BadParameter(f"{text!r} is neither a number nor last.", param_hint="--block")
    return int(text)
