"""START HERE: a video and a mask of its first frame → masks of all frames, by a model or by copying. Streams."""

import math
from abc import ABC, abstractmethod
from collections.abc import Generator, Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import count, tee
from pathlib import Path

import torch
from jaxtyping import UInt8
from torch import Tensor

from motionformer.errors import MaskError
from motionformer.models import Motionformer, create_model
from motionformer.models.variants import VARIANTS
from motionformer.tracking.features import ClipFeatures
from motionformer.tracking.masks import object_numbers
from motionformer.tracking.output import OverlayWriter, check_track_output, keep_masks, keep_overlay
from motionformer.tracking.propagation import Affinity, propagate_mask
from motionformer.video import Video
from motionformer.video.stream import stream_video
from motionformer.weights import from_image_weights, load_model
from motionformer.weights.image import read_image_weights


class Tracker(ABC):
    """`track(frames, first)` yields a mask for each frame, the given one first."""

    @abstractmethod
    def track(
        self, frames: Iterable[UInt8[Tensor, "H W 3"]], first: UInt8[Tensor, "H W"]
    ) -> Iterator[UInt8[Tensor, "H W"]]: ...


@dataclass(frozen=True)
class LabelPropagation(Tracker):
    """Labels go from the first and the latest `context` frames to the next, where tokens are alike."""

    features: ClipFeatures
    affinity: Affinity
    context: int = 7
    stretch: bool = True

    def track(
        self, frames: Iterable[UInt8[Tensor, "H W 3"]], first: UInt8[Tensor, "H W"]
    ) -> Iterator[UInt8[Tensor, "H W"]]:
        tokens = self.features(frames)
        return propagate_mask(tokens, first, self.affinity, context=self.context, stretch=self.stretch)


class CopyFirst(Tracker):
    """The first mask for every frame: what anything has to beat."""

    def track(
        self, frames: Iterable[UInt8[Tensor, "H W 3"]], first: UInt8[Tensor, "H W"]
    ) -> Iterator[UInt8[Tensor, "H W"]]:
        return (first for _ in frames)


def track_video(
    video: Video, first: UInt8[Tensor, "H W"], tracker: Tracker, *, masks: Path | None, overlay: Path | None
) -> Iterator[UInt8[Tensor, "H W"]]:
    """Masks of a whole video from that of its first frame, written where asked while they come."""
    check_track_output(video.path, None, masks=masks, overlay=overlay)
    names = (f"{i:05d}.png" for i in count())
    return track_and_write(
        video.path, first, tracker, masks=masks, names=names, overlay=overlay, fps=video.metadata.fps
    )


def track_and_write(
    video: Path,
    first: UInt8[Tensor, "H W"],
    tracker: Tracker,
    *,
    masks: Path | None,
    names: Iterable[str],
    overlay: Path | None,
    fps: float,
) -> Generator[UInt8[Tensor, "H W"], None, None]:
    """Masks of a video, each written on its way through: as `masks/NAME`, and over its frame into `overlay`."""
    with stream_video(video) as stream, ExitStack() as stack:
        frames, again = tee(stream.frames)
        predicted: Iterable[Tensor] = tracker.track(frames, first)
        if masks is not None:
            predicted = keep_masks(predicted, masks, names)
        if overlay is not None:
            predicted = keep_overlay(predicted, again, stack.enter_context(OverlayWriter(overlay, fps=fps)))
        else:
            del again  # nobody else reads the frames: a copy that is kept would grow with the video
        yield from predicted


def check_first_mask(mask: UInt8[Tensor, "H W"], video: Video, file: Path) -> None:
    """Refuse a mask that shows nothing or is not the size of the frames."""
    size = (video.metadata.height, video.metadata.width)
    if tuple(mask.shape) != size:
        raise MaskError(
            f"{file}: the mask is {mask.shape[1]} × {mask.shape[0]}, the frames of {video.path} are "
            f"{size[1]} × {size[0]}."
        )
    if not object_numbers(mask):
        raise MaskError(
            f"{file}: the mask shows no object, so there is nothing to follow: 0 is background, and 255 of a palette"
            " belongs to nobody."
        )


def open_backbone(
    source: str | Path, *, from_image: bool = False, clip: int | None = None, seed: int = 0
) -> Motionformer:
    """The model of a tracker.

    `source` is what `load_model` takes, or the name of a variant: one with random weights, drawn from `seed`. With
    `from_image` it is a file of image weights: frame by frame (joint attention in clips of one), or, for a `clip` of
    several frames, inflated into a Motionformer. That one has no value projection along time: a new one would be
    random, and the image model's features gone.
    """
    if from_image:
        return _from_image(source, clip or 1)
    if str(source).lower().replace("_", "-") in VARIANTS:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            return create_model(str(source), num_classes=0).eval()
    return load_model(source)


def _from_image(source: str | Path, frames: int) -> Motionformer:
    weights, _ = read_image_weights(source)
    side = math.isqrt(weights["pos_embed"].shape[1])  # tables of the stored size: resized once, to the frame at hand
    model, _ = from_image_weights(
        source,
        num_classes=0,
        size=side * weights["patch_embed.proj.weight"].shape[-1],
        tubelet=1,
        frames=frames,
        attention="joint" if frames == 1 else "trajectory",
        project_values=False,
    )
    return model.eval()
