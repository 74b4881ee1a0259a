"""The `motionformer` command. One file a command, each thin: parse, call, print. Nothing heavy is imported here."""

import sys

import typer

from motionformer.cli import convert, data, doctor, info
from motionformer.errors import MotionformerError

app = typer.Typer(
    name="motionformer",
    help="Video transformers with trajectory attention.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command()(info.info)
app.command()(convert.convert)
app.add_typer(data.app, name="data")
app.command(help=doctor.DOCTOR_HELP)(doctor.doctor)


def main() -> None:
    """Run a command; an error of ours is one clear message and exit code 1, not a traceback."""
    try:
        app()
    except MotionformerError as error:
        typer.secho(f"error: {error}", fg="red", err=True)
        sys.exit(1)
