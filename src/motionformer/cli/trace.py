"""`motionformer trace`: where a model looks in a clip."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from motionformer.cli.options import DeviceOption, JsonOption, ModelOption, ProtocolOption, find_device

if TYPE_CHECKING:
    from motionformer.tracing import Trace


TRACE_HELP = """Show where a model looks: the trajectory of a point, or what the class is seen in.

VIDEO is a video file, a folder of frames, or a built-in clip such as `motion:hard/12`, whose object is the default of
`--point` and whose true path is drawn too. `--frame` is a frame of the video, from 0; the model's clip is sampled
around it. The suffix of `--output` is the format: png, pdf or svg (filmstrip), gif or mp4 (clip), json (everything).
A map that is near uniform has no path: none is drawn, and the table, the pictures and the JSON state it.

**Examples**

    motionformer trace clip.mp4 --model k400_motionformer_224_16x4 --point 160,120 --frame 45 --output trace.png

    motionformer trace clip.mp4 --model my-model --point 160,120 --layer all --head 3 -o trace.gif -o trace.json

    motionformer trace motion:hard/12 --model trajectory/ --compare joint/ --compare divided/ --output three.png

    motionformer trace clip.mp4 --model my-model --what gradcam --label "playing tennis" --output evidence.png

    motionformer trace clip.mp4 --model my-model --what class-token --scale absolute --output class.png
"""


def trace(
    video: Annotated[str, typer.Argument(help="Video, folder of frames, or motion:LEVEL/NUMBER.", show_default=False)],
    model: ModelOption,
    output: Annotated[
        list[Path] | None, typer.Option("--output", "-o", help="File to write; may be given several times.")
    ] = None,
    point: Annotated[str | None, typer.Option(metavar="X,Y", help="The query, in pixels of the frame.")] = None,
    frame: Annotated[
        int | None, typer.Option(help="Frame of the video that the point is in.", show_default="middle of the clip")
    ] = None,
    layer: Annotated[str, typer.Option(help="last, all, mean, a number from 0, or adapter:N.")] = "last",
    head: Annotated[str, typer.Option(help="mean, all, or a number from 0.")] = "mean",
    what: Annotated[
        Literal["trajectory", "class-token", "rollout", "gradcam"], typer.Option(help="What to show.")
    ] = "trajectory",
    label: Annotated[
        str | None, typer.Option(help="Class for gradcam, by name or number.", show_default="the predicted one")
    ] = None,
    protocol: ProtocolOption = None,
    scale: Annotated[
        Literal["relative", "absolute"],
        typer.Option(help="Heat up to the largest weight, or from a uniform map to 16 times it."),
    ] = "relative",
    compare: Annotated[list[str] | None, typer.Option(help="Another model on the same clip; repeatable.")] = None,
    device: DeviceOption = "auto",
    as_json: JsonOption = False,
) -> None:
    from rich.console import Console

    from motionformer.tracing import Comparison
    from motionformer.tracing import trace as run
    from motionformer.tracing.run import check_suffix

    query, files = None if point is None else _parse_point(point), output or []
    for path in files:
        check_suffix(path)  # before the work, not after it
    traces = []
    with Console(stderr=True).status("tracing") as status:
        for source in (model, *(compare or ())):
            status.update(f"tracing {source}")
            traces.append(
                run(
                    source,
                    video,
                    query,
                    frame=frame,
                    layer=layer,
                    head=head,
                    what=what,
                    label=label,
                    protocol=protocol,
                    scale=scale,
                    device=find_device(device),
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


def _parse_point(text: str) -> tuple[float, float]:
    """`x,y` as two numbers."""
    try:
        x, y = (float(part) for part in text.split(","))
    except ValueError:
        raise typer.BadParameter(f"{text!r} is not a point; write 160,120.", param_hint="--point") from None
    return x, y


def _print_trace(trace: "Trace") -> None:
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table

    from motionformer.tracing.paths import MIN_PEAKEDNESS

    what = trace.what if trace.label is None else f"{trace.what}, class {trace.label}"
    if trace.query is not None:
        query = trace.query
        what += f" of {query.x:.1f},{query.y:.1f} in frame {trace.clip.numbers[query.frame]}"
    table = Table(title=f"{trace.model}: {what}", title_justify="left", box=SIMPLE_HEAD)
    for column in ("layer", "head", "frames", "share", "peak", "peak at", "mean", "±x", "±y"):
        table.add_column(column, justify="right", no_wrap=True)
    for track in trace.tracks:
        for f in range(len(track.path)):
            tubelet = trace.geometry.tubelet
            numbers = trace.clip.numbers[f * tubelet : (f + 1) * tubelet]
            spread = track.covariance[f].diagonal().sqrt().tolist()
            peak = "{:.1f}, {:.1f}".format(*track.peak[f].tolist()) if track.has_peak[f] else "near uniform"
            cells = [f"{float(track.peakedness[f]):.1%}", peak, "{:.1f}, {:.1f}".format(*track.path[f].tolist())]
            cells += [f"{value:.1f}" for value in spread]
            frames = "–".join(map(str, sorted({numbers[0], numbers[-1]})))
            table.add_row(track.layer, track.head, frames, f"{float(track.map.mass[f]):.0%}", *cells)
        table.add_section()
    Console().print(table)
    clip = trace.clip
    if len(set(clip.numbers)) < len(clip.numbers):
        typer.echo(
            f"note: the clip repeats frames: {len(set(clip.numbers))} of its {len(clip.numbers)} differ. "
            "The frame rate of the video is below the sampling rate, or the video is shorter than a clip."
        )
    if clip.damaged:
        typer.echo("note: the video is damaged where it was read; `motionformer data check` reports where.")
    if not all(track.has_peak.all() for track in trace.tracks):
        typer.echo(
            f"near uniform: the peak holds less than {MIN_PEAKEDNESS:.0%} of the frame's map beyond a uniform one, so"
            " there is no position to report and no path to draw."
        )
