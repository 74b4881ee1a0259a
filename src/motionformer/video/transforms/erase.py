"""Random erasing (Zhong et al. 2020): a rectangle of noise, the same in all frames of a clip."""

import torch
from jaxtyping import Num
from torch import Generator, Tensor

from motionformer.video.transforms.contract import Transform, required, uniform, whole
from motionformer.video.transforms.crop import RandomResizedCrop


class RandomErasing(Transform):
    """With some probability, fills a rectangle of random place, area and shape with random pixels.

    Args:
        area: share of the picture, smallest and largest.
        ratio: width to height, narrowest and widest.
    """

    def __init__(
        self,
        probability: float = 0.25,
        area: tuple[float, float] = (0.02, 0.33),
        ratio: tuple[float, float] = (0.3, 3.3),
    ) -> None:
        self.probability = probability
        self.area = area
        self.ratio = ratio
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
        erased[:, :, top : top + height, left : left + width] = (noise * full).to(clip.device, clip.dtype)
        return erased
