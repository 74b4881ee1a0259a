"""Options with one spelling in all commands, what they mean, and old spellings that are still accepted."""

import functools
import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from typer.core import TyperGroup

from motionformer.deprecation import REMOVED_IN

if TYPE_CHECKING:
    import torch

    from motionformer.tracking import Tracker

ModelOption = Annotated[str, typer.Option("--model", "-m", help="Released name, file, or folder of weights.")]
BatchSizeOption = Annotated[int, typer.Option("--batch-size", min=1, help="Clips per forward pass.")]
NumWorkersOption = Annotated[int, typer.Option("--num-workers", min=0, help="Processes that decode videos.")]
DeviceOption = Annotated[str, typer.Option("--device", help="auto, cpu, cuda, cuda:1, mps.")]
PrecisionOption = Annotated[
    Literal["32", "bf16", "16"], typer.Option("--precision", help="Of the model's arithmetic: 32, bf16 or 16.")
]
ResumeOption = Annotated[bool, typer.Option("--resume", help="Resume an interrupted run of the same command.")]
ViewsOption = Annotated[
    int | None, typer.Option("--views", min=1, help="Clips along time.", show_default="the weights' own")
]
CropsOption = Annotated[
    int | None, typer.Option("--crops", min=1, help="Crops per clip: 1, 3.", show_default="the weights' own")
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]

ProtocolOption = Annotated[
    Literal["uniform", "released"] | None,
    typer.Option(
        "--protocol", help="How clips are sampled and resized, docs/fidelity.md.", show_default="the weights' own"
    ),
]
SampleByOption = Annotated[
    Literal["time", "frames"] | None,
    typer.Option(
        "--sample-by",
        help="What a clip's stride counts: time (frames at the model's rate; slow videos repeat some), or frames (the"
        " video's own).",
        show_default="the weights' own",
    ),
]

Kind = Literal["auto", "kinetics", "something", "epic", "ucf101", "hmdb51", "folders", "list", "files"]
KindOption = Annotated[Kind, typer.Option("--kind", help="Layout of the data.")]
RootOption = Annotated[Path | None, typer.Option("--root", help="Folder of the videos, if not that of the list.")]
SplitOption = Annotated[str | None, typer.Option("--split", help="train, val or test, where DATA holds several.")]
ClassNamesOption = Annotated[
    Path | None, typer.Option("--class-names", exists=True, help="File with the class names, in order.")
]
MissingOption = Annotated[Literal["error", "drop"], typer.Option("--missing", help="Listed videos that are not there.")]

RENAMED = {
    "--batch": "--batch-size",
    "--workers": "--num-workers",
    "--out": "--output",
    "--attend": "--kernel",
    "--from": "--init-from",
    "--at": "--point",
    "--masks": "--output",
    "--classes": "--num-classes",  # of info and convert
}
"""Spellings of 0.1; accepted until 0.3."""
_ELSEWHERE = {"--classes": "--class-names"}
"""Of commands that do not have the first: evaluate and data."""


class CommandGroup(TyperGroup):
    """Commands that accept the option names of 0.1, with a warning that names the new one."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        name, command, rest = super().resolve_command(ctx, args)
        known = {option for parameter in getattr(command, "params", ()) for option in parameter.opts}
        return name, command, list(_rename(rest, known))


def _rename(words: list[str], known: set[str]) -> Iterator[str]:
    for index, word in enumerate(words):
        if word == "--":
            yield from words[index:]
            return
        option, equals, value = word.partition("=")
        new = RENAMED.get(option)
        new = new if new in known else _ELSEWHERE.get(option, new)
        if new is None or option in known or new not in known:
            yield word
            continue
        text = f"warning: {option} is deprecated and will be removed in {REMOVED_IN}; use {new}."
        typer.secho(text, fg="yellow", err=True)
        yield new + equals + value


def distributed_command(command: Callable[..., None], *, alone: bool = False) -> Callable[..., None]:
    """A command that several processes run together, and that SIGTERM or SIGUSR1 stop; they join before it begins.

    `alone`: it stops in the same way, but is one process; several are an error.
    """

    @functools.wraps(command)
    def run(*args: Any, **given: Any) -> None:
        from motionformer.distributed import process_group
        from motionformer.errors import LaunchError
        from motionformer.stopping import stop_on_signals

        ended: typer.Exit | None = None
        with stop_on_signals(), process_group() as rank:
            if alone and rank.world_size > 1:
                name = f"`motionformer {command.__name__}`"
                error = LaunchError(f"{name} is one process, {rank.world_size} were started; start one.")
                error.is_reported = not rank.is_zero
                raise error
            try:
                command(*args, **given)
            except typer.Exit as exit:  # no failure that the other processes have to hear of
                ended = exit
        if ended is not None:
            raise ended

    return run


def find_device(name: str) -> "torch.device":
    """auto: a GPU where there is one; under torchrun each process has its own."""
    import torch

    from motionformer.distributed import local_rank

    own = f"cuda:{local_rank()}"
    if name == "auto":
        name = own if torch.cuda.is_available() else "mps" if torch.backends.mps.is_available() else "cpu"
    try:
        found = torch.device(own if name == "cuda" else name)
        torch.empty(0, device=found)
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0]
        raise typer.BadParameter(f"{name!r} cannot be used here ({reason}).", param_hint="--device") from error
    return found


def check_seconds(value: float | None, option: str) -> None:
    """Before anything is loaded: a finite time above zero."""
    if value is not None and not 0 < value < float("inf"):
        raise typer.BadParameter(f"{value:g} is not a number of seconds above 0.", param_hint=option)


def read_class_names(path: Path, num_classes: int | dict[str, int]) -> tuple[str, ...]:
    """Class names, one per line; as many as there are classes."""
    from motionformer.errors import MotionformerError
    from motionformer.logging import show_count

    try:
        names = tuple(line.strip() for line in path.read_text(encoding="utf-8-sig").splitlines() if line.strip())
    except (OSError, UnicodeDecodeError) as error:
        raise MotionformerError(f"{path}: cannot be read as class names ({error}).") from error
    if len(names) != num_classes:
        raise MotionformerError(f"{path}: {show_count(len(names), 'name')} for {num_classes} classes.")
    return names


def _check_registered(name: str | None) -> str | None:
    """Looked up when given, not offered as fixed choices: `--help` waits for no PyTorch and no module of others."""
    if name is not None:
        from motionformer.attention import SCHEMES

        try:
            SCHEMES[name]
        except ValueError as error:
            raise typer.BadParameter(str(error)) from error
    return name


Attention = Annotated[
    str | None,
    typer.Option(
        "--attention",
        callback=_check_registered,
        help="Attention scheme: trajectory, joint, divided, timesformer, or a registered one.",
        show_default="trajectory, or the weights' own",
    ),
]


@dataclass(frozen=True, kw_only=True)
class TrackerOptions:
    """Options of commands that track objects; each field is one."""

    model: Annotated[
        str,
        typer.Option(
            "--model",
            "-m",
            help="Weights (folder, file, released name), a variant (random weights), or: copy (the first mask).",
        ),
    ]
    from_image: Annotated[bool, typer.Option("--from-image", help="The weights are an image transformer's.")] = False
    clip: Annotated[
        int | None,
        typer.Option(min=1, help="Frames per clip.", show_default="the model's own; image weights 1"),
    ] = None
    height: Annotated[int, typer.Option(min=16, help="Height of the model's input, in pixels.")] = 480
    affinity: Annotated[
        Literal["features", "attention"], typer.Option(help="Compare tokens, or queries with keys of the attention.")
    ] = "features"
    block: Annotated[int, typer.Option(help="Block whose tokens or attention are compared; -1 is the last.")] = -1
    context: Annotated[int, typer.Option(min=0, help="Latest frames that give labels, beside the first.")] = 7
    radius: Annotated[int, typer.Option(min=0, help="Radius of the neighbourhood in tokens; 0 is the whole frame.")] = (
        12
    )
    top_k: Annotated[int, typer.Option(min=0, help="Nearest neighbours per token; 0 is all.")] = 5
    temperature: Annotated[
        float | None,
        typer.Option(min=1e-6, help="Temperature of the softmax.", show_default="0.1 for features, 1 for attention"),
    ] = None
    stretch: Annotated[
        bool,
        typer.Option(
            help="Normalise every label map to 0 … 1 before the argmax; without it, an object that left does"
            " not come back."
        ),
    ] = True
    seed: Annotated[int, typer.Option(help="Seed of random weights.")] = 0
    device: DeviceOption = "auto"

    def build(self) -> "Tracker":
        from motionformer.tracking import make_tracker

        try:
            return make_tracker(self.model, **self.arguments())
        except ValueError as error:
            raise typer.BadParameter(str(error)) from error

    def arguments(self) -> dict[str, Any]:
        """Of `make_tracker`, beside the model."""
        given = {field.name: getattr(self, field.name) for field in fields(self) if field.name != "model"}
        given |= {"radius": self.radius or None, "top_k": self.top_k or None}
        return given | {"device": None if self.model == "copy" else find_device(self.device)}


def with_tracker_options(command: Callable[..., None]) -> Callable[..., None]:
    """The command with the fields of `TrackerOptions` as options; they reach it as one argument, `options`."""
    names = [field.name for field in fields(TrackerOptions)]
    own = inspect.signature(command, eval_str=True).parameters
    asked = inspect.signature(TrackerOptions, eval_str=True).parameters
    merged = [
        one
        for name, parameter in own.items()
        for one in (asked.values() if name == "options" else [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY)])
    ]

    @functools.wraps(command)
    def run(**given: Any) -> None:
        command(options=TrackerOptions(**{name: given.pop(name) for name in names}), **given)

    run.__signature__ = inspect.Signature(merged)  # type: ignore[attr-defined]
    run.__annotations__ = {one.name: one.annotation for one in merged}
    return run
