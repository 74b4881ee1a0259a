"""The `motionformer` command. One file a command, each thin: parse, call, print. Nothing heavy is imported here."""

import io
import os
import sys
from typing import Annotated

import typer

from motionformer import __version__
from motionformer.cli import (
    compare,
    convert,
    data,
    davis,
    demo,
    doctor,
    evaluate,
    export,
    features,
    finetune,
    info,
    lra,
    predict,
    recipes,
    reproduce,
    serve,
    trace,
    track,
    train,
)
from motionformer.cli.extras import install_command
from motionformer.cli.options import renamed_options
from motionformer.errors import MotionformerError

app = typer.Typer(
    name="motionformer",
    help="Video transformers with trajectory attention.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(is_wanted: bool) -> bool:
    if is_wanted:
        print(f"motionformer {__version__}")
        raise typer.Exit
    return is_wanted


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Options of the command itself."""


app.command(help=demo.DEMO_HELP)(demo.demo)
app.command(help=train.TRAIN_HELP)(train.train)
app.command(help=recipes.RECIPES_HELP)(recipes.recipes)
app.command(help=finetune.FINETUNE_HELP)(finetune.finetune)
app.command(help=predict.PREDICT_HELP)(predict.predict)
app.command(help=features.FEATURES_HELP)(features.features)
app.command(help=evaluate.EVALUATE_HELP)(evaluate.evaluate)
app.command(help=compare.COMPARE_HELP)(compare.compare)
app.command(help=trace.TRACE_HELP)(trace.trace)
app.command(help=serve.SERVE_HELP)(serve.serve)
app.command()(export.export)
app.command(help=reproduce.REPRODUCE_HELP)(reproduce.reproduce)
app.add_typer(lra.app, name="lra")
app.add_typer(davis.app, name="davis")
app.command(help=track.TRACK_HELP)(track.track)
app.command(cls=renamed_options({"--attend": "--kernel"}))(info.info)
app.command()(convert.convert)
app.add_typer(data.app, name="data")
app.command(help=doctor.DOCTOR_HELP)(doctor.doctor)


# packages that an extra brings: a command that needs one says how to get it
_EXTRA_OF = {
    "lightning": "train",
    "torchmetrics": "train",
    "omegaconf": "train",
    "tensorboard": "train",
    "matplotlib": "train",
    "jinja2": "train",
    "starlette": "app",
    "uvicorn": "app",
    "PIL": "app",
    "onnx": "export",
    "onnxscript": "export",
    "onnxruntime": "export",
}


def main() -> None:
    """Run a command; an error of ours, or of the system, is one clear message and exit code 1, not a traceback."""
    _print_any_name()
    try:
        try:
            app()
        finally:
            _print_the_rest()
    except MotionformerError as error:
        _fail(str(error))
    except BrokenPipeError:  # whoever read has seen enough
        sys.exit(1)
    except OSError as error:
        if error.errno is None:
            raise
        where = "" if error.filename is None else f"{error.filename}: "
        _fail(f"{where}{error.strerror}")
    except ModuleNotFoundError as error:
        extra = _EXTRA_OF.get((error.name or "").partition(".")[0])
        if extra is None:
            raise
        _fail(f"this command needs {error.name}: {install_command(extra)}")


def _print_any_name() -> None:
    """File names that are no UTF-8 are printed as they are on the disk, whatever the locale says."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="surrogateescape")


def _print_the_rest() -> None:
    """Now, while an error can still be told. What cannot be printed is not tried again when Python ends."""
    if sys.stdout is None:  # closed by whoever started the command
        return
    try:
        sys.stdout.flush()
    except OSError as error:
        error.filename = "standard output"
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise


def _fail(message: str) -> None:
    typer.secho(f"error: {message}", fg="red", err=True)
    sys.exit(1)
