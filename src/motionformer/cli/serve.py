"""`motionformer serve`: the page in the browser."""

import sys
from typing import Annotated

import typer

from motionformer.cli.options import DeviceOption, find_device

SERVE_HELP = """Open a browser page: click a point in a clip to trace its attention.

The page has example clips and takes uploads. It works offline: the model `motion-tiny` comes with the package, and no
external resources are loaded. Uploads are deleted when they are replaced, when the page is closed or idle, and when the
server stops.

Only this machine can reach it [default: `--host 127.0.0.1`]. Ctrl+C stops it.

**Examples**

    motionformer serve

    motionformer serve --model k400_motionformer_224_16x4 --max-seconds 20

    motionformer serve --model runs/trajectory/model --compare runs/divided/model
"""


def serve(
    model: Annotated[str, typer.Option("--model", "-m", help="Name, folder or file of weights.")] = "motion-tiny",
    compare: Annotated[str | None, typer.Option(help="A second model, shown beside the first.")] = None,
    host: Annotated[str, typer.Option(help="Address to listen on; 0.0.0.0 is all.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 takes any free port.")] = 7860,
    max_mb: Annotated[float, typer.Option(min=0.1, help="Largest upload, in megabytes.")] = 50.0,
    max_seconds: Annotated[float, typer.Option(min=0.1, help="Longest video, in seconds.")] = 60.0,
    max_megapixels: Annotated[float, typer.Option(min=0.01, help="Largest frame, in megapixels.")] = 4.0,
    users: Annotated[int, typer.Option(min=1, help="Pages open at once.")] = 4,
    device: DeviceOption = "auto",
    no_browser: Annotated[bool, typer.Option("--no-browser", help="Do not open a browser.")] = False,
) -> None:
    from motionformer.serve import Limits
    from motionformer.serve import serve as run
    from motionformer.serve.server import is_loopback

    if not is_loopback(host):
        warning = f"warning: with --host {host}, everyone who can reach this machine can use the page, unencrypted."
        typer.secho(warning, fg="yellow", err=True)

    def on_ready(address: str) -> None:
        typer.echo(f"{address}  (Ctrl+C stops it)")
        sys.stdout.flush()  # scripts wait for the line
        if not no_browser:
            typer.launch(address)

    run(
        (model,) if compare is None else (model, compare),
        host=host,
        port=port,
        limits=Limits(max_mb, max_seconds, max_megapixels, users),
        on_ready=on_ready,
        device=find_device(device),
    )
