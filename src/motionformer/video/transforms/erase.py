"""Random erasing (Zhong et al. 2020): a rectangle of noise, the same in all frames of a clip."""

import torch
from jaxtyping import Num
from torch import Generator, Tensor

from motionformer.video.transforms.contract import Transform, required, uniform, whole
from motionformer.video.transforms.crop import RandomResizedCrop
from motionformer.video.transforms.pixels import Triple


class RandomErasing(Transform):
    """With some probability, fills a rectangle of random place, area and shape with random pixels.

    Args:
        area: share of the picture, smallest and largest.
        ratio: width to height, narrowest and widest.
        mean, std: of clips that are normalised already, so that their noise is too.
    """

    def __init__(
        self,
        probability: float = 0.25,
        area: tuple[float, float] = (0.02, 0.33),
        ratio: tuple[float, float] = (0.3, 3.3),
        mean: Triple = (0.0, 0.0, 0.0),
        std: Triple = (1.0, 1.0, 1.0),
    ) -> None:
        self.probability = probability
        self.area = area
        self.ratio = ratio
        self.mean = mean
        self.std = std
        self._rectangle = RandomResizedCrop(1, area, ratio)

    def __call__(self, clip: Num[Tensor, "3 t H W"], generator: Generator | None = None) -> Num[Tensor, "3 t H W"]:
        if uniform(0.0, 1.0, generator, self) >= self.probability:
            return clip
        height, width = self._rectangle.draw((clip.shape[2], clip.shape[3]), generator)
        top = whole(0, clip.shape[2] - height, generator, self)
        left = whole(0, clip.shape[3] - width, generator, self)
        noise = torch.rand(3, 1, height, width, generator=required(generator, self))
        erased = clip.clone()
        full = 256.0 if clip.dtype == torch.uint8 else 1.0
        mean, std = (torch.tensor(values)[:, None, None, None] for values in (self.mean, self.std))
        noise = (noise - mean) / std * full
        erased[:, :, top : top + height, left : left + width] = noise.to(clip.device, clip.dtype)
        return erased
