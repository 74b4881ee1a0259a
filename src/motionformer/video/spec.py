"""What clips a model takes: how frames are sampled, resized, cropped and normalised."""

from dataclasses import asdict, dataclass
from typing import Any, Literal

SamplingProtocol = Literal["uniform", "released"]
Interpolation = Literal["bilinear", "bicubic"]


@dataclass(frozen=True)
class InputSpec:
    """The clips a model was made for: how frames are sampled and how pixels are scaled.

    Args:
        frames: frames per clip.
        height: of a frame, in pixels.
        width: of a frame, in pixels.
        sampling: frames `stride` apart, or one from each of `frames` equal segments of the video.
        stride: distance between sampled frames.
        fps: frame rate at which `stride` counts; None counts the video's own frames.
        channels: order of the colour channels.
        mean: subtracted from pixels in [0, 1], per channel.
        std: pixels are divided by it, per channel.
        views: clips per video in testing, spread over time.
        crops: crops of each view in testing, spread over space.
        protocol: the sampling rules (docs/fidelity.md). `uniform`: frames exactly `stride` apart, views from the first
            frame to the last, antialiased resizing, square pixels. `released`: as the authors' programs read videos,
            for weights that were trained with them.
        interpolation: how frames are resized in the `uniform` protocol.
        hop: frames from clip to clip, for models that take a video as overlapping clips.

    Example:
        >>> InputSpec(frames=32, stride=3).std
        (0.5, 0.5, 0.5)
    """

    frames: int = 16
    height: int = 224
    width: int = 224
    sampling: Literal["stride", "segments"] = "stride"
    stride: int = 4
    fps: float | None = 30.0
    channels: Literal["RGB", "BGR"] = "RGB"
    mean: tuple[float, float, float] = (0.5, 0.5, 0.5)
    std: tuple[float, float, float] = (0.5, 0.5, 0.5)
    views: int = 10
    crops: int = 3
    protocol: SamplingProtocol = "uniform"
    interpolation: Interpolation = "bilinear"
    hop: int | None = None

    def recorded(self) -> dict[str, Any]:
        """As headers of results have it: without values that older versions did not have, so that theirs stay valid."""
        later = {"protocol": "uniform", "interpolation": "bilinear", "hop": None}
        return {key: value for key, value in asdict(self).items() if key not in later or value != later[key]}
