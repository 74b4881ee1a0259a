"""`motionformer track`"""

from pathlib import Path
from typing import Annotated

import typer

from motionformer.cli.options import TrackerOptions, with_tracker_options

TRACK_HELP = """Follow objects through a video from a mask of its first frame.

VIDEO is a file or a folder of frames. The mask is a png of the frames' size: object numbers (palette) or 0 and 255.

**Examples**

    motionformer track dog.mp4 --mask first.png --model dinov2_vits14.safetensors --from-image --overlay tracked.mp4

    motionformer track frames/ --mask first.png --model k400_motionformer_224_16x4 --masks masks --height 336

    motionformer track dog.mp4 --mask first.png --model motion-tiny --masks masks --json
"""


@with_tracker_options
def track(
    video: Annotated[Path, typer.Argument(exists=True, help="A video file, or a folder of frames.")],
    mask: Annotated[Path, typer.Option(exists=True, dir_okay=False, help="The mask of the first frame.")],
    options: TrackerOptions,
    overlay: Annotated[
        Path | None, typer.Option(help="Write the video with masks: an mp4, or a folder of png.")
    ] = None,
    masks: Annotated[Path | None, typer.Option(help="Write a palette png a frame into this folder.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print what was followed, and where, as JSON.")] = False,
) -> None:
    import json

    from rich.console import Console
    from rich.progress import track as with_progress

    from motionformer.errors import VideoError
    from motionformer.tracking.masks import object_numbers, read_mask
    from motionformer.tracking.output import check_track_output
    from motionformer.tracking.tracker import check_first_mask, track_video
    from motionformer.video import open_video

    if overlay is None and masks is None:
        raise typer.BadParameter("say where to write: --overlay tracked.mp4, --masks folder, or both.")
    check_track_output(video, mask, masks=masks, overlay=overlay)
    first = read_mask(mask)
    with open_video(video) as opened:
        check_first_mask(first, opened, mask)
        tracker = options.build()
        there = set(masks.glob("*.png")) if masks is not None else set()
        running = track_video(opened, first, tracker, masks=masks, overlay=overlay)
        total, count = opened.metadata.num_frames, 0
        seen = dict.fromkeys(object_numbers(first), 0)
        try:
            for found in with_progress(running, "following", total, console=Console(stderr=True), transient=True):
                count += 1
                for number in object_numbers(found):
                    seen[number] += 1
        except VideoError:
            typer.echo(f"{count} of {total} frames were followed before an error; what they gave is kept:", err=True)
            raise
    places = {"overlay": overlay, "masks": masks}
    written = {name: str(place) for name, place in places.items() if place is not None}
    if as_json:
        objects = [{"number": number, "frames": frames} for number, frames in seen.items()]
        typer.echo(json.dumps({"video": str(video), "frames": count, "objects": objects, **written}))
    else:
        typer.echo(f"{count} frames: {' and '.join(written.values())}")
    older = sum(masks is not None and file not in {masks / f"{i:05d}.png" for i in range(count)} for file in there)
    if older:
        typer.echo(f"{masks} held {older} other png files, which are not of this video.", err=True)
