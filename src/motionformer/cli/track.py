"""`motionformer track`: objects through a video."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from motionformer.cli.options import JsonOption, TrackerOptions, with_tracker_options

if TYPE_CHECKING:
    from torch import Tensor

TRACK_HELP = """Track objects through a video from a mask of its first frame.

VIDEO is a file or a folder of frames. The mask is a png of the frames' size: object numbers (palette) or 0 and 255.

**Examples**

    motionformer track dog.mp4 --mask first.png --model dinov2_vits14.safetensors --from-image --overlay tracked.mp4

    motionformer track frames/ --mask first.png --model k400_motionformer_224_16x4 --output masks --height 336

    motionformer track dog.mp4 --mask first.png --model motion-tiny --output masks --json
"""


@with_tracker_options
def track(
    video: Annotated[Path, typer.Argument(exists=True, help="A video file, or a folder of frames.")],
    mask: Annotated[Path, typer.Option(exists=True, dir_okay=False, help="The mask of the first frame.")],
    options: TrackerOptions,
    overlay: Annotated[
        Path | None, typer.Option(help="Write the video with masks: an mp4, or a folder of png files.")
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Write a palette png per frame into this folder.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    import json

    from motionformer.errors import VideoError
    from motionformer.logging import progress_bar, show_count
    from motionformer.tracking import track as run

    if overlay is None and output is None:
        raise typer.BadParameter("give an output: --overlay tracked.mp4, --output folder, or both.")
    earlier = set(output.glob("*.png")) if output is not None else set()
    done = total = 0

    def progress(masks: "Iterable[Tensor]", num_frames: int) -> "Iterator[Tensor]":
        nonlocal done, total
        total = num_frames
        with progress_bar() as bar:
            for found in bar.track(masks, num_frames, description="tracking"):
                done += 1
                yield found

    try:
        found = run(
            options.model,
            video,
            mask,
            output=output,
            overlay=overlay,
            progress=progress,
            **options.arguments(),
        )
    except VideoError:
        if total:
            typer.echo(f"{done} of {total} frames were tracked before an error; their masks are kept:", err=True)
        raise
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error
    written = {name: str(file) for name, file in (("overlay", overlay), ("masks", output)) if file is not None}
    if as_json:
        objects = [{"number": number, "frames": frames} for number, frames in found.objects.items()]
        typer.echo(json.dumps({"video": str(video), "frames": done, "objects": objects, **written}))
    else:
        typer.echo(f"{show_count(done, 'frame')}: {' and '.join(written.values())}")
    older = sum(output is not None and file not in {output / f"{i:05d}.png" for i in range(done)} for file in earlier)
    if older:
        typer.echo(f"{output} contains {show_count(older, 'other png file')}, not of this video.", err=True)
