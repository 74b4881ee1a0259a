"""START HERE: one reader of clips, for training, evaluation, prediction, features and tracing.

A video or a piece of it is opened, the frames that any of its clips needs are chosen once, decoded once and resized as
they come, so that memory is bounded by the size of small frames. Clips overlap and are floats: all views at once would
be thirty times a clip. `clips` crops and normalises one after the other, when the model is ready for it.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import torch
from jaxtyping import Num, UInt8
from torch import Generator, Tensor

from motionformer.data.record import Label, Record
from motionformer.errors import AnnotationError
from motionformer.video import Clock, ReadFacts, Video, open_video, retry_if_frame_count_changed
from motionformer.video.sample import FrameSampler, eval_sampler, piece_frames
from motionformer.video.spec import InputSpec, SamplingProtocol
from motionformer.video.transforms import CropChoice, crop_transform, resize_transform

_BYTES_AT_ONCE = 256_000_000
"""Of decoded frames that wait to be resized. Small videos are read in one go: every further one seeks again."""


@runtime_checkable
class ClipTransform(Protocol):
    """Frames `[t H W 3]` to what the model takes; the label goes along, because a mirror can change it."""

    def with_label(self, clip: Tensor, label: Any, generator: Generator | None = None) -> tuple[Tensor, Any]: ...


@dataclass(frozen=True)
class Views:
    """The clips of one video: every frame that some clip shows, once, and which of them each clip shows."""

    frames: Num[Tensor, "n H W 3"]
    """Ready to be cropped: resized bytes, or normalised floats in the released protocol."""
    numbers: list[int]
    """Which frame of the video each of `frames` is, ascending."""
    shown: list[list[int]]
    """For each clip, positions in `frames`."""
    times: list[tuple[float, float]]
    """Seconds from the first frame of each clip to the end of its last."""
    fps: float
    facts: ReadFacts


class ClipReader:
    """Reads the clips of a video as a model takes them; everything about it is chosen once.

    Args:
        spec: the model's input: how frames are sampled, resized, cropped and normalised.
        sampler: which frames make the clips [default: the testing protocol of `spec`].
        crops: of every clip, "centre" or 0 to 2 along the long side [default: those of `spec`].
        transforms: applied to every clip as decoded, instead of the resize and crops of `spec`: a training transform,
            or `()` for the frames themselves.
        time_limit: seconds for opening a video, and for each reading.
        image_rate: frames per second of a folder of images whose record has no rate.

    Example:
        ```python
        reader = ClipReader(model.config.input)
        views = reader.read("clip.mp4")
        clips = torch.stack(list(reader.clips(views)))  # [v·c 3 t H W]
        ```
    """

    def __init__(
        self,
        spec: InputSpec,
        *,
        sampler: FrameSampler | None = None,
        crops: Sequence[CropChoice] | None = None,
        transforms: Sequence[ClipTransform] | None = None,
        time_limit: float = 30.0,
        image_rate: float = 30.0,
    ) -> None:
        self.spec, self.time_limit, self.image_rate = spec, time_limit, image_rate
        self.sampler = eval_sampler(spec) if sampler is None else sampler
        self.square_pixels = self.sampler.protocol != "released"
        self._resize = None
        if transforms is None:
            self._resize = resize_transform(spec)
            transforms = [crop_transform(spec, crop) for crop in crops or _crop_choices(spec)]
        self.transforms = tuple(transforms)

    @property
    def num_crops(self) -> int:
        """Tensors that `clips` makes of every clip."""
        return max(1, len(self.transforms))

    def read(self, video: str | PathLike[str] | Record | Video, generator: Generator | None = None) -> Views:
        """The clips of a file, a folder of frames, the piece of one that a record names, or an open video.

        Args:
            video: a path, a record, or a video that is open already.
            generator: for samplers that draw at random.

        Raises:
            VideoError: it cannot be read.
        """
        if isinstance(video, Video):
            return self._read(video, Record(video.path), generator)
        record = video if isinstance(video, Record) else Record(Path(video))
        with open_video(
            record.path,
            time_limit=self.time_limit,
            image_rate=record.fps or self.image_rate,
            square_pixels=self.square_pixels,
        ) as opened:
            return retry_if_frame_count_changed(opened, lambda: self._read(opened, record, generator))

    def clips(self, views: Views, device: torch.device | None = None) -> Iterator[Tensor]:
        """What the model takes, clip by clip, each in all crops; bytes travel to the device, not floats."""
        for shown in views.shown:
            yield from self.crop(views.frames[shown].to(device))

    def read_labelled(self, record: Record, generator: Generator | None = None) -> tuple[Tensor, Label]:
        """The clip, or all views stacked, with the label that is right for it after the transforms."""
        views = self.read(record, generator)
        done = [pair for shown in views.shown for pair in self._transform(views.frames[shown], record.label, generator)]
        clips = [clip for clip, _ in done]
        return clips[0] if len(clips) == 1 else torch.stack(clips), done[0][1]

    def resize(self, frames: UInt8[Tensor, "n H W 3"]) -> Num[Tensor, "n h w 3"]:
        """Decoded frames at the size that crops are cut from."""
        return frames if self._resize is None else self._resize(frames).permute(1, 2, 3, 0).contiguous()

    def crop(self, frames: Num[Tensor, "t h w 3"]) -> Iterator[Tensor]:
        """One clip of resized frames in all crops."""
        return (clip for clip, _ in self._transform(frames, None))

    def _transform(
        self, frames: Tensor, label: Label, generator: Generator | None = None
    ) -> Iterable[tuple[Tensor, Any]]:
        if not self.transforms:
            return [(frames, label)]
        return (transform.with_label(frames, label, generator) for transform in self.transforms)

    def _read(self, video: Video, record: Record, generator: Generator | None) -> Views:
        """Choose frames, and read and resize each of them once."""
        clock, piece = _sampled_piece(record, video.clock, self.sampler.protocol)
        chosen = as_views(self.sampler(clock, generator, piece))
        wanted = sorted({i for clip in chosen for i in clip})
        step = len(wanted)
        if self._resize is not None:
            step = max(1, _BYTES_AT_ONCE // (3 * video.metadata.height * video.metadata.width))
        parts = [self.resize(video.read(wanted[i : i + step])) for i in range(0, len(wanted), step)]
        position = {i: k for k, i in enumerate(wanted)}
        return Views(
            frames=parts[0] if len(parts) == 1 else torch.cat(parts),
            numbers=wanted,
            shown=[[position[i] for i in clip] for clip in chosen],
            times=[(clock.seconds(min(clip)), clock.seconds(max(clip) + 1)) for clip in chosen],
            fps=clock.fps,
            facts=ReadFacts.of(chosen, video.damaged),
        )


def as_views(chosen: Sequence[int] | Sequence[Sequence[int]]) -> list[list[int]]:
    """The clips that a sampler chose; a single one is a list of one."""
    nested = torch.as_tensor(chosen).tolist()
    return nested if nested and isinstance(nested[0], list) else [nested]


def check_sampling(sampling: str, sampler: FrameSampler, name: str) -> None:
    """Something-Something runs at 12 frames a second; a stride made for 30 would show every frame several times."""
    if sampling == "segments" and sampler.is_strided:
        raise AnnotationError(
            f"{name} is sampled by segments over the whole video. A clip at a fixed stride ({sampler!r}) is not what"
            " was published, and a stride meant for 30 frames a second repeats frames of a video with 12. Use a segment"
            ' sampler, or, for an experiment, dataclasses.replace(annotations, sampling="any").'
        )


def _sampled_piece(record: Record, clock: Clock, protocol: SamplingProtocol) -> tuple[Clock, range | None]:
    """The clock that a record's clips are cut by, and the frames of its piece; None for a whole video."""
    if record.start is None and record.end is None:
        return record.clock(clock), None
    if protocol == "uniform":
        return record.clock(clock), record.span(clock)
    rate = record.assumed_fps if record.path.is_dir() else None
    clock = Clock(clock.num_frames, rate) if rate else record.clock(clock)
    piece = piece_frames(clock, record.start, record.end)
    record.check_begins(clock, piece.start < clock.num_frames)
    return clock, piece


def _crop_choices(spec: InputSpec) -> tuple[CropChoice, ...]:
    """The centre, or the three along the long side.

    The released program takes the first of the three, not the centre, for a single crop of Something-Something.
    """
    if spec.crops == 1:
        return (0,) if spec.protocol == "released" and spec.sampling == "segments" else ("centre",)
    return (0, 1, 2)
