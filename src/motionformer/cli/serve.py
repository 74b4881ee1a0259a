"""`motionformer serve`: the page in the browser."""

import sys
from typing import Annotated

import typer

SERVE_HELP = """Open a page: click a point in a clip and watch where the model follows it.

The page opens with ready clips; videos of one's own are dropped into it. It works offline: the model `motion-tiny`
comes with the package, and nothing is fetched from elsewhere. Uploads are deleted when they are replaced, when the
page is closed or idle, and when the server stops.

Only this machine can reach it unless `--host` says otherwise. Ctrl+C stops it.

**Examples**

    motionformer serve

    motionformer serve --model k400_motionformer_224_16x4 --max-seconds 20

    motionformer serve --model runs/trajectory/model --compare runs/divided/model
"""


def serve(
    model: Annotated[str, typer.Option("--model", "-m", help="A name, folder or file of weights.")] = "motion-tiny",
    compare: Annotated[str | None, typer.Option(help="A second model, shown beside the first.")] = None,
    host: Annotated[str, typer.Option(help="Address to listen on; 0.0.0.0 is every one.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 takes any that is free.")] = 7860,
    max_mb: Annotated[float, typer.Option(min=0.1, help="Megabytes of an upload.")] = 50.0,
    max_seconds: Annotated[float, typer.Option(min=0.1, help="Seconds of a video.")] = 60.0,
    max_megapixels: Annotated[float, typer.Option(min=0.01, help="Megapixels of a frame.")] = 4.0,
    users: Annotated[int, typer.Option(min=1, help="Pages open at once.")] = 4,
    no_browser: Annotated[bool, typer.Option("--no-browser", help="Do not open a browser.")] = False,
) -> None:
    from motionformer.app import Limits
    from motionformer.app import serve as run
    from motionformer.app.serve import is_loopback

    if not is_loopback(host):
        warning = f"warning: with --host {host}, everybody who can reach this machine can use the page, unencrypted."
        typer.secho(warning, fg="yellow", err=True)

    def on_ready(address: str) -> None:
        typer.echo(f"{address}  (Ctrl+C stops it)")
        sys.stdout.flush()  # scripts wait for the line
        if not no_browser:
            typer.launch(address)

    models = (model,) if compare is None else (model, compare)
    run(models, host=host, port=port, limits=Limits(max_mb, max_seconds, max_megapixels, users), on_ready=on_ready)
