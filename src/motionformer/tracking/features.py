"""Frames → the tokens that are compared, from any model of ours.

A video model sees clips: consecutive frames, one clip after the other, none twice. Every frame is repeated to fill a
tubelet, so that it has tokens of its own (a tubelet of two frames shows an object at two places). With clips of one
frame and joint attention the model *is* an image transformer that goes frame by frame. Knows no masks.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

import torch
import torch.nn.functional as F
from einops import rearrange
from jaxtyping import Float, UInt8
from torch import Tensor, nn

from motionformer.models import Motionformer
from motionformer.tracking.propagation import Affinity, FrameTokens
from motionformer.video.transforms.base import FromFrames, Pipeline
from motionformer.video.transforms.geometry import resize
from motionformer.video.transforms.pipelines import finish


class Readout(ABC):
    """What of a model is compared, and how by default."""

    default: Affinity
    block: int

    @abstractmethod
    def __call__(self, model: Motionformer, x: Float[Tensor, "1 n c"], frames: int) -> tuple[Tensor, Tensor]:
        """Queries and keys `[h n d]` of all patch tokens of an embedded clip."""


@dataclass(frozen=True)
class TokenReadout(Readout):
    """Tokens after a block, of length 1: their likeness is the cosine."""

    block: int = -1
    default = Affinity(temperature=0.1)

    def __call__(self, model: Motionformer, x: Float[Tensor, "1 n c"], frames: int) -> tuple[Tensor, Tensor]:
        last = block_index(model, self.block)
        for block in model.blocks[: last + 1]:
            x = block(x, frames)
        x = model.norm(x) if last == len(model.blocks) - 1 else x
        tokens = F.normalize(x[:, model.config.num_prefix_tokens :], dim=-1)
        return tokens, tokens


@dataclass(frozen=True)
class AttentionReadout(Readout):
    """The queries and keys of a block's own attention, head by head, scaled as the block scales them.

    One softmax over the context, as the model's over a clip, and the mean over heads. In divided models it is the
    attention over space, which alone reaches other places.
    """

    block: int = -1
    default = Affinity(temperature=1.0)

    def __call__(self, model: Motionformer, x: Float[Tensor, "1 n c"], frames: int) -> tuple[Tensor, Tensor]:
        last = block_index(model, self.block)
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
    """`features(frames)` yields the `FrameTokens` of each frame, holding no more than one clip at a time.

    Args:
        clip: frames a clip; None is as many as make the token frames that the model was made for.
        height: of the frames that the model sees, rounded to whole tokens; the width follows.
    """

    def __init__(
        self, model: Motionformer, readout: Readout | None = None, *, clip: int | None = None, height: int = 480
    ) -> None:
        self.model = model.eval()
        self.readout = TokenReadout() if readout is None else readout
        self.clip = model.config.grid[0] if clip is None else clip
        self.height = height
        if self.clip < 1 or height < model.config.patch:
            raise ValueError(f"a clip has a frame or more, and a frame a token or more: not {self.clip}, {height} px.")
        block_index(model, self.readout.block)

    def __call__(self, frames: Iterable[UInt8[Tensor, "H W 3"]]) -> Iterator[FrameTokens]:
        source = iter(frames)
        while clip := list(islice(source, self.clip)):
            yield from self.read_clip(torch.stack(clip))

    @torch.no_grad()
    def read_clip(self, frames: UInt8[Tensor, "t H W 3"]) -> list[FrameTokens]:
        config = self.model.config
        rows, columns = self.grid(frames.shape[1], frames.shape[2])
        clip = resize(FromFrames()(frames), (rows * config.patch, columns * config.patch))
        clip = Pipeline(*finish(config.input))(clip).repeat_interleave(config.tubelet, dim=1)[None]
        device = self.model.prefix.device
        query, key = self.readout(self.model, self.model.embed(clip.to(device)), len(frames))
        shape = {"f": len(frames), "y": rows}
        queries, keys = (rearrange(part, "h (f y x) d -> f h y x d", **shape) for part in (query, key))
        return [FrameTokens(*both) for both in zip(queries, keys, strict=True)]

    def grid(self, height: int, width: int) -> tuple[int, int]:
        """Rows and columns of tokens for frames of this size."""
        patch = self.model.config.patch
        rows = max(1, round(self.height / patch))
        return rows, max(1, round(self.height * width / height / patch))


def block_index(model: Motionformer, block: int) -> int:
    """The number of a block counted from the first; negative numbers count from the last."""
    depth = len(model.blocks)
    if not -depth <= block < depth:
        raise ValueError(f"the model has blocks 0 to {depth - 1} (or -1 to -{depth}); not {block}.")
    return block % depth
