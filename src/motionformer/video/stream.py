"""Frames one after the other, each decoded once, in constant memory: for videos of any length and for live sources.

Frame i is the one that `Video.read([i])` gives; nothing is indexed or counted, and only times are kept, eight bytes a
frame. So frames cannot be asked for.
"""

import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from fractions import Fraction
from itertools import islice
from os import PathLike
from pathlib import Path
from typing import Any

import av
from av.container import InputContainer
from av.video.frame import VideoFrame
from av.video.stream import VideoStream
from jaxtyping import UInt8
from torch import Tensor

from motionformer.errors import VideoError
from motionformer.video.container import LENIENT, STRICT, Deadline, VideoFile, describe, wrap_decoder_errors
from motionformer.video.images import ImageFolder, ToRGB
from motionformer.video.resample import Resample, by_clock, by_filter, with_regular_times
from motionformer.video.source import StreamClock

_CAMERAS = {"linux": ("v4l2", "/dev/video{}"), "darwin": ("avfoundation", "{}"), "win32": ("dshow", "video={}")}
"""FFmpeg's input format and the name of camera number … on each system."""


@dataclass
class FrameStream:
    """A rate, and an iterator over frames that can be gone through once."""

    fps: float
    frames: Iterator[UInt8[Tensor, "H W 3"]]
    clock: StreamClock
    """Knows when the frames that came out so far appear, and when the last of them ends."""
    damaged_from: int | None = None
    """The first frame that came out after the decoder had reported damage: this one and those after it may show it."""
    start: float = 0.0
    """When the first frame appears, in seconds of the container's time; of streams at a constant rate."""

    def mark_damaged(self, frame: int) -> None:
        """Damage was reported before `frame` came out; what was reported before stays."""
        self.damaged_from = frame if self.damaged_from is None else self.damaged_from

    def is_damaged(self, end: int) -> bool:
        """Whether frames before frame `end` may show damage."""
        return self.damaged_from is not None and self.damaged_from < end


@contextmanager
def stream_video(
    path: str | PathLike[str],
    *,
    time_limit: float | None = 30.0,
    num_threads: int = 1,
    image_rate: float = 30.0,
    square_pixels: bool = True,
) -> Iterator[FrameStream]:
    """A video file or a folder of frames, from its first frame to its last. `time_limit` is for opening it.

    A file that stops decoding half-way raises `VideoError` there, after the frames before it. Damage that can be
    patched up is in `FrameStream.damaged_from`.
    """
    path = Path(path)
    if path.is_dir():
        folder = ImageFolder(path, time_limit=time_limit, fps=image_rate)
        frames = (folder.read([i])[0] for i in range(folder.metadata.num_frames))
        yield FrameStream(image_rate, frames, StreamClock(image_rate))
        return
    with closing(_File(path, time_limit, num_threads)) as file:
        stream = file.opened.stream
        clock = StreamClock(_rate(stream), stream.time_base if file.opened.has_times else None)
        found = FrameStream(clock.fps, iter(()), clock)
        found.frames = _explain(
            path, _upright(_timed(file.decode(found), clock), lambda: file.opened.stream, square_pixels)
        )
        yield found


@contextmanager
def stream_at_rate(
    path: str | PathLike[str],
    rate: int,
    how: Resample,
    *,
    seconds: float | None = None,
    time_limit: float | None = 30.0,
    image_rate: float = 30.0,
) -> Iterator[FrameStream]:
    """A video at `rate` frames per second (see `video.resample`), pixels as stored. A frame that is shown again is the
    same tensor. `seconds` is how much of the video is read.

    A folder of frames has no time stamps for FFmpeg's filter: it is read by the clock.
    """
    path = Path(path)
    if path.is_dir():
        if how == "filter":
            raise VideoError("a folder of frames has no time stamps for FFmpeg's filter: use the clock", path)
        with stream_video(path, time_limit=time_limit, image_rate=image_rate) as folder:
            timed = ((i / image_rate, frame) for i, frame in enumerate(folder.frames))
            yield constant_stream(rate, by_clock(timed, rate, seconds))
        return
    with closing(_File(path, time_limit, num_threads=1)) as file:
        source, found = constant_stream(rate), constant_stream(rate)
        frames = file.decode(source)
        if not file.opened.has_times:
            frames = with_regular_times(frames, Fraction(_rate(file.opened.stream)).limit_denominator(100_000))
        if how == "filter":
            picked = by_filter(frames, rate, seconds)
        else:
            picked = by_clock(((_seconds(frame), frame) for frame in frames), rate, seconds)
        found.frames = _explain(path, _convert(picked, found, source, by_stamps=how == "filter"))
        yield found


def constant_stream(rate: int, frames: Iterable[Tensor] = ()) -> FrameStream:
    """Frames of which every one is shown as long as the others."""
    return FrameStream(float(rate), iter(frames), StreamClock(float(rate)))


def _convert(
    picked: Iterator[VideoFrame], found: FrameStream, source: FrameStream, by_stamps: bool
) -> Iterator[UInt8[Tensor, "H W 3"]]:
    """Each frame once, however often it is shown. What was decoded before damage was reported may come out after it."""
    held: VideoFrame | None = None  # kept, so that its memory is not another frame's
    for count, frame in enumerate(picked):
        if held is None:
            to_rgb = ToRGB(frame)
            found.start = _seconds(frame) if by_stamps else 0.0
        if source.damaged_from is not None:
            found.mark_damaged(count)
        if frame.is_corrupt:
            raise VideoError("is damaged", frame=count)
        if held is None or frame.planes[0].buffer_ptr != held.planes[0].buffer_ptr:
            shown = to_rgb.upright(to_rgb(frame)[None])[0].clone()
        held = frame
        yield shown
    if held is None:
        raise VideoError("holds a video stream without a single picture")


def _seconds(frame: VideoFrame) -> float:
    if frame.time is None:
        raise VideoError("has frames without time stamps: it cannot be read at a constant rate")
    return float(frame.time)


class _File:
    """An open file, decoded strictly until that fails; then opened again and patched up from the same frame on."""

    def __init__(self, path: Path, time_limit: float | None, num_threads: int) -> None:
        self.path, self.time_limit, self.num_threads = path, time_limit, num_threads
        self._open(STRICT)

    def decode(self, found: FrameStream) -> Iterator[VideoFrame]:
        count = 0

        def mark() -> None:
            found.mark_damaged(count)

        try:
            for frame in self.opened.frames(Deadline(None), mark):
                yield frame
                count += 1
        except av.FFmpegError as error:
            if isinstance(error, av.ExitError):
                raise
        else:
            return
        found.mark_damaged(count)
        self.close()
        self._open(LENIENT)
        yield from islice(self.opened.frames(Deadline(None)), count, None)

    def close(self) -> None:
        self.opened.close()

    def _open(self, decoding: dict[str, str]) -> None:
        self.opened = VideoFile(self.path, Deadline(self.time_limit), self.num_threads, decoding)


@contextmanager
def stream_live(
    source: str | int,
    *,
    format: str | None = None,
    options: Mapping[str, str] | None = None,
    time_limit: float | None = 30.0,
    square_pixels: bool = True,
) -> Iterator[FrameStream]:
    """A camera by number, a device (`/dev/video0`) or an address (`rtsp://…`), opened by FFmpeg as it stands.

    `time_limit` bounds opening it, and each wait for more of it, in seconds. Frames may be read by another thread;
    if it still waits for one at the end, it closes the source when that is over.

    Unlike a file of unknown origin, what is named here may open the network: only use it with what you mean to open.
    """
    if isinstance(source, int) or source.isdecimal():
        known, name = _CAMERAS.get(sys.platform, _CAMERAS["linux"])
        format, source = format or known, name.format(source)
    elif source.startswith("/dev/video"):
        format = format or "v4l2"
    try:
        container: Any = av.open(
            source, format=format, options=dict(options or {}), metadata_errors="replace", timeout=time_limit
        )
    except av.FFmpegError as error:
        raise VideoError(f"cannot be opened as a live source ({describe(error)})", source) from error
    with closing(_Live(container)) as live:
        stream = _only_video(container, source)
        clock = StreamClock(_rate(stream))
        upright = _upright(live.decode(stream), lambda: stream, square_pixels)
        yield FrameStream(clock.fps, _explain(Path(source), upright), clock)


class _Live:
    """An open source that one thread reads and another closes, never both at once: FFmpeg would crash."""

    def __init__(self, container: InputContainer) -> None:
        self.container = container
        self.is_over = False
        self.in_use = threading.Lock()

    def decode(self, stream: VideoStream) -> Iterator[VideoFrame]:
        frames = iter(self.container.decode(stream))
        try:
            while not self.is_over:
                with self.in_use:
                    frame = None if self.is_over else next(frames, None)
                if frame is None or self.is_over:
                    return
                yield frame
        finally:
            if self.is_over:
                self.close()

    def close(self) -> None:
        """Now, or by the reader when it is done waiting."""
        self.is_over = True
        if self.in_use.acquire(blocking=False):
            try:
                self.container.close()
            finally:
                self.in_use.release()


def _only_video(container: InputContainer, source: str) -> VideoStream:
    stream = container.streams.best("video")
    if not isinstance(stream, VideoStream):
        raise VideoError("holds no video stream", source)
    return stream


def _rate(stream: VideoStream) -> float:
    rate = stream.average_rate or stream.guessed_rate
    return float(rate) if rate and rate > 0 else 30.0


def _timed(frames: Iterator[VideoFrame], clock: StreamClock) -> Iterator[VideoFrame]:
    """The same frames, each as soon as the next one tells when it ends."""
    held: VideoFrame | None = None
    try:
        for frame in frames:
            clock.add(frame.pts)
            if held is not None:
                yield held
            held = frame
    except (av.FFmpegError, VideoError):
        if held is not None:
            yield held
        raise
    if held is not None:
        yield held


def _explain(path: Path, frames: Iterator[Tensor]) -> Iterator[Tensor]:
    with wrap_decoder_errors(path):
        yield from frames


def _upright(frames: Iterator[VideoFrame], stream: Callable[[], VideoStream], square_pixels: bool) -> Iterator[Tensor]:
    to_rgb: ToRGB | None = None
    for i, frame in enumerate(frames):
        if to_rgb is None:  # a stream may change its size half-way; its video does not
            to_rgb = ToRGB(frame, stream().sample_aspect_ratio if square_pixels else None)
        if frame.is_corrupt:
            raise VideoError("is damaged", frame=i)
        stored = to_rgb(frame)[None]
        upright = to_rgb.upright(stored)[0]
        yield upright.clone() if upright.data_ptr() == stored.data_ptr() else upright
    if to_rgb is None:
        raise VideoError("holds a video stream without a single picture")
