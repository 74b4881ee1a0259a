"""What follows masks: a model whose tokens are compared, or nothing at all. Both are called alike."""

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
from jaxtyping import UInt8
from torch import Tensor

from motionformer.models import Motionformer, create_model
from motionformer.models.variants import VARIANTS
from motionformer.tracking.affinity import Affinity
from motionformer.tracking.features import ClipFeatures
from motionformer.tracking.propagation import propagate_mask
from motionformer.weights import from_image_weights, load_model
from motionformer.weights.image_file import read_image_weights


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
