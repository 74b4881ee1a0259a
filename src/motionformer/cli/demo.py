"""`motionformer demo`: everything once, on clips made from a seed."""

from pathlib import Path
from typing import Annotated

import typer

DEMO_HELP = """Train a small Motionformer on the built-in motion benchmark, test it, and write a report.

Nothing is downloaded. On two CPU cores it takes a few minutes; a killed demo resumes. `key=value` changes the recipe
`motion/easy` (`motionformer train motion/easy --print` shows it).

**Examples**

    motionformer demo

    motionformer demo runs/hard data.train=motion:hard data.val=motion:hard epochs=4
"""


def demo(
    folder: Annotated[Path, typer.Argument(help="Folder of everything that is written.")] = Path("runs/demo"),
    changes: Annotated[list[str] | None, typer.Argument(help="key=value …", metavar="[KEY=VALUE]...")] = None,
    quiet: Annotated[bool, typer.Option("--quiet", help="Print only the result and the path of the report.")] = False,
) -> None:
    from motionformer.experiments.demo import run_demo
    from motionformer.inference.metrics import show_share

    done = run_demo(folder, overrides=tuple(changes or ()), quiet=quiet)
    sure = done.summary["tasks"]["class"]["intervals"]["all"]["top1"]
    share = show_share(sure["correct"], sure["videos"])
    typer.echo(f"{share} of the test videos, {done.seconds:.0f} s: {done.report}")
