"""A video's tokens instead of its classes: the class token, their mean, or all of them, of any block, by segments.

For what is built on top of the backbone: retrieval, detection, audio-visual synchronisation (short segments, every
token of each, and a mask over tokens that are not there).
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from os import PathLike
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from einops import rearrange
from jaxtyping import Bool, Float, Float64, Shaped, UInt8
from torch import Tensor

from motionformer.data import ClipReader, Views, middle_sampler
from motionformer.errors import EvaluationError
from motionformer.evaluation.computing import Precision, autocast, find_device
from motionformer.evaluation.views import SampleBy, with_views
from motionformer.models import Motionformer
from motionformer.models.config import SamplingProtocol
from motionformer.predict.frames import as_frames, check_fps
from motionformer.predict.scoring import batched
from motionformer.predict.windows import even_windows, slide
from motionformer.video import ReadFacts
from motionformer.video.source import StreamClock
from motionformer.video.stream import FrameStream, stream_video
from motionformer.weights import load_model

What = Literal["class", "pooled", "tokens"]
Block = int | Literal["last"]
Timed = tuple[tuple[float, float], Tensor, ReadFacts]


@dataclass(frozen=True)
class Features:
    """Of s segments: `[s c]`, or `[s f y x c]` for tokens; and the seconds each covers."""

    values: Shaped[np.ndarray, "s ..."]
    times: Float64[np.ndarray, "s 2"]
    facts: ReadFacts | None = None
    """What they were made from: how many frames of a clip differ, and whether the video is damaged."""


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
        sample_by: SampleBy | None = None,
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
            sample_by: "frames" counts the clip's stride in the video's own frames, "time" at the model's rate; the
                weights' own by default. Segments have no stride.
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
        if sample_by is not None and segments is not None:
            raise EvaluationError("frames are spread over segments evenly: sample_by has no meaning; leave it out.")
        self.device = find_device(model, device)
        self.model = model.to(self.device).eval()
        self.what, self.block, self.segments, self.hop = what, block, segments, hop
        self.batch, self.precision, self.time_limit = batch, precision, time_limit
        self.spec = with_views(model.config.input, 1, 1, sample_by)
        self.reader = ClipReader(self.spec, time_limit=time_limit, sampler=middle_sampler(self.spec), crops=("centre",))

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

    def __call__(self, video: Any, *, fps: float | None = None) -> Features:
        """All of a video's segments, in memory. `stream` gives them a batch at a time.

        Args:
            video: a file, a folder of frames, or frames in memory: bytes `[t H W 3]`, RGB, as a tensor, an array, or a
                list of arrays or PIL images `[H W 3]`.
            fps: of frames in memory; the model's rate by default. A file has its own.

        Raises:
            VideoError: for what cannot be read.
            TypeError, ValueError: for what is neither a path nor frames.
        """
        parts = list(self.stream(video, fps=fps))
        facts = ReadFacts.together(part.facts for part in parts if part.facts is not None)
        return Features(np.concatenate([p.values for p in parts]), np.concatenate([p.times for p in parts]), facts)

    def stream(self, video: Any, *, fps: float | None = None) -> Iterator[Features]:
        """A batch of segments at a time; each frame is decoded once, memory does not grow with the video."""
        if isinstance(video, (str, PathLike)):
            if fps is not None:
                raise ValueError("`fps` is of frames in memory; a file has its own rate: leave it out.")
            return self._encode_all(self._clips(Path(video)))
        return self._encode_all(self._clips_of(as_frames(video), check_fps(fps, self.spec)))

    @torch.inference_mode()
    def encode(
        self, clips: Shaped[Tensor, "b 3 t H W"], mask: Bool[Tensor, "b f y x"] | None = None
    ) -> Float[Tensor, "b ..."]:
        """Features of normalised clips, in float32.

        `mask` is True for tokens that are there: nobody attends to the others, and they come out as zeros.
        """
        if clips.ndim != 5 or clips.shape[1] != 3 or not clips.is_floating_point():
            raise ValueError(
                "clips are normalised floats [b 3 t H W]; not"
                f" {str(clips.dtype).removeprefix('torch.')} {list(clips.shape)}. Call the extractor with frames."
            )
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
        made: dict[str, Any] = {"what": self.what, "block": self.block, "segments": self.segments, "hop": self.hop}
        if self.spec.fps != self.model.config.input.fps:  # said only where it is chosen: older files stay valid
            made["sample_by"] = "frames" if self.spec.fps is None else "time"
        if self.spec.protocol != "uniform":
            made["protocol"] = self.spec.protocol
        return made

    def _encode_all(self, clips: Iterator[Timed]) -> Iterator[Features]:
        for some in batched(clips, self.batch):
            values = self.encode(torch.stack([clip for _, clip, _ in some]))
            times = np.array([times for times, _, _ in some], dtype=np.float64)
            yield Features(values.cpu().numpy(), times, ReadFacts.together(facts for _, _, facts in some))

    def _clips(self, path: Path) -> Iterator[Timed]:
        if self.segments is None:
            yield self._only(self.reader.read(path))
            return
        with stream_video(path, time_limit=self.time_limit, square_pixels=self.reader.square_pixels) as stream:
            yield from self._segments(stream, self.segments)

    def _clips_of(self, frames: UInt8[Tensor, "t H W 3"], fps: float) -> Iterator[Timed]:
        if self.segments is None:
            yield self._only(self.reader.take(frames, fps))
            return
        yield from self._segments(FrameStream(fps, iter(frames), StreamClock(fps)), self.segments)

    def _only(self, views: Views) -> Timed:
        return views.times[0], next(self.reader.clips(views, self.device)), views.facts

    def _segments(self, stream: FrameStream, seconds: float) -> Iterator[Timed]:
        windows = even_windows(self.spec, stream.fps, seconds, self.hop)
        small = (self.reader.resize(frame[None])[0] for frame in stream.frames)
        for picked in slide(small, windows):
            clip = next(self.reader.crop(torch.stack(picked.frames).to(self.device)))
            facts = replace(picked.facts, damaged=stream.is_damaged(picked.end))
            yield (stream.clock.seconds(picked.start), stream.clock.seconds(picked.end)), clip, facts


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
