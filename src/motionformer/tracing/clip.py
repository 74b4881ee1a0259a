"""A clip and its geometry: which frames a model is shown, and which token holds a point of them.

A frame is resized until it covers the model's input and cropped in the middle (`eval_transform`); the crop is a grid of
patches. Points are (x, y) from the upper left corner, and the first pixel reaches from 0 to 1. Knows no attention.
"""

from dataclasses import dataclass, replace
from os import PathLike
from pathlib import Path

import torch
from jaxtyping import Float, Float32, Float64, UInt8
from torch import Generator, Tensor

from motionformer.data import ClipReader, middle_sampler
from motionformer.data.clips import as_views
from motionformer.data.motion import CLASSES, MotionBenchmark, MotionClip
from motionformer.data.source import MotionAddress, parse_motion
from motionformer.errors import TraceError
from motionformer.logging import show_count
from motionformer.models import InputSpec, ModelConfig, Motionformer
from motionformer.video import Clock
from motionformer.video.sample import clamp, clip_offsets
from motionformer.video.transforms import eval_transform
from motionformer.video.transforms.geometry import Size, cover, middle, released_cover

Source = str | PathLike[str] | MotionClip | Tensor
Point = tuple[float, float]
_Box = tuple[float, float, float, float]  # left, top, right, bottom


@dataclass(frozen=True)
class Clip:
    """The frames that a model is shown, as they were decoded."""

    name: str
    frames: UInt8[Tensor, "t H W 3"]
    numbers: tuple[int, ...]
    """The index of each frame in the video."""
    query_index: int
    """Position of the query frame in the clip."""
    fps: float = 8.0
    """Playback rate of the clip at its original speed."""
    truth: Float32[Tensor, "t 2"] | None = None
    """True position of the object, (x, y) in pixels, where it is known."""
    damaged: bool | None = False
    """Whether the decoder reported damage in what was read; None if the decoder does not report any."""

    def __repr__(self) -> str:
        height, width = self.frames.shape[1:3]
        span = f"{self.numbers[0]} to {self.numbers[-1]}"
        return f"Clip({self.name!r}, {show_count(len(self.numbers), 'frame')} {width}×{height}, frames {span})"


def open_clip(source: Source, config: ModelConfig, frame: int | None = None) -> Clip:
    """Read the clip of `source` that the model sees around `frame`.

    Args:
        source: a video file, a folder of frames, frames in memory (uint8 `[t H W 3]`), or a clip of the motion
            benchmark, as an object or as `motion:LEVEL/NUMBER`.
        config: of the model, whose sampling is used.
        frame: of a file or folder, the index of a frame in the *video*: the clip is moved around it [default: the
            middle clip and its middle frame]. Frames in memory and motion clips are taken as they are, and `frame` is
            an index into them.

    Returns:
        The clip, as decoded.

    Raises:
        TraceError: `frame` does not exist, or the frames do not divide into tokens.
        VideoError: the video cannot be read.
    """
    if isinstance(source, Tensor):
        clip = _in_memory("clip", source, frame)
    elif isinstance(source, MotionClip):
        clip = replace(_in_memory("motion clip", source.frames, frame), truth=source.path)
    elif motion := parse_motion(str(source)):
        made = _make_motion_clip(motion, str(source), config.input)
        clip = replace(_in_memory(f"{source} ({CLASSES[made.label]})", made.frames, frame), truth=made.path)
    else:
        clip = _from_video(Path(source), config.input, frame)
    if len(clip.frames) % config.tubelet:
        raise TraceError(
            f"{clip.name}: the number of frames ({len(clip.frames)}) must be divisible by the tubelet "
            f"({config.tubelet}); the model was made for {config.input.frames}."
        )
    return clip


def prepare_clip(model: Motionformer, frames: UInt8[Tensor, "t H W 3"]) -> Float[Tensor, "1 3 t h w"]:
    """Decoded frames → the model's input: size, scale, device, precision."""
    return eval_transform(model.config.input)(frames)[None].to(model.prefix.device, model.prefix.dtype)


@dataclass(frozen=True)
class Query:
    """A point of a frame, and the token that holds it."""

    x: float
    y: float
    frame: int
    """Index into the clip."""
    token_frame: int
    row: int
    column: int
    token: int
    """Index among the patch tokens of the clip; prefix tokens come before them."""


@dataclass(frozen=True)
class Geometry:
    """How the frames of a clip become a grid of patches. Sizes are (height, width)."""

    frame: Size
    resized: Size
    corner: Size
    """Top and left of the crop in the resized frame."""
    rows: int
    columns: int
    patch: int
    tubelet: int

    @property
    def scale(self) -> Point:
        """Pixels of the frame per pixel of the model's input, along x and y."""
        return self.frame[1] / self.resized[1], self.frame[0] / self.resized[0]

    @property
    def patch_size(self) -> Point:
        """Width and height of a patch in pixels of the frame."""
        return self.patch * self.scale[0], self.patch * self.scale[1]

    @property
    def visible(self) -> _Box:
        """The part of the frame that the model sees: left, top, right, bottom, in pixels of the frame."""
        (across, down), (top, left) = self.scale, self.corner
        width, height = self.patch_size
        return left * across, top * down, left * across + self.columns * width, top * down + self.rows * height

    def patch_centres(self) -> Float64[Tensor, "s 2"]:
        """The centre (x, y) of every patch in pixels of the frame, row by row."""
        left, top, _, _ = self.visible
        width, height = self.patch_size
        y, x = torch.meshgrid(
            top + height * (torch.arange(self.rows, dtype=torch.float64) + 0.5),
            left + width * (torch.arange(self.columns, dtype=torch.float64) + 0.5),
            indexing="ij",
        )
        return torch.stack((x.flatten(), y.flatten()), dim=1)

    def patch_at(self, x: float, y: float) -> tuple[int, int]:
        """Row and column of the patch that holds a point."""
        height, width = self.frame
        if not (0 <= x < width and 0 <= y < height):
            raise TraceError(
                f"the point {x:g},{y:g} is outside the frame: frames are {width} × {height} pixels, "
                f"so x is 0 to {width - 1} and y is 0 to {height - 1}."
            )
        left, top, right, bottom = self.visible
        if not (left <= x < right and top <= y < bottom):
            raise TraceError(
                f"the point {x:g},{y:g} is outside the model's crop: of frames of {width} × {height} pixels it "
                f"sees the middle, x from {left:.4g} to {right:.4g} and y from {top:.4g} to {bottom:.4g}."
            )
        column, row = int((x - left) / self.patch_size[0]), int((y - top) / self.patch_size[1])
        return min(row, self.rows - 1), min(column, self.columns - 1)

    def query(self, point: Point, frame: int) -> Query:
        """The token of `point` in frame `frame` of the clip."""
        row, column = self.patch_at(*point)
        token_frame = frame // self.tubelet
        token = (token_frame * self.rows + row) * self.columns + column
        return Query(float(point[0]), float(point[1]), frame, token_frame, row, column, token)


def find_geometry(config: ModelConfig, frame: Size) -> Geometry:
    """The geometry of frames of this size (height, width) under `eval_transform` and the model's tokens."""
    want = config.input.height, config.input.width
    resized = released_cover(frame, want) if config.input.protocol == "released" else cover(frame, want)
    return Geometry(
        frame=frame,
        resized=resized,
        corner=(middle(resized[0] - want[0]), middle(resized[1] - want[1])),
        rows=want[0] // config.patch,
        columns=want[1] // config.patch,
        patch=config.patch,
        tubelet=config.tubelet,
    )


def _sample_around(spec: InputSpec, clock: Clock, frame: int | None) -> tuple[list[int], int]:
    """Frame indices of the clip, and the position of `frame` among them.

    A clip at a stride is moved so that `frame` is in it, as near to its middle as the video allows. If the video is too
    short for that, or its clip covers all of it, the nearest frame of the clip is taken.
    """
    if spec.sampling == "segments":
        whole = as_views(middle_sampler(spec)(clock))[0]
        wanted = whole[len(whole) // 2] if frame is None else frame
        return whole, min(range(len(whole)), key=lambda k: abs(whole[k] - wanted))
    half = spec.frames // 2
    if frame is None:
        return as_views(middle_sampler(spec)(clock))[0], half
    offsets = clip_offsets(spec, clock.fps)
    last = max(0, clock.num_frames - 1 - offsets[-1])
    clips = []
    for k in range(spec.frames):
        start = min(max(frame - offsets[k], 0), last)
        indices = clamp([start + offset for offset in offsets], clock.num_frames)
        clips.append((abs(indices[k] - frame), abs(k - half), k, indices))
    _, _, k, indices = min(clips)
    return indices, k


def _from_video(path: Path, spec: InputSpec, frame: int | None) -> Clip:
    sampler = _AroundFrame(spec, frame, str(path))
    views = ClipReader(spec, sampler=sampler, transforms=()).read(path)
    numbers = [views.numbers[i] for i in views.shown[0]]
    step = max(numbers[-1] - numbers[0], 1) / max(len(numbers) - 1, 1)
    frames, damaged = views.frames[views.shown[0]], views.facts.damaged
    return Clip(path.name, frames, tuple(numbers), sampler.query_index, views.fps / step, damaged=damaged)


class _AroundFrame:
    """The sampler of `_sample_around`; keeps the position of the query frame."""

    query_index = 0

    def __init__(self, spec: InputSpec, frame: int | None, where: str) -> None:
        self.spec, self.frame, self.where = spec, frame, where
        self.is_strided, self.protocol = spec.sampling == "stride", spec.protocol

    def __call__(self, clock: Clock, generator: Generator | None = None, piece: range | None = None) -> list[int]:
        _check_frame(self.frame, clock.num_frames, self.where)
        indices, self.query_index = _sample_around(self.spec, clock, self.frame)
        return indices


def _in_memory(name: str, frames: Tensor, frame: int | None) -> Clip:
    if frames.dtype != torch.uint8 or frames.ndim != 4 or frames.shape[-1] != 3 or frames.shape[0] == 0:
        found = f"{str(frames.dtype).removeprefix('torch.')} {list(frames.shape)}"
        raise TraceError(f"a clip in memory must be uint8 [t H W 3], as videos are decoded; not {found}.")
    _check_frame(frame, len(frames), name)
    return Clip(name, frames, tuple(range(len(frames))), len(frames) // 2 if frame is None else frame)


def _make_motion_clip(motion: MotionAddress, text: str, spec: InputSpec) -> MotionClip:
    number = motion.number
    if number is None:
        raise TraceError(f"{text!r} is not a clip of the motion benchmark: write motion:{motion.level}/3.")
    size = min(spec.height, spec.width)
    shape = {"frames": spec.frames, "stride": spec.stride, "size": size}
    return MotionBenchmark(motion.level, "val", number + 1, **shape)[number]


def _check_frame(frame: int | None, count: int, where: str) -> None:
    if frame is not None and not 0 <= frame < count:
        raise TraceError(f"{where}: there is no frame {frame}; it has {count}, counted from 0 to {count - 1}.")
