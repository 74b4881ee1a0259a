"""What a trace looks at: a video file, frames in memory, or a clip of the motion benchmark → the frames of one clip."""

from dataclasses import dataclass, replace
from os import PathLike
from pathlib import Path

import torch
from jaxtyping import Float32, UInt8
from torch import Generator, Tensor

from motionformer.data import ClipReader, middle_sampler
from motionformer.data.clips import as_views
from motionformer.data.motion import CLASSES, MotionBenchmark, MotionClip
from motionformer.data.source import MotionAddress, parse_motion
from motionformer.errors import TraceError
from motionformer.models import InputSpec, ModelConfig
from motionformer.video import Clock
from motionformer.video.sample import clamp, clip_offsets

Source = str | PathLike[str] | MotionClip | Tensor


@dataclass(frozen=True)
class Clip:
    """The frames that a model is shown, as they were decoded."""

    name: str
    frames: UInt8[Tensor, "t H W 3"]
    numbers: tuple[int, ...]
    """Which frame of the video each one is."""
    asked: int
    """Which one of them was asked about."""
    fps: float = 8.0
    """At which the clip plays at its own speed."""
    truth: Float32[Tensor, "t 2"] | None = None
    """Where the object is, (x, y) in pixels, if that is known."""
    damaged: bool | None = False
    """Whether the decoder reported damage in what was read; None where it does not report any."""


def open_clip(source: Source, config: ModelConfig, frame: int | None = None) -> Clip:
    """The clip of `source` that the model would be shown to answer about `frame`.

    Of a video file or a folder of frames, `frame` is a frame of the *video*, and the clip is the model's own sampling
    placed around it; without one, the middle clip and its middle frame. Frames in memory are the clip as it is, and
    `frame` is one of them; so are clips of the motion benchmark, by object or as `motion:LEVEL/NUMBER`.
    """
    if isinstance(source, Tensor):
        clip = _in_memory("clip", source, frame)
    elif isinstance(source, MotionClip):
        clip = replace(_in_memory("motion clip", source.frames, frame), truth=source.path)
    elif motion := parse_motion(str(source)):
        made = _make(motion, str(source), config.input)
        clip = replace(_in_memory(f"{source} ({CLASSES[made.label]})", made.frames, frame), truth=made.path)
    else:
        clip = _from_video(Path(source), config.input, frame)
    if len(clip.frames) % config.tubelet:
        raise TraceError(
            f"{clip.name}: {len(clip.frames)} frames do not divide into tokens of {config.tubelet} frames; "
            f"the model was made for {config.input.frames}."
        )
    return clip


def place_clip(spec: InputSpec, clock: Clock, frame: int | None) -> tuple[list[int], int]:
    """The frames of the video to show, and the position among them of the one asked about.

    A clip at a stride is moved so that `frame` is one of its frames, as near to its middle as the video allows. Where
    the video is too short for that, or its clip covers all of it, the nearest of the frames shown is meant.
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
    sampler = _ClipAround(spec, frame, str(path))
    views = ClipReader(spec, sampler=sampler, transforms=()).read(path)
    numbers = [views.numbers[i] for i in views.shown[0]]
    step = max(numbers[-1] - numbers[0], 1) / max(len(numbers) - 1, 1)
    frames, damaged = views.frames[views.shown[0]], views.facts.damaged
    return Clip(path.name, frames, tuple(numbers), sampler.asked, views.fps / step, damaged=damaged)


class _ClipAround:
    """Samples the clip of `place_clip`, and remembers the position of the frame asked about."""

    asked = 0

    def __init__(self, spec: InputSpec, frame: int | None, where: str) -> None:
        self.spec, self.frame, self.where = spec, frame, where
        self.is_strided, self.protocol = spec.sampling == "stride", spec.protocol

    def __call__(self, clock: Clock, generator: Generator | None = None, piece: range | None = None) -> list[int]:
        _check_frame(self.frame, clock.num_frames, self.where)
        indices, self.asked = place_clip(self.spec, clock, self.frame)
        return indices


def _in_memory(name: str, frames: Tensor, frame: int | None) -> Clip:
    if frames.dtype != torch.uint8 or frames.ndim != 4 or frames.shape[-1] != 3 or frames.shape[0] == 0:
        raise TraceError(f"a clip in memory is bytes [t H W 3], as videos are decoded; not {_describe(frames)}.")
    _check_frame(frame, len(frames), name)
    return Clip(name, frames, tuple(range(len(frames))), len(frames) // 2 if frame is None else frame)


def _make(motion: MotionAddress, text: str, spec: InputSpec) -> MotionClip:
    number = motion.number
    if number is None:
        raise TraceError(f"{text!r} is no clip of the motion benchmark: write motion:{motion.level}/3.")
    size = min(spec.height, spec.width)
    shape = {"frames": spec.frames, "stride": spec.stride, "size": size}
    return MotionBenchmark(motion.level, "val", number + 1, **shape)[number]


def _check_frame(frame: int | None, count: int, where: str) -> None:
    if frame is not None and not 0 <= frame < count:
        raise TraceError(f"{where}: there is no frame {frame}; it has {count}, counted from 0 to {count - 1}.")


def _describe(frames: Tensor) -> str:
    return f"{str(frames.dtype).removeprefix('torch.')} {list(frames.shape)}"
