"""Label propagation: frames → tokens of any model; tokens and a first mask → a mask of every frame (paper, appendix).

Every token of a new frame attends to the tokens of the context frames (the first, whose mask is given, and the latest
few): those in the same neighbourhood, of these the `top_k` most similar, and takes the mean of their labels weighted by
a softmax of the similarity. Memory is a few frames of tokens, however long the video.
"""

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from einops import rearrange
from jaxtyping import Bool, Float, UInt8
from torch import Tensor, nn

from motionformer.attention.rotary import set_shape
from motionformer.models import Motionformer
from motionformer.tracking.masks import object_numbers
from motionformer.video.transforms import FromFrames, Pipeline, finish
from motionformer.video.transforms.geometry import resize

BUDGET = 8 << 20
"""Elements of the affinities held at once, 32 MB of float32; at least one row of queries is computed."""
_FLAT = 1e-4  # a layer that varies by less is constant: stretching it would show rounding


@dataclass(frozen=True)
class _FrameTokens:
    """Queries and keys of a frame, per head, on its grid of tokens. The two may be the same."""

    query: Float[Tensor, "h y x d"]
    key: Float[Tensor, "h y x d"]


@dataclass(frozen=True)
class Affinity:
    """How similarity becomes weights: logits are `query · key / temperature`.

    Attributes:
        radius: of the neighbourhood in tokens, in all directions; None is the whole frame.
        top_k: keys that share the weight of a query; None is all of them.
        temperature: of the softmax.

    Example:
        >>> Affinity(radius=None, top_k=1)
        Affinity(radius=None, top_k=1, temperature=0.1)
    """

    radius: int | None = 12
    top_k: int | None = 5
    temperature: float = 0.1

    def __post_init__(self) -> None:
        if (self.radius or 0) < 0 or (self.top_k is not None and self.top_k < 1) or self.temperature <= 0:
            raise ValueError(f"`radius` must be 0 or more, `top_k` 1 or more, `temperature` above 0; not {self}.")


def _propagate(
    query: Float[Tensor, "h y x d"],
    keys: Float[Tensor, "f h y x d"],
    labels: Float[Tensor, "f o y x"],
    affinity: Affinity,
) -> Float[Tensor, "o y x"]:
    """The labels of the frame that `query` belongs to; those of a token sum to 1 if the given ones do.

    Computed head by head and a few rows at a time, against the rows within reach only: memory hardly grows with the
    frame, and work grows with the neighbourhood.
    """
    heads, height, width, _ = query.shape
    if heads > 1:
        each = (_propagate(query[h, None], keys[:, h, None], labels, affinity) for h in range(heads))
        return sum(each, start=torch.zeros((), device=query.device)) / heads
    reach = max(height, width) if affinity.radius is None else affinity.radius
    query = query / affinity.temperature
    keys = rearrange(keys, "f 1 v u d -> 1 v (f u) d").contiguous()  # rows first: those within reach are one slice
    labels = rearrange(labels, "f o v u -> v (f u) o")
    columns = torch.arange(width, device=query.device)
    far = ((columns[:, None] - columns).abs() > reach).repeat(1, keys.shape[2] // width)
    step = _rows_per_chunk(width * keys.shape[2], height, reach)
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


def _rows_per_chunk(pairs: int, height: int, reach: int) -> int:
    """Rows of queries within the budget, if a row of queries and a row of keys make `pairs` affinities."""
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
    tokens: Iterable[_FrameTokens],
    first: UInt8[Tensor, "H W"],
    affinity: Affinity,
    *,
    context: int = 7,
    stretch: bool = True,
) -> Iterator[UInt8[Tensor, "H W"]]:
    """Masks of all frames, the given one first. `context` is the number of latest frames kept beside the first.

    Labels stay soft in the queue; only what is yielded is hard, pixel by pixel (`stretch`: see `_decide`).
    """
    objects = object_numbers(first)
    queue: deque[tuple[Tensor, Tensor]] = deque(maxlen=context)
    start: tuple[Tensor, Tensor] | None = None
    for frame in tokens:
        if start is None:
            start = frame.key, _to_grid(_one_hot(first, objects), frame.key.shape[1:3]).to(frame.key.device)
            yield first
            continue
        known = [start, *queue]
        keys, labels = torch.stack([key for key, _ in known]), torch.stack([label for _, label in known])
        label = _propagate(frame.query, keys, labels, affinity)
        queue.append((frame.key, label))
        yield _decide(label, objects, first.shape, stretch=stretch)


def _to_grid(layers: Float[Tensor, "o H W"], grid: tuple[int, int] | torch.Size) -> Float[Tensor, "o y x"]:
    """The share of each token that each layer covers."""
    return F.interpolate(layers[None], size=tuple(grid), mode="bilinear", antialias=True, align_corners=False)[0]


def _decide(
    label: Float[Tensor, "o y x"],
    objects: list[int],
    size: tuple[int, int] | torch.Size,
    *,
    stretch: bool = True,
) -> UInt8[Tensor, "H W"]:
    """The object of each pixel: labels enlarged smoothly, each layer stretched to 0 … 1, and the greatest wins.

    Without the stretch a thin object, whose label is weak wherever it is, loses to the background all over; with it, an
    object that has left the frame comes back wherever a little of its label remains.
    """
    layers = F.interpolate(label[None], size=tuple(size), mode="bilinear", align_corners=False)[0]
    if stretch:
        low, high = layers.amin(dim=(1, 2), keepdim=True), layers.amax(dim=(1, 2), keepdim=True)
        layers = torch.where(high - low < _FLAT, layers, (layers - low) / (high - low).clamp(min=_FLAT))
    numbers = torch.tensor([0, *objects], dtype=torch.uint8, device=label.device)
    return numbers[layers.argmax(dim=0)].cpu()


def _one_hot(mask: UInt8[Tensor, "H W"], objects: list[int]) -> Float[Tensor, "o H W"]:
    """One layer for the background, then one for each object; other numbers count as background."""
    layers: Bool[Tensor, "o H W"] = mask[None] == torch.tensor(objects, dtype=torch.uint8)[:, None, None]
    return torch.cat((~layers.any(dim=0, keepdim=True), layers)).float()


# Frames → tokens


@dataclass(frozen=True)
class Readout(ABC):
    """What of a model is compared, and the affinity that suits it."""

    default: ClassVar[Affinity]
    block: int = -1

    @abstractmethod
    def __call__(self, model: Motionformer, x: Float[Tensor, "1 n c"], frames: int) -> tuple[Tensor, Tensor]:
        """Queries and keys `[h n d]` of all patch tokens of an embedded clip."""


@dataclass(frozen=True)
class TokenReadout(Readout):
    """Normalised tokens after a block: their similarity is the cosine.

    Attributes:
        block: its number; negative ones count from the last.
    """

    default = Affinity(temperature=0.1)

    def __call__(self, model: Motionformer, x: Float[Tensor, "1 n c"], frames: int) -> tuple[Tensor, Tensor]:
        last = _block_index(model, self.block)
        for block in model.blocks[: last + 1]:
            x = block(x, frames)
        x = model.norm(x) if last == len(model.blocks) - 1 else x
        tokens = F.normalize(x[:, model.config.num_prefix_tokens :], dim=-1)
        return tokens, tokens


@dataclass(frozen=True)
class AttentionReadout(Readout):
    """The queries and keys of a block's own attention, head by head, scaled as the block scales them.

    One softmax over the context, as the model's over a clip, and the mean over heads. In divided models it is the
    spatial attention, which alone reaches other positions.

    Attributes:
        block: its number; negative ones count from the last.
    """

    default = Affinity(temperature=1.0)

    def __call__(self, model: Motionformer, x: Float[Tensor, "1 n c"], frames: int) -> tuple[Tensor, Tensor]:
        last = _block_index(model, self.block)
        for block in model.blocks[:last]:
            x = block(x, frames)
        attention: Any = model.blocks[last].attn
        projected: list[Tensor] = []
        layer: nn.Linear = attention.qkv
        handle = layer.register_forward_hook(lambda module, inputs, output: projected.append(output))
        try:
            model.blocks[last](x, frames)
        finally:
            handle.remove()
        patches = projected[0][0, model.config.num_prefix_tokens :]
        q, k, _ = rearrange(patches, "n (three h d) -> three h n d", three=3, h=attention.num_heads)
        return q * q.shape[-1] ** -0.5, k


class ClipFeatures:
    """`features(frames)` yields the `_FrameTokens` of each frame, holding no more than one clip at a time.

    A video model sees clips: consecutive frames, one clip after the other, none twice. Every frame is repeated to fill
    a tubelet, so that it has tokens of its own (a tubelet of two frames shows an object at two positions). With clips
    of one frame and joint attention the model *is* an image transformer applied frame by frame.

    Args:
        model: any model.
        readout: what is compared [default: `TokenReadout()`].
        clip: frames per clip [default: as many as the model has token frames].
        height: of the frames that the model sees, rounded to whole tokens; the width follows.

    Raises:
        ValueError: a clip or height that is too small, or a block that the model does not have.

    Example:
        ```python
        features = ClipFeatures(open_backbone("motion-tiny"), TokenReadout(-2), height=192)
        tokens = next(features(frames)).key  # frames: an iterable of uint8 [H W 3]
        ```
    """

    def __init__(
        self, model: Motionformer, readout: Readout | None = None, *, clip: int | None = None, height: int = 480
    ) -> None:
        self.model = model.eval()
        self.readout = TokenReadout() if readout is None else readout
        self.clip = model.config.grid[0] if clip is None else clip
        self.height = height
        if self.clip < 1 or height < model.config.patch:
            raise ValueError(
                f"`clip` ({self.clip}) must be 1 or more, and `height` ({height}) {model.config.patch} or more."
            )
        _block_index(model, self.readout.block)

    def __call__(self, frames: Iterable[UInt8[Tensor, "H W 3"]]) -> Iterator[_FrameTokens]:
        source = iter(frames)
        while clip := list(islice(source, self.clip)):
            yield from self._read_clip(torch.stack(clip))

    @torch.no_grad()
    def _read_clip(self, frames: UInt8[Tensor, "t H W 3"]) -> list[_FrameTokens]:
        config = self.model.config
        rows, columns = self._grid(frames.shape[1], frames.shape[2])
        clip = resize(FromFrames()(frames), (rows * config.patch, columns * config.patch))
        clip = Pipeline(*finish(config.input))(clip).repeat_interleave(config.tubelet, dim=1)[None]
        device = self.model.prefix.device
        set_shape(self.model, rows, columns)
        query, key = self.readout(self.model, self.model.embed(clip.to(device)), len(frames))
        shape = {"f": len(frames), "y": rows}
        queries, keys = (rearrange(part, "h (f y x) d -> f h y x d", **shape) for part in (query, key))
        return [_FrameTokens(*both) for both in zip(queries, keys, strict=True)]

    def _grid(self, height: int, width: int) -> tuple[int, int]:
        """Rows and columns of tokens for frames of this size."""
        patch = self.model.config.patch
        rows = max(1, round(self.height / patch))
        return rows, max(1, round(self.height * width / height / patch))


def _block_index(model: Motionformer, block: int) -> int:
    """The number of a block counted from the first; negative numbers count from the last."""
    depth = len(model.blocks)
    if not -depth <= block < depth:
        raise ValueError(f"the model has blocks 0 to {depth - 1} (or -1 to -{depth}); not {block}.")
    return block % depth
