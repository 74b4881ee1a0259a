"""The `motionformer` command: one thin file per command, and here what an error prints and exits with.

Exit codes: 0; 1 for an error; 2 for wrong usage; 75 if SIGTERM or SIGUSR1 stopped a job that resumes. Nothing heavy is
imported before a command runs.
"""

import io
import os
import sys
import warnings
from typing import Annotated, Any

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
    probe,
    recipes,
    reproduce,
    serve,
    sync,
    trace,
    track,
    train,
)
from motionformer.cli.doctor import EXTRA_OF, install_command
from motionformer.cli.options import CommandGroup, distributed_command
from motionformer.deprecation import REMOVED_IN
from motionformer.errors import MotionformerError, StoppedError
from motionformer.stopping import EXIT_STOPPED, REQUEUE, requeue_job

app = typer.Typer(
    name="motionformer",
    cls=CommandGroup,
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
    requeue: Annotated[
        bool,
        typer.Option(
            "--requeue",
            envvar=REQUEUE,
            help="Put the SLURM job back into the queue when SIGTERM or SIGUSR1 stops the command.",
        ),
    ] = False,
) -> None:
    """Options of the command itself."""
    if requeue:
        os.environ[REQUEUE] = "1"  # `main` reads it, when the command is over


app.command(help=demo.DEMO_HELP)(demo.demo)
app.command(help=train.TRAIN_HELP)(distributed_command(train.train))
app.command(help=recipes.RECIPES_HELP)(recipes.recipes)
app.command(help=finetune.FINETUNE_HELP)(distributed_command(finetune.finetune))
app.command(help=probe.PROBE_HELP)(distributed_command(probe.probe, alone=True))
app.command(help=predict.PREDICT_HELP)(distributed_command(predict.predict))
app.command(help=features.FEATURES_HELP)(distributed_command(features.features))
app.command(help=sync.SYNC_HELP)(distributed_command(sync.sync))
app.command(help=evaluate.EVALUATE_HELP)(distributed_command(evaluate.evaluate))
app.command(help=compare.COMPARE_HELP)(compare.compare)
app.command(help=trace.TRACE_HELP)(trace.trace)
app.command(help=serve.SERVE_HELP)(serve.serve)
app.command()(export.export)
app.command(help=reproduce.REPRODUCE_HELP)(reproduce.reproduce)
app.add_typer(lra.app, name="lra", cls=CommandGroup)
app.add_typer(davis.app, name="davis", cls=CommandGroup)
app.command(help=track.TRACK_HELP)(track.track)
app.command()(info.info)
app.command()(convert.convert)
app.add_typer(data.app, name="data", cls=CommandGroup)
app.command(help=doctor.DOCTOR_HELP)(doctor.doctor)


def main() -> None:
    """Run a command; an expected error, or one of the system, is one message and exit code 1, not a traceback."""
    _print_file_names_as_bytes()
    _show_deprecations_as_messages()
    try:
        try:
            app()
        finally:
            _flush_stdout()
    except StoppedError as error:
        _stop(error)
    except MotionformerError as error:
        if error.is_reported:
            sys.exit(1)
        _fail(str(error))
    except BrokenPipeError:  # as in `motionformer … | head`
        sys.exit(1)
    except OSError as error:
        if error.errno is None:
            raise
        where = "" if error.filename is None else f"{error.filename}: "
        _fail(f"{where}{error.strerror}")
    except ModuleNotFoundError as error:
        extra = EXTRA_OF.get((error.name or "").partition(".")[0])
        if extra is None:
            raise
        _fail(f"this command needs {error.name}: {install_command(extra)}")


def _print_file_names_as_bytes() -> None:
    """File names that are not UTF-8 are printed as they are on the disk, in any locale."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="surrogateescape")


def _show_deprecations_as_messages() -> None:
    """A name of 0.1 in a file is one line, as in an option: Python would show a line of code that is not the user's."""
    show_others = warnings.showwarning

    def show(message: Warning | str, category: type[Warning], *where: Any, **more: Any) -> None:
        if category is FutureWarning and f"will be removed in {REMOVED_IN}" in str(message):
            typer.secho(f"warning: {message}", fg="yellow", err=True)
        else:
            show_others(message, category, *where, **more)

    warnings.showwarning = show


def _flush_stdout() -> None:
    """Now, while an error can still be reported; Python does not try again when it exits."""
    if sys.stdout is None:  # closed by the parent process
        return
    try:
        sys.stdout.flush()
    except OSError as error:
        error.filename = "standard output"
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise


def _stop(error: StoppedError) -> None:
    from motionformer.distributed import is_rank_zero

    if is_rank_zero():
        try:
            done = requeue_job()
        except MotionformerError as refused:
            done = f" {refused}"
        typer.secho(f"stopped: {error}{done}", fg="yellow", err=True)
    sys.exit(EXIT_STOPPED)


def _fail(message: str) -> None:
    typer.secho(f"error: {message}", fg="red", err=True)
    sys.exit(1)
