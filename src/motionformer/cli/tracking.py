"""The options with which `motionformer davis evaluate` and `motionformer track` follow objects."""

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Annotated

import typer

from motionformer.cli.evaluate import find_device

if TYPE_CHECKING:
    from motionformer.davis.tracker import Tracker


class AffinityName(str, Enum):
    """What of a model is compared."""

    features = "features"
    attention = "attention"


ModelOption = Annotated[
    str,
    typer.Option(help="Weights (folder, file, released name), a variant (random weights), or: copy (the first mask)."),
]
FromImageOption = Annotated[bool, typer.Option("--from-image", help="The weights are an image transformer's.")]
ClipOption = Annotated[
    int | None,
    typer.Option(min=1, help="Frames the model sees at once: what it was made for unless said; image weights 1."),
]
HeightOption = Annotated[int, typer.Option(min=16, help="Height at which the model sees frames, in pixels.")]
AffinityOption = Annotated[AffinityName, typer.Option(help="Compare tokens, or queries with keys of the attention.")]
BlockOption = Annotated[int, typer.Option(help="Whose tokens or attention; -1 is the last block.")]
ContextOption = Annotated[int, typer.Option(min=0, help="Latest frames that give labels, beside the first.")]
RadiusOption = Annotated[int, typer.Option(min=0, help="Reach of the neighbourhood in tokens; 0 is the whole frame.")]
TopKOption = Annotated[int, typer.Option(min=0, help="Tokens that give a label; 0 is all.")]
TemperatureOption = Annotated[
    float | None, typer.Option(min=1e-6, help="Of the softmax: 0.1 for features, 1 for attention unless said.")
]
StretchOption = Annotated[
    bool,
    typer.Option(help="Stretch every label to 0 … 1 before they are compared; without it, what has left stays away."),
]
SeedOption = Annotated[int, typer.Option(help="Of random weights.")]


@dataclass(frozen=True)
class TrackerOptions:
    """What was asked for."""

    model: str
    from_image: bool
    clip: int | None
    height: int
    affinity: AffinityName
    block: int
    context: int
    radius: int
    top_k: int
    temperature: float | None
    stretch: bool
    seed: int
    device: str

    def build(self) -> "Tracker":
        """The tracker that they describe."""
        from motionformer.davis.affinity import Affinity
        from motionformer.davis.features import AttentionReadout, ClipFeatures, Readout, TokenReadout
        from motionformer.davis.tracker import CopyFirst, LabelPropagation, open_backbone

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
