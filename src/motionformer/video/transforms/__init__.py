"""The pipelines of the published protocol, top-down (method.md §6). Decoded frames `[t H W 3]` in, `[3 t H W]` out.

Transforms work on clips of decoded frames: one draw for all frames, every draw from the generator passed in. A new step
is a `Transform` with one method.
"""

from collections.abc import Sequence
from typing import Literal

from motionformer.video.spec import InputSpec
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
    Size,
    find_twins,
)
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

CropChoice = Literal["centre", 0, 1, 2]


def train_transform(
    spec: InputSpec,
    *,
    jitter: tuple[int, int] | None = None,
    inverse_jitter: bool = False,
    crop_area: tuple[float, float] | None = None,
    flip: float = 0.5,
    class_names: Sequence[str] | None = None,
    colour: ColourJitter | ReleasedColourJitter | None = None,
    rand_augment: RandAugment | None = None,
    erasing: float = 0.0,
) -> Pipeline:
    """Training clips. One draw per clip, all from the generator the pipeline is called with.

    A spec of the `released` protocol gets RandAugment first, on the decoded bytes at full size, then floats resized
    without antialiasing. (The release normalises before it resizes; the values are the same but for rounding.)

    Args:
        jitter: shortest and longest short side. The published 256–320 for 224 pixels, in proportion for other sizes
            (384–480 for 336).
        inverse_jitter: draw the inverse of the short side uniformly.
        crop_area: take a random resized crop of this share of the picture, and no jitter.
        flip: probability of mirroring; 0 for Something-Something, whose classes have sides.
        class_names: swap the labels of left and right classes when mirroring, or never mirror if that cannot be done.
            Such a pipeline is called by `with_label`.
        colour: for Kinetics. `ReleasedColourJitter` comes after normalisation, `ColourJitter` before.
        rand_augment: for Something-Something and EPIC-Kitchens.
        erasing: probability of erasing a rectangle.
    """
    size = (spec.height, spec.width)
    released = spec.protocol == "released"
    steps: list[Transform] = [FromFrames()]
    if rand_augment is not None and released:
        steps += [rand_augment]
    if crop_area is not None:
        steps += [RandomResizedCrop(size, crop_area, released=released)]
    else:
        low, high = jitter or _published_jitter(min(size))
        steps += [
            ShortSideJitter(low, high, inverse=inverse_jitter, shape=size, released=released),
            RandomCrop(size, released=released),
        ]
    if flip > 0:
        steps += [HorizontalFlip(flip) if class_names is None else LabelAwareFlip(class_names, flip)]
    if rand_augment is not None and not released:
        steps += [rand_augment]
    if isinstance(colour, ColourJitter):
        steps += [colour]
    if erasing > 0:
        steps += [RandomErasing(erasing)]
    steps += finish(spec)
    return Pipeline(*steps, *([colour] if isinstance(colour, ReleasedColourJitter) else []))


def eval_transform(spec: InputSpec, crop: CropChoice = "centre", *, short_side: int | None = None) -> Pipeline:
    """Clips for validation, testing and prediction: nothing is drawn at random.

    Args:
        crop: the middle, or one of three along the long side: 0 left or top, 1 centre, 2 right or bottom.
        short_side: to resize to; the crop's own by default, so that three crops see the whole picture.
    """
    size = (spec.height, spec.width)
    short = min(size) if short_side is None else short_side
    covering = (short * size[0] // min(size), short * size[1] // min(size))
    return Pipeline(*resize_transform(spec, covering).steps, *crop_transform(spec, crop).steps[1:])


def resize_transform(spec: InputSpec, size: Size | None = None) -> Pipeline:
    """The first half of `eval_transform`: decoded frames `[t H W 3]` → `[3 t h w]` that every crop is cut from.

    Bytes, resized with antialiasing; in the released protocol normalised floats, resized without.
    """
    covering = (spec.height, spec.width) if size is None else size
    if spec.protocol == "released":
        return Pipeline(FromFrames(), ShortSideResize(covering, released=True), *finish(spec))
    return Pipeline(FromFrames(), ShortSideResize(covering, interpolation=spec.interpolation))


def crop_transform(spec: InputSpec, crop: CropChoice = "centre") -> Pipeline:
    """The second half: resized frames, laid out as `[t h w 3]` again, → what the model takes."""
    size = (spec.height, spec.width)
    # models of overlapping clips (Synchformer) were trained on torchvision's crops
    cut = CentreCrop(size, to_even=spec.hop is not None) if crop == "centre" else SideCrop(size, crop)
    return Pipeline(FromFrames(), cut, *([] if spec.protocol == "released" else finish(spec)))


def _published_jitter(size: int) -> tuple[int, int]:
    """256–320 for 224 pixels, the same proportions for others."""
    return round(size * 256 / 224), round(size * 320 / 224)


def finish(spec: InputSpec) -> list[Transform]:
    """The end of every pipeline. Channels are swapped first: mean and std are those of the model's channels."""
    order: list[Transform] = [SwapChannels()] if spec.channels == "BGR" else []
    return [*order, Normalise(spec.mean, spec.std)]
