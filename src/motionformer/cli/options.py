"""Options that several commands share: the device, the attention scheme, and those of a tracker of objects."""

import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass, fields
from enum import Enum
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand

from motionformer.errors import warn_deprecated

if TYPE_CHECKING:
    import torch

    from motionformer.tracking.tracker import Tracker


DeviceOption = Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:1, mps.")]


def find_device(name: str) -> "torch.device":
    """auto: a GPU where there is one; under torchrun each process has its own."""
    import os

    import torch

    own = f"cuda:{os.environ.get('LOCAL_RANK', '0')}"
    if name == "auto":
        name = own if torch.cuda.is_available() else "mps" if torch.backends.mps.is_available() else "cpu"
    try:
        found = torch.device(own if name == "cuda" else name)
        torch.empty(0, device=found)
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0]
        raise typer.BadParameter(f"{name!r} cannot be used here ({reason}).", param_hint="--device") from error
    return found


def renamed_options(renamed: dict[str, str]) -> type[TyperCommand]:
    """A class of commands (`app.command(cls=…)`) that still take deprecated options, with a warning."""

    class Renamed(TyperCommand):
        def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
            present = []
            for word in args:
                name, equals, value = word.partition("=")
                if name in renamed:
                    warn_deprecated(name, renamed[name])
                present.append(renamed.get(name, name) + equals + value)
            return super().parse_args(ctx, present)

    return Renamed


class AffinityName(str, Enum):
    """What of a model is compared."""

    features = "features"
    attention = "attention"


@dataclass(frozen=True, kw_only=True)
class TrackerOptions:
    """What was asked for; each field is an option of the command line."""

    model: Annotated[
        str,
        typer.Option(
            help="Weights (folder, file, released name), a variant (random weights), or: copy (the first mask)."
        ),
    ]
    from_image: Annotated[bool, typer.Option("--from-image", help="The weights are an image transformer's.")] = False
    clip: Annotated[
        int | None,
        typer.Option(min=1, help="Frames the model sees at once.", show_default="its own; image weights 1"),
    ] = None
    height: Annotated[int, typer.Option(min=16, help="Height at which the model sees frames, in pixels.")] = 480
    affinity: Annotated[AffinityName, typer.Option(help="Compare tokens, or queries with keys of the attention.")] = (
        AffinityName.features
    )
    block: Annotated[int, typer.Option(help="Whose tokens or attention; -1 is the last block.")] = -1
    context: Annotated[int, typer.Option(min=0, help="Latest frames that give labels, beside the first.")] = 7
    radius: Annotated[int, typer.Option(min=0, help="Reach of the neighbourhood in tokens; 0 is the whole frame.")] = 12
    top_k: Annotated[int, typer.Option(min=0, help="Tokens that give a label; 0 is all.")] = 5
    temperature: Annotated[
        float | None,
        typer.Option(min=1e-6, help="Of the softmax.", show_default="0.1 for features, 1 for attention"),
    ] = None
    stretch: Annotated[
        bool,
        typer.Option(
            help="Stretch every label to 0 … 1 before they are compared; without it, what has left stays away."
        ),
    ] = True
    seed: Annotated[int, typer.Option(help="Of random weights.")] = 0
    device: DeviceOption = "auto"

    def build(self) -> "Tracker":
        """The tracker that they describe."""
        from motionformer.tracking.features import AttentionReadout, ClipFeatures, Readout, TokenReadout
        from motionformer.tracking.propagation import Affinity
        from motionformer.tracking.tracker import CopyFirst, LabelPropagation, open_backbone

        if self.model == "copy":
            return CopyFirst()
        by_features = self.affinity is AffinityName.features
        readout: Readout = TokenReadout(self.block) if by_features else AttentionReadout(self.block)
        place = find_device(self.device)
        backbone = open_backbone(self.model, from_image=self.from_image, clip=self.clip, seed=self.seed).to(place)
        try:
            features = ClipFeatures(backbone, readout, clip=self.clip, height=self.height)
        except ValueError as error:
            raise typer.BadParameter(str(error)) from error
        how = Affinity(self.radius or None, self.top_k or None, self.temperature or readout.default.temperature)
        return LabelPropagation(features, how, self.context, self.stretch)


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


def _is_registered(name: str | None) -> str | None:
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
        callback=_is_registered,
        help="Who attends to whom: trajectory, joint, divided, or a registered scheme. Default: trajectory, or the "
        "weights' own.",
    ),
]
