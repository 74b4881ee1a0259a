"""Label propagation: a first mask and the tokens of all frames → a mask of every frame (paper, appendix: DAVIS).

Every token of a new frame asks the tokens of the context frames (the first, whose mask is true, and the latest few):
those in the same neighbourhood, of these the `top_k` most alike, and takes the mean of their labels weighted by a
softmax of the likeness. Memory is a few frames of tokens, however long the video. Knows no files and no model.
"""

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from einops import rearrange
from jaxtyping import Float, UInt8
from torch import Tensor

from motionformer.tracking.masks import object_numbers, one_hot

BUDGET = 8 << 20
"""Elements of the affinities held at once, 32 MB of float32; one row of tokens is asked at least."""


@dataclass(frozen=True)
class FrameTokens:
    """What a frame asks with and is found by, in each head, on its grid of tokens. The two may be the same."""

    query: Float[Tensor, "h y x d"]
    key: Float[Tensor, "h y x d"]


@dataclass(frozen=True)
class Affinity:
    """How likeness becomes weights.

    `radius` is the reach of the neighbourhood in tokens, up, down and to the sides; None is the whole frame. `top_k`
    keys share the weight of a query; None is all of them. Logits are `query · key / temperature`.
    """

    radius: int | None = 12
    top_k: int | None = 5
    temperature: float = 0.1

    def __post_init__(self) -> None:
        if (self.radius or 0) < 0 or (self.top_k is not None and self.top_k < 1) or self.temperature <= 0:
            raise ValueError(f"the radius is 0 or more, top_k 1 or more, the temperature above 0: not {self}.")


def propagate(
    query: Float[Tensor, "h y x d"],
    keys: Float[Tensor, "f h y x d"],
    labels: Float[Tensor, "f o y x"],
    affinity: Affinity,
) -> Float[Tensor, "o y x"]:
    """The labels of the frame that `query` belongs to; those of a token sum to 1 if the given ones do.

    Goes through the frame head by head and a few rows at a time, and compares them with the rows within reach only, so
    memory hardly grows with the frame and work grows with the neighbourhood.
    """
    heads, height, width, _ = query.shape
    if heads > 1:
        each = (propagate(query[h, None], keys[:, h, None], labels, affinity) for h in range(heads))
        return sum(each, start=torch.zeros((), device=query.device)) / heads
    reach = max(height, width) if affinity.radius is None else affinity.radius
    query = query / affinity.temperature
    keys = rearrange(keys, "f 1 v u d -> 1 v (f u) d").contiguous()  # rows first: those within reach are one slice
    labels = rearrange(labels, "f o v u -> v (f u) o")
    columns = torch.arange(width, device=query.device)
    far = ((columns[:, None] - columns).abs() > reach).repeat(1, keys.shape[2] // width)
    step = rows_at_once(width * keys.shape[2], height, reach)
    out = []
    for top in range(0, height, step):
        bottom = min(top + step, height)
        near = slice(max(0, top - reach), min(height, bottom + reach))
        logits = query[:, top:bottom].flatten(1, 2) @ keys[:, near].flatten(1, 2).transpose(1, 2)
        logits = rearrange(logits, "h (y x) (v w) -> h y x v w", x=width, w=keys.shape[2])
        rows = torch.arange(top, bottom, device=query.device)
        beyond = (rows[:, None] - torch.arange(near.start, near.stop, device=query.device)).abs() > reach
        logits.masked_fill_(beyond[:, None, :, None], -float("inf"))
        logits.masked_fill_(far[:, None, :], -float("inf"))
        out.append(_mean_label(logits.flatten(3), labels[near].flatten(0, 1), affinity.top_k))
    return rearrange(torch.cat(out), "y x o -> o y x")


def rows_at_once(pairs: int, height: int, reach: int) -> int:
    """How many rows of queries to ask together within the budget, if a row and a row make `pairs` affinities."""
    rows = 1
    while rows < height and 2 * rows * min(height, 2 * rows + 2 * reach) * pairs <= BUDGET:
        rows *= 2
    return rows


def _mean_label(
    logits: Float[Tensor, "h y x keys"], labels: Float[Tensor, "keys o"], top_k: int | None
) -> Float[Tensor, "y x o"]:
    if top_k is None or top_k >= logits.shape[-1]:
        return (logits.softmax(dim=-1) @ labels).mean(dim=0)
    best, where = logits.topk(top_k, dim=-1)
    return (best.softmax(dim=-1)[..., None] * labels[where]).sum(dim=-2).mean(dim=0)


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
