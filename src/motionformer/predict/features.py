"""A video's tokens instead of its classes: the class token, their mean, or all of them, of any block, by segments.

For what is built on top of the backbone: retrieval, detection, audio-visual synchronisation (short segments, every
token of each, and a mask over tokens that are not there).
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from einops import rearrange
from jaxtyping import Bool, Float, Float64, Shaped
from torch import Tensor

from motionformer.data import middle_sampler
from motionformer.errors import EvaluationError
from motionformer.evaluation.computing import Precision, autocast, find_device
from motionformer.evaluation.views import with_views
from motionformer.models import Motionformer
from motionformer.models.config import SamplingProtocol
from motionformer.predict.scoring import batched
from motionformer.predict.views import ViewReader
from motionformer.predict.windows import even_windows, slide
from motionformer.video.stream import stream_video
from motionformer.weights import load_model

What = Literal["class", "pooled", "tokens"]
Block = int | Literal["last"]
Timed = tuple[tuple[float, float], Tensor]


@dataclass(frozen=True)
class Features:
    """Of s segments: `[s c]`, or `[s f y x c]` for tokens; and the seconds each covers."""

    values: Shaped[np.ndarray, "s ..."]
    times: Float64[np.ndarray, "s 2"]


class FeatureExtractor:
    """A model, which of its tokens are wanted, and how a video is cut into segments."""

    def __init__(
        self,
        model: Motionformer,
        *,
        what: What = "class",
        block: Block = "last",
        segments: float | None = None,
        hop: float | None = None,
        device: str | torch.device | None = None,
        batch: int = 8,
        precision: Precision = "32",
        time_limit: float = 30.0,
    ) -> None:
        """
        Args:
            what: the class token, the mean of the patch tokens, or all patch tokens in their grid.
            block: tokens as this block leaves them (0 is the first), or "last": after all blocks and the final norm.
            segments: seconds of each; the model's frames are spread over them evenly. None: one, the clip in the
                middle of the video, as the weights were trained.
            hop: seconds from segment to segment; as long as they are by default.
            batch: segments in one forward pass.
        """
        depth, prefix = len(model.blocks), model.config.num_prefix_tokens
        if what not in READ:
            raise EvaluationError(f"features are {', '.join(READ)}; not {what!r}.")
        if what == "class" and not prefix:
            raise EvaluationError("this model has no class token; take pooled or tokens.")
        if block != "last" and not (isinstance(block, int) and 0 <= block < depth):
            raise EvaluationError(f"the model's blocks are 0 to {depth - 1}, or 'last' (with the norm); not {block!r}.")
        if batch < 1:
            raise EvaluationError(f"a batch holds at least one segment, not {batch}.")
        if hop is not None and segments is None:
            raise EvaluationError("a hop goes from segment to segment: say how long segments are.")
        self.device = find_device(model, device)
        self.model = model.to(self.device).eval()
        self.what, self.block, self.segments, self.hop = what, block, segments, hop
        self.batch, self.precision, self.time_limit = batch, precision, time_limit
        self.spec = with_views(model.config.input, 1, 1)
        self.reader = ViewReader(self.spec, time_limit=time_limit, sampler=middle_sampler(self.spec), crops=("centre",))

    @classmethod
    def from_pretrained(
        cls,
        source: str | Path,
        device: str | torch.device | None = None,
        *,
        protocol: SamplingProtocol | None = None,
        **options: Any,
    ) -> "FeatureExtractor":
        """With the weights that `load_model` finds under this name or path; `protocol` as there."""
        return cls(load_model(source, protocol=protocol), device=device, **options)

    def __call__(self, video: str | PathLike[str]) -> Features:
        """All of a video's segments, in memory. `stream` gives them a batch at a time."""
        parts = list(self.stream(video))
        return Features(np.concatenate([p.values for p in parts]), np.concatenate([p.times for p in parts]))

    def stream(self, video: str | PathLike[str]) -> Iterator[Features]:
        """A batch of segments at a time; each frame is decoded once, memory does not grow with the video."""
        for some in batched(self._clips(Path(video)), self.batch):
            values = self.encode(torch.stack([clip for _, clip in some]))
            yield Features(values.cpu().numpy(), np.array([times for times, _ in some], dtype=np.float64))

    @torch.inference_mode()
    def encode(
        self, clips: Float[Tensor, "b 3 t H W"], mask: Bool[Tensor, "b f y x"] | None = None
    ) -> Float[Tensor, "b ..."]:
        """Features of normalised clips, in float32.

        `mask` is True for tokens that are there: nobody attends to the others, and they come out as zeros.
        """
        model, p = self.model, self.model.config.num_prefix_tokens
        clips = clips.to(self.device)
        grid = model.tokens.grid(clips)
        seen = None if mask is None else _with_prefix(mask.to(self.device), grid, p)
        with autocast(self.device, self.precision):
            x = model.embed(clips)
            for index, block in enumerate(model.blocks):
                x = block(x, grid[0]) if seen is None else block(x, grid[0], seen)
                if index == self.block:
                    break
            x = (model.norm(x) if self.block == "last" else x).float()
        patches = rearrange(x[:, p:], "b (f y x) c -> b f y x c", f=grid[0], y=grid[1])
        return _finite(READ[self.what](x[:, :p], patches, mask if mask is None else mask.to(self.device)))

    def describe(self) -> dict[str, Any]:
        """What these features are, in plain values."""
        how = {"protocol": self.spec.protocol} if self.spec.protocol != "uniform" else {}
        return {"what": self.what, "block": self.block, "segments": self.segments, "hop": self.hop, **how}

    def _clips(self, path: Path) -> Iterator[Timed]:
        if self.segments is None:
            views = self.reader.read(path)
            yield views.times[0], next(self.reader.clips(views, self.device))
            return
        with stream_video(path, time_limit=self.time_limit, square_pixels=self.reader.square_pixels) as stream:
            windows = even_windows(self.spec, stream.fps, self.segments, self.hop)
            small = (self.reader.shrink(frame[None])[0] for frame in stream.frames)
            for picked in slide(small, windows):
                clip = next(self.reader.crop(torch.stack(picked.frames).to(self.device)))
                yield (stream.clock.seconds(picked.start), stream.clock.seconds(picked.end)), clip


def _class_token(prefix: Tensor, patches: Tensor, mask: Tensor | None) -> Tensor:
    return prefix[:, 0]


def _pooled(prefix: Tensor, patches: Tensor, mask: Tensor | None) -> Tensor:
    """The mean of the tokens that are there; zeros where none is."""
    if mask is None:
        return patches.mean(dim=(1, 2, 3))
    count = mask.sum(dim=(1, 2, 3)).clamp(min=1)
    return _tokens(prefix, patches, mask).sum(dim=(1, 2, 3)) / count[:, None]


def _tokens(prefix: Tensor, patches: Tensor, mask: Tensor | None) -> Tensor:
    return patches if mask is None else patches.masked_fill(~mask[..., None], 0.0)


READ: dict[What, Callable[[Tensor, Tensor, Tensor | None], Tensor]] = {
    "class": _class_token,
    "pooled": _pooled,
    "tokens": _tokens,
}


def _finite(features: Tensor) -> Tensor:
    if not torch.isfinite(features).all():
        raise EvaluationError(
            "the model's features are not numbers. Its weights are broken, or it does not bear this precision: try 32."
        )
    return features


def _with_prefix(mask: Bool[Tensor, "b f y x"], grid: tuple[int, int, int], p: int) -> Bool[Tensor, "b n"]:
    if tuple(mask.shape[1:]) != tuple(grid):
        raise EvaluationError(f"the mask is {tuple(mask.shape[1:])}; the clips have {tuple(grid)} tokens.")
    flat = mask.flatten(1)
    return torch.cat((flat.new_ones(len(flat), p), flat), dim=1)
