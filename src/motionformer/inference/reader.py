"""Stands in for `data.ClipReader` until it reads views; the same interface."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path

import torch
from jaxtyping import Float, Num, UInt8
from torch import Tensor

from motionformer.data import FrameSampler, eval_sampler
from motionformer.data.clips import as_views
from motionformer.inference.views import crop_choices
from motionformer.models import InputSpec
from motionformer.video import Clock, ReadFacts, Video, open_video, retry_if_frame_count_changed
from motionformer.video.transforms.pipelines import CropChoice, crop_transform, resize_transform

BYTES_AT_ONCE = 256_000_000


@dataclass(frozen=True)
class Views:
    frames: Num[Tensor, "n H W 3"]
    shown: list[list[int]]
    times: list[tuple[float, float]]
    facts: ReadFacts


class ClipReader:
    def __init__(
        self,
        spec: InputSpec,
        *,
        sampler: FrameSampler | None = None,
        crops: Sequence[CropChoice] | None = None,
        time_limit: float = 30.0,
    ) -> None:
        self.spec, self.time_limit = spec, time_limit
        self.sampler = eval_sampler(spec) if sampler is None else sampler
        self.square_pixels = spec.protocol != "released"
        self._resize = resize_transform(spec)
        self.transforms = tuple(crop_transform(spec, crop) for crop in crops or crop_choices(spec))

    @property
    def num_crops(self) -> int:
        return len(self.transforms)

    def read(self, path: str | PathLike[str]) -> Views:
        with open_video(Path(path), time_limit=self.time_limit, square_pixels=self.square_pixels) as video:
            return retry_if_frame_count_changed(video, lambda: self._read(video))

    def take(self, frames: UInt8[Tensor, "t H W 3"], fps: float) -> Views:
        wanted, shown, times = self._choose(Clock(len(frames), fps))
        return Views(self.resize(frames[wanted]), shown, times, ReadFacts.of(shown))

    def resize(self, frames: UInt8[Tensor, "n H W 3"]) -> Num[Tensor, "n h w 3"]:
        return self._resize(frames).permute(1, 2, 3, 0).contiguous()

    def clips(self, views: Views, device: torch.device | None = None) -> Iterator[Float[Tensor, "3 t h w"]]:
        for shown in views.shown:
            yield from self.crop(views.frames[shown].to(device))

    def crop(self, frames: Num[Tensor, "t H W 3"]) -> Iterator[Float[Tensor, "3 t h w"]]:
        return (crop.with_label(frames, None)[0] for crop in self.transforms)

    def _read(self, video: Video) -> Views:
        wanted, shown, times = self._choose(video.clock)
        step = max(1, BYTES_AT_ONCE // (3 * video.metadata.height * video.metadata.width))
        parts = [self.resize(video.read(wanted[i : i + step])) for i in range(0, len(wanted), step)]
        return Views(torch.cat(parts), shown, times, ReadFacts.of(shown, video.damaged))

    def _choose(self, clock: Clock) -> tuple[list[int], list[list[int]], list[tuple[float, float]]]:
        clips = as_views(self.sampler(clock))
        wanted = sorted({i for clip in clips for i in clip})
        position = {i: k for k, i in enumerate(wanted)}
        times = [(clock.seconds(min(clip)), clock.seconds(max(clip) + 1)) for clip in clips]
        return wanted, [[position[i] for i in clip] for clip in clips], times
