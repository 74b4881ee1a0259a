"""A first mask and a stream of frames → a mask of every frame. Memory: a few frames of tokens, however long the video.

The context is a queue: the first frame, whose mask is true, and the last few, which look most alike. Knows no files.
"""

from collections import deque
from collections.abc import Iterable, Iterator

import torch
import torch.nn.functional as F
from jaxtyping import Float, UInt8
from torch import Tensor

from motionformer.tracking.affinity import Affinity, FrameTokens, propagate
from motionformer.tracking.masks import object_numbers, one_hot


def propagate_mask(
    tokens: Iterable[FrameTokens],
    first: UInt8[Tensor, "H W"],
    affinity: Affinity,
    *,
    context: int = 7,
    stretch: bool = True,
) -> Iterator[UInt8[Tensor, "H W"]]:
    """Masks of all frames, the given one first. `context` counts the latest frames kept beside the first.

    Labels stay soft in the queue; only what is yielded is decided, pixel by pixel (`stretch`: see `decide`).
    """
    objects = object_numbers(first)
    queue: deque[tuple[Tensor, Tensor]] = deque(maxlen=context)
    start: tuple[Tensor, Tensor] | None = None
    for frame in tokens:
        if start is None:
            start = frame.key, to_grid(one_hot(first, objects), frame.key.shape[1:3]).to(frame.key.device)
            yield first
            continue
        known = [start, *queue]
        keys, labels = torch.stack([key for key, _ in known]), torch.stack([label for _, label in known])
        label = propagate(frame.query, keys, labels, affinity)
        queue.append((frame.key, label))
        yield decide(label, objects, first.shape, stretch=stretch)


def to_grid(layers: Float[Tensor, "o H W"], grid: tuple[int, int] | torch.Size) -> Float[Tensor, "o y x"]:
    """The share of each token that each layer covers."""
    return F.interpolate(layers[None], size=tuple(grid), mode="bilinear", antialias=True, align_corners=False)[0]


FLAT = 1e-4
"""A layer that varies by less is the same everywhere: stretching it would show rounding."""


def decide(
    label: Float[Tensor, "o y x"],
    objects: list[int],
    size: tuple[int, int] | torch.Size,
    *,
    stretch: bool = True,
) -> UInt8[Tensor, "H W"]:
    """The object of each pixel: labels enlarged smoothly, each layer stretched to 0 … 1, and the greatest wins.

    Without the stretch a thin object, whose label is weak wherever it is, loses to the background all over; with it, an
    object that has left comes back wherever a little of its label is left.
    """
    layers = F.interpolate(label[None], size=tuple(size), mode="bilinear", align_corners=False)[0]
    if stretch:
        low, high = layers.amin(dim=(1, 2), keepdim=True), layers.amax(dim=(1, 2), keepdim=True)
        layers = torch.where(high - low < FLAT, layers, (layers - low) / (high - low).clamp(min=FLAT))
    numbers = torch.tensor([0, *objects], dtype=torch.uint8, device=label.device)
    return numbers[layers.argmax(dim=0)].cpu()
