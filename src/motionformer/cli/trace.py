"""`motionformer trace`: where a model looks in a clip."""

from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from motionformer.cli.options import ProtocolOption

if TYPE_CHECKING:
    from motionformer.trace import Trace


class ScaleName(str, Enum):
    """What the heat is measured against."""

    relative = "relative"
    absolute = "absolute"


class What(str, Enum):
    """What to show."""

    trajectory = "trajectory"
    class_token = "class-token"
    rollout = "rollout"
    gradcam = "gradcam"


TRACE_HELP = """Show where a model looks: the trajectory of a point, or what the class is seen in.

CLIP is a video file, a folder of frames, or a built-in clip such as `motion:hard/12`, whose object is followed unless
`--at` says otherwise and whose true path is drawn beside the expected one. `--frame` is a frame of the video, from 0;
the model's clip is placed around it. `--output` says by its suffix what is written: png, pdf or svg (filmstrip), gif or
mp4 (clip), json (everything). A map that is near uniform has no path: none is drawn, and the table, the pictures and
the JSON say so.

**Examples**

    motionformer trace clip.mp4 --model k400_motionformer_224_16x4 --at 160,120 --frame 45 --output trace.png

    motionformer trace clip.mp4 --model my-model --at 160,120 --layer all --output trace.gif --output trace.json

    motionformer trace motion:hard/12 --model trajectory/ --compare joint/ --compare divided/ --output three.png

    motionformer trace clip.mp4 --model my-model --what gradcam --label "playing tennis" --output evidence.png

    motionformer trace clip.mp4 --model my-model --what class-token --scale absolute --output class.png
"""


def trace(
    clip: Annotated[str, typer.Argument(help="Video, folder of frames, or motion:LEVEL/NUMBER.", show_default=False)],
    model: Annotated[str, typer.Option(help="A released name, or a folder or file of weights.", show_default=False)],
    output: Annotated[list[Path] | None, typer.Option(help="File to write; may be given several times.")] = None,
    at: Annotated[str | None, typer.Option(metavar="X,Y", help="The point to follow, in pixels of the frame.")] = None,
    frame: Annotated[int | None, typer.Option(help="Frame of the video that the point is in; else the middle.")] = None,
    layer: Annotated[str, typer.Option(help="last, all, mean, or a number from 0.")] = "last",
    head: Annotated[str, typer.Option(help="mean, all, or a number from 0.")] = "mean",
    what: Annotated[What, typer.Option(help="What to show.")] = What.trajectory,
    label: Annotated[str | None, typer.Option(help="Class for gradcam, by name or number; else the predicted.")] = None,
    protocol: ProtocolOption = None,
    scale: Annotated[
        ScaleName, typer.Option(help="Heat up to the largest weight, or from a uniform map to 16 times it.")
    ] = ScaleName.relative,
    compare: Annotated[list[str] | None, typer.Option(help="Another model on the same clip; repeatable.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print paths and maps as JSON.")] = False,
) -> None:
    from rich.console import Console

    from motionformer.trace import Comparison
    from motionformer.trace import trace as run
    from motionformer.trace.result import check_suffix

    point, files = None if at is None else parse_point(at), output or []
    for path in files:
        check_suffix(path)  # before the work, not after it
    traces = []
    with Console(stderr=True).status("looking") as status:
        for source in (model, *(compare or ())):
            status.update(f"looking with {source}")
            traces.append(
                run(
                    source,
                    clip,
                    at=point,
                    frame=frame,
                    layer=layer,
                    head=head,
                    what=what.value,
                    label=label,
                    protocol=protocol,
                    scale=scale.value,
                )
            )
        found = traces[0] if len(traces) == 1 else Comparison(tuple(traces))
        for path in files:
            status.update(f"drawing {path}")
            found.save(path)
    if as_json:
        print(found.to_json())
        return
    for one in traces:
        _print_trace(one)
    for path in files:
        typer.echo(f"written: {path}")


def parse_point(text: str) -> tuple[float, float]:
    """`x,y` as two numbers."""
    try:
        x, y = (float(part) for part in text.split(","))
    except ValueError:
        raise typer.BadParameter(f"{text!r} is not a point; write 160,120.", param_hint="--at") from None
    return x, y


def _print_trace(trace: "Trace") -> None:
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table

    from motionformer.trace.paths import MIN_PEAKEDNESS

    what = trace.what if trace.label is None else f"{trace.what}, class {trace.label}"
    if trace.query is not None:
        query = trace.query
        what += f" of {query.x:.1f},{query.y:.1f} in frame {trace.clip.numbers[query.frame]}"
    table = Table(title=f"{trace.model}: {what}", title_justify="left", box=SIMPLE_HEAD)
    for column in ("layer", "head", "frames", "share", "peak", "looks most at", "mean", "±x", "±y"):
        table.add_column(column, justify="right", no_wrap=True)
    for track in trace.tracks:
        for f in range(len(track.path)):
            tubelet = trace.geometry.tubelet
            numbers = trace.clip.numbers[f * tubelet : (f + 1) * tubelet]
            spread = track.covariance[f].diagonal().sqrt().tolist()
            peak = "{:.1f}, {:.1f}".format(*track.peak[f].tolist()) if track.has_peak[f] else "near uniform"
            places = [f"{float(track.peakedness[f]):.1%}", peak, "{:.1f}, {:.1f}".format(*track.path[f].tolist())]
            places += [f"{value:.1f}" for value in spread]
            frames = "–".join(map(str, sorted({numbers[0], numbers[-1]})))
            table.add_row(track.layer, track.head, frames, f"{float(track.map.mass[f]):.0%}", *places)
        table.add_section()
    Console().print(table)
    clip = trace.clip
    if len(set(clip.numbers)) < len(clip.numbers):
        typer.echo(
            f"note: the clip shows frames several times: {len(set(clip.numbers))} of its {len(clip.numbers)} differ. "
            "The video is slower than the rate at which clips are sampled, or shorter than a clip."
        )
    if clip.damaged:
        typer.echo("note: the video is damaged where it was read; `motionformer data check` says where.")
    if not all(track.has_peak.all() for track in trace.tracks):
        typer.echo(
            f"near uniform: the peak holds less than {MIN_PEAKEDNESS:.0%} of the frame's map beyond a uniform one, so"
            " there is no place to name and no path to draw."
        )
