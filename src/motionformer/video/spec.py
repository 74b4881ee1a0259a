"""What clips a model takes: how frames are sampled, resized, cropped and normalised."""

from dataclasses import asdict, dataclass
from typing import Any, Literal

SamplingProtocol = Literal["uniform", "released"]


@dataclass(frozen=True)
class InputSpec:
    """The clips a model was made for: how frames are picked and how pixels are scaled.

    `protocol` names the rules (docs/fidelity.md). `uniform`: frames exactly `stride` apart, views from the first frame
    to the last, antialiased resizing, square pixels. `released`: as the authors' programs read videos, for weights that
    were trained with them.
    """

    frames: int = 16
    height: int = 224
    width: int = 224
    sampling: Literal["stride", "segments"] = "stride"
    stride: int = 4
    fps: float | None = 30.0
    """Rate at which `stride` counts, whatever the video's own; `None` counts the video's own frames."""
    channels: Literal["RGB", "BGR"] = "RGB"
    mean: tuple[float, float, float] = (0.5, 0.5, 0.5)
    std: tuple[float, float, float] = (0.5, 0.5, 0.5)
    views: int = 10
    crops: int = 3
    protocol: SamplingProtocol = "uniform"

    def recorded(self) -> dict[str, Any]:
        """As results are marked with it: without what has its old value, so that results of before stay valid."""
        values = asdict(self)
        if self.protocol == "uniform":
            del values["protocol"]
        return values
