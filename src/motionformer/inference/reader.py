"""A video becomes the views of the testing protocol (method.md §6): frames as small bytes, views one by one.

The frames that any view needs are decoded once and shrunk as they come. Views overlap and are floats, so all of them at
once would be thirty times a clip; a batch of them is cut when the model is ready for it. The same numbers as the data
pipeline's (`data.ClipReader`), which reads everything at once.
"""


from collections.abc import Iterator
from dataclasses import dataclass
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

AT_ONCE = 256_000_000
"""Bytes of decoded frames that wait to be shrunk. Small videos are read in one go: every further one seeks again."""


@dataclass(frozen=True)
class Views:
    """Frames that some view shows, and which of them each view shows."""

    frames: Num[Tensor, "n H W 3"]
    """Resized; bytes, or normalised floats in the released protocol."""
    shown: list[list[int]]
    times: list[tuple[float, float]]
    """Seconds from the first frame of each view to the end of its last."""
    facts: ReadFacts


class ViewReader:
    """How a video is cut for one model, chosen once."""

    def __init__(
        self,
        spec: InputSpec,
        decoder: str = "pyav",
        time_limit: float = 30.0,
        sampler: FrameSampler | None = None,
        crops: tuple[CropChoice, ...] | None = None,
    ) -> None:
        self.spec, self.decoder, self.time_limit = spec, decoder, time_limit
        self.sampler = eval_sampler(spec) if sampler is None else sampler
        self.square_pixels = spec.protocol != "released"
        self.resize = resize_transform(spec)
        self.crops = tuple(crop_transform(spec, crop) for crop in crops or crop_choices(spec))

    def read(self, path: Path) -> Views:
        """From a file or a folder of frames. Raises `VideoError`."""
        with open_video(
            path, decoder=self.decoder, time_limit=self.time_limit, square_pixels=self.square_pixels
        ) as video:
            return retry_if_frame_count_changed(video, lambda: self._read(video))

    def take(self, frames: UInt8[Tensor, "t H W 3"], fps: float) -> Views:
        """From frames that are there already."""
        wanted, shown, times = self._choose(Clock(len(frames), fps))
        return Views(self.shrink(frames[wanted]), shown, times, ReadFacts.of(shown))

    def shrink(self, frames: UInt8[Tensor, "n H W 3"]) -> Num[Tensor, "n h w 3"]:
        """To the size that the crops are cut from."""
        return self.resize(frames).permute(1, 2, 3, 0).contiguous()

    def clips(self, views: Views, device: torch.device) -> Iterator[Float[Tensor, "3 t h w"]]:
        """What the model takes, clip by clip, each in all crops; bytes travel to the device, not floats."""
        for shown in views.shown:
            yield from self.crop(views.frames[shown].to(device))

    def crop(self, frames: Num[Tensor, "t H W 3"]) -> Iterator[Float[Tensor, "3 t h w"]]:
        """One clip in all crops."""
        return (crop.with_label(frames, None)[0] for crop in self.crops)

    def _read(self, video: Video) -> Views:
        wanted, shown, times = self._choose(video.clock)
        step = max(1, AT_ONCE // (3 * video.metadata.height * video.metadata.width))
        parts = [self.shrink(video.read(wanted[i : i + step])) for i in range(0, len(wanted), step)]
        return Views(torch.cat(parts), shown, times, ReadFacts.of(shown, video.damaged))

    def _choose(self, clock: Clock) -> tuple[list[int], list[list[int]], list[tuple[float, float]]]:
        clips = as_views(self.sampler(clock))
        wanted = sorted({i for clip in clips for i in clip})
        place = {i: position for position, i in enumerate(wanted)}
        times = [(clock.seconds(min(clip)), clock.seconds(max(clip) + 1)) for clip in clips]
        return wanted, [[place[i] for i in clip] for clip in clips], times
