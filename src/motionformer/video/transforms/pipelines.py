"""The pipelines of the published protocol, top-down (method.md §6). Decoded frames `[t H W 3]` in, `[3 t H W]` out."""

from collections.abc import Sequence
from typing import Literal, Protocol, runtime_checkable

from motionformer.video.transforms.colour import ColourJitter
from motionformer.video.transforms.contract import Pipeline, Transform
from motionformer.video.transforms.crop import CentreCrop, RandomCrop, RandomResizedCrop, SideCrop
from motionformer.video.transforms.erase import RandomErasing
from motionformer.video.transforms.flip import HorizontalFlip, LabelAwareFlip
from motionformer.video.transforms.pixels import FromFrames, Normalise, SwapChannels, Triple
from motionformer.video.transforms.randaugment import RandAugment
from motionformer.video.transforms.resize import ShortSideJitter, ShortSideResize


@runtime_checkable
class PixelSpec(Protocol):
    """What a model takes; the `InputSpec` of a model is one."""

    @property
    def height(self) -> int: ...
    @property
    def width(self) -> int: ...
    @property
    def mean(self) -> Triple: ...
    @property
    def std(self) -> Triple: ...
    @property
    def channels(self) -> Literal["RGB", "BGR"]: ...


def train_transform(
    spec: PixelSpec,
    *,
    jitter: tuple[int, int] | None = None,
    inverse_jitter: bool = False,
    crop_area: tuple[float, float] | None = None,
    flip: float = 0.5,
    class_names: Sequence[str] | None = None,
    colour: ColourJitter | None = None,
    rand_augment: RandAugment | None = None,
    erasing: float = 0.0,
) -> Pipeline:
    """Training clips. One draw per clip, all from the generator the pipeline is called with.

    Args:
        jitter: shortest and longest short side. The published 256–320 for 224 pixels, in proportion for other sizes
            (384–480 for 336).
        inverse_jitter: draw the inverse of the short side uniformly.
        crop_area: take a random resized crop of this share of the picture, and no jitter.
        flip: probability of mirroring; 0 for Something-Something, whose classes have sides.
        class_names: swap the labels of left and right classes when mirroring, or never mirror if that cannot be done.
            Such a pipeline is called by `with_label`.
        colour: for Kinetics.
        rand_augment: for Something-Something and EPIC-Kitchens.
        erasing: probability of erasing a rectangle.
    """
    size = (spec.height, spec.width)
    steps: list[Transform] = [FromFrames()]
    if crop_area is not None:
        steps += [RandomResizedCrop(size, crop_area)]
    else:
        low, high = jitter or published_jitter(min(size))
        steps += [ShortSideJitter(low, high, inverse=inverse_jitter, shape=size), RandomCrop(size)]
    if flip > 0:
        steps += [HorizontalFlip(flip) if class_names is None else LabelAwareFlip(class_names, flip)]
    if rand_augment is not None:
        steps += [rand_augment]
    if colour is not None:
        steps += [colour]
    if erasing > 0:
        steps += [RandomErasing(erasing)]
    return Pipeline(*steps, *finish(spec))


def eval_transform(
    spec: PixelSpec, crop: Literal["centre", 0, 1, 2] = "centre", *, short_side: int | None = None
) -> Pipeline:
    """Clips for validation, testing and prediction: nothing is drawn at random.

    Args:
        crop: the middle, or one of three along the long side: 0 left or top, 1 centre, 2 right or bottom.
        short_side: to resize to; the crop's own by default, so that three crops see the whole picture.
    """
    size = (spec.height, spec.width)
    short = min(size) if short_side is None else short_side
    covering = (short * size[0] // min(size), short * size[1] // min(size))
    cut = CentreCrop(size) if crop == "centre" else SideCrop(size, crop)
    return Pipeline(FromFrames(), ShortSideResize(covering), cut, *finish(spec))


def published_jitter(size: int) -> tuple[int, int]:
    """256–320 for 224 pixels, the same proportions for others."""
    return round(size * 256 / 224), round(size * 320 / 224)


def finish(spec: PixelSpec) -> list[Transform]:
    """The end of every pipeline. Channels are swapped first: mean and std are those of the model's channels."""
    order: list[Transform] = [SwapChannels()] if spec.channels == "BGR" else []
    return [*order, Normalise(spec.mean, spec.std)]
