"""Transforms on clips of decoded frames: one draw for all frames, every draw from the generator passed in.

Start in `pipelines.py`. A new step is a `Transform` with one method.
"""

from motionformer.video.transforms.base import FromFrames, Normalise, Pipeline, SwapChannels, Transform
from motionformer.video.transforms.colour import ColourJitter, ReleasedColourJitter
from motionformer.video.transforms.geometry import (
    CentreCrop,
    HorizontalFlip,
    LabelAwareFlip,
    RandomCrop,
    RandomErasing,
    RandomResizedCrop,
    ShortSideJitter,
    ShortSideResize,
    SideCrop,
    find_twins,
)
from motionformer.video.transforms.pipelines import eval_transform, train_transform
from motionformer.video.transforms.randaugment import RandAugment

__all__ = [
    "CentreCrop",
    "ColourJitter",
    "FromFrames",
    "HorizontalFlip",
    "LabelAwareFlip",
    "Normalise",
    "Pipeline",
    "RandAugment",
    "RandomCrop",
    "RandomErasing",
    "RandomResizedCrop",
    "ReleasedColourJitter",
    "ShortSideJitter",
    "ShortSideResize",
    "SideCrop",
    "SwapChannels",
    "Transform",
    "eval_transform",
    "find_twins",
    "train_transform",
]
