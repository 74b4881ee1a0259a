"""START HERE: a path becomes an open video, whatever is stored there. Files are read by PyAV.

Frame i is the i-th frame shown among those that really decode. Files whose packets carry real presentation times are
read by seeking (`FrameIndex.frames`); the rest are counted once by decoding them and read from the start. Which of the
two is decided when the file is opened, or the first time that a file turns out to have wrong times.

Decoding is strict until it fails: then the file is `damaged`, and read as every player does, patched up.
"""

import dataclasses
import warnings
from collections.abc import Iterator, Sequence
from fractions import Fraction
from os import PathLike
from pathlib import Path
from typing import Any

import av
import torch
from av.video.frame import VideoFrame
from jaxtyping import UInt8
from torch import Tensor

from motionformer.errors import VideoError
from motionformer.video.container import (
    LENIENT,
    STRICT,
    Deadline,
    FrameIndex,
    UnreliableTimesError,
    VideoFile,
    describe,
    wrap_decoder_errors,
)
from motionformer.video.images import ImageFolder, ToRGB
from motionformer.video.source import Clock, Header, Video, VideoMetadata, measure_timing


def open_video(
    path: str | PathLike[str],
    *,
    time_limit: float | None = 30.0,
    num_threads: int = 1,
    square_pixels: bool = True,
    image_rate: float = 30.0,
    decoder: str = "pyav",
) -> Video:
    """Open a video file, or a folder of numbered images.

    Args:
        path: of the file or folder.
        time_limit: seconds for this call and for each later `read`; None for no limit.
        num_threads: of the decoder; one is best where a loader has workers.
        square_pixels: stretch frames whose pixels are not square. Most published code does not.
        image_rate: frames per second of a folder of images.
        decoder: deprecated; files are read by PyAV.

    Returns:
        An open `Video`: close it, or use it in a `with`.

    Raises:
        VideoError: it is missing, empty, damaged or not a video; with the decoder's own reason.

    Example:
        ```python
        with open_video("clip.mp4") as video:
            frames = video.read([0, 8, 16])  # uint8 [3 H W 3], RGB
            print(video.metadata.num_frames, video.metadata.fps)
        ```
    """
    check_decoder(decoder)
    path = Path(path)
    try:
        if path.is_dir():
            return ImageFolder(path, time_limit=time_limit, fps=image_rate)
        return _FileVideo(path, time_limit=time_limit, num_threads=num_threads, square_pixels=square_pixels)
    except PermissionError as error:  # of a folder on the way, or of a folder of frames; a file's own is the decoder's
        raise VideoError(f"cannot be opened: {error.strerror}", path) from error


def read_frames(path: str | PathLike[str], indices: Sequence[int], **options: Any) -> UInt8[Tensor, "t H W 3"]:
    """Read frames of a video by number, in the order asked for: `open_video` and one `read`.

    Args:
        path: of a video file or a folder of numbered images.
        indices: from 0; they may repeat.
        **options: of `open_video`.

    Raises:
        VideoError: the video cannot be read, or has no such frame.

    Example:
        ```python
        first, last = read_frames("clip.mp4", [0, 119])
        ```
    """
    with open_video(path, **options) as video:
        return video.read(indices)


def check_decoder(decoder: str) -> None:
    """Warn of a decoder that there was in 0.1. Raises `ValueError` for one that there never was."""
    if decoder == "torchcodec":
        text = "the decoder 'torchcodec' was removed: videos are read by PyAV, with the same frames; omit `decoder`."
        warnings.warn(text, FutureWarning, stacklevel=3)
    elif decoder != "pyav":
        raise ValueError(f"there is no decoder {decoder!r}; videos are read by 'pyav'.")


class _FileVideo(Video):
    """A video file. `index` is `None` for a file whose frames have to be counted."""

    index: FrameIndex | None

    def __init__(
        self, path: Path, *, time_limit: float | None = 30.0, num_threads: int = 1, square_pixels: bool = True
    ) -> None:
        self.path = path
        self.time_limit = time_limit
        self.num_threads = num_threads
        self.decoding, self.run_in = STRICT, False
        deadline = Deadline(time_limit)
        self.file = VideoFile(path, deadline, num_threads, self.decoding)
        try:
            with wrap_decoder_errors(path):
                self._inspect(deadline, square_pixels)
        except VideoError:
            self.close()
            raise

    def read(self, indices: Sequence[int]) -> UInt8[Tensor, "t H W 3"]:
        deadline = Deadline(self.time_limit)
        with wrap_decoder_errors(self.path):
            try:
                stored = self._read_stored(self._checked(indices), deadline)
            except UnreliableTimesError:
                self.index = None
                self._recount(deadline)
                stored = self._read_stored(self._checked(indices), deadline)
            return self.to_rgb.upright(stored)

    def check(self) -> VideoMetadata:
        deadline = Deadline(self.time_limit)
        with wrap_decoder_errors(self.path):
            try:
                damaged = self._count(deadline, STRICT)
            finally:
                self._reopen(Deadline(self.time_limit))
            if damaged is not None:
                raise VideoError("is damaged", frame=damaged)
        return self.metadata

    @property
    def clock(self) -> Clock:
        facts = self.metadata
        if self.index is None or not facts.variable_rate:
            return Clock(facts.num_frames, facts.fps, header=self.header)
        tick, first = self.file.stream.time_base or Fraction(1), self.index.times[0]
        times = [(time - first) * tick.numerator / tick.denominator for time in self.index.times]
        return Clock(facts.num_frames, facts.fps, times, self.header)

    @property
    def header(self) -> Header:
        """As the container announces it. Frames whose own time stamps cannot be trusted get regular ones."""
        count, duration = self.file.stream.frames, self.file.stream.duration
        if self.index is not None:
            stamps: Sequence[int] = self.index.times
        else:
            tick = duration / count if count and duration else 1.0
            stamps = [round(i * tick) for i in range(self.metadata.num_frames)]
        return Header(stamps, count, duration, float(self.file.stream.average_rate or self.metadata.fps))

    def close(self) -> None:
        self.file.close()

    def _inspect(self, deadline: Deadline, square_pixels: bool) -> None:
        """Settle how frames are found, and what they look like, from the packets and the first frame."""
        stamps = self.file.scan(deadline)
        self.index = FrameIndex.of(stamps, has_times=self.file.has_times, format=self.file.format)
        try:
            first = next(iter(self._frames([0], deadline)))[1]
        except (UnreliableTimesError, StopIteration):
            self.index = None
            first = next(iter(self._frames([0], deadline)))[1]
        # a stream may change its size half-way; its video does not
        self.to_rgb = ToRGB(first, self.file.stream.sample_aspect_ratio if square_pixels else None)
        height, width = self.to_rgb.size
        times = [0] if self.index is None else self.index.times
        rate = self.file.stream.average_rate or self.file.stream.guessed_rate
        timing = measure_timing(times, self.file.stream.time_base or Fraction(1), rate)
        self.metadata = VideoMetadata(
            num_frames=len(times),
            fps=timing.fps,
            duration=timing.duration,
            height=height,
            width=width,
            codec=self.file.stream.codec_context.name,
            rotation=self.to_rgb.orientation.rotation,
            variable_rate=timing.variable_rate,
            exact_count=False,
        )
        # an AVI may announce a frame too many; or a damaged one is left out, and those after it are off by one
        if self.index is None or (self.file.format == "avi" and self.file.stream.frames > len(stamps)):
            self._recount(deadline)

    def _recount(self, deadline: Deadline) -> None:
        """Settle how many frames there are: with a damaged one among them, their number is part of the damage."""
        try:
            if self._count(deadline, self.decoding) is not None:
                self.damaged = True
        except VideoError as error:
            if self.decoding is LENIENT or error.frame is None:  # not of a frame, such as the time limit
                raise
            self.decoding, self.damaged = LENIENT, True
            self._count(deadline, LENIENT)

    def _count(self, deadline: Deadline, decoding: dict[str, str]) -> int | None:
        """Decode every frame; the first damaged one comes out.

        Frames are found by counting from now on if their number or times are not as the packets announced.
        """
        self._reopen(deadline, decoding)
        times: list[int | None] = []
        damaged: int | None = None
        try:
            for frame in self.file.frames(deadline):
                damaged = len(times) if frame.is_corrupt and damaged is None else damaged
                times.append(frame.pts)
        except av.InvalidDataError as error:
            raise VideoError(describe(error), frame=len(times)) from error
        if self.index is not None and times != self.index.times:
            self.index = None
        self.metadata = dataclasses.replace(
            self.metadata, num_frames=len(times), duration=len(times) / self.metadata.fps, exact_count=True
        )
        return damaged

    def _frames(self, wanted: Sequence[int], deadline: Deadline) -> Iterator[tuple[int, VideoFrame]]:
        """The wanted frames (ascending, no repeats) as stored."""
        left = list(wanted)
        try:
            for i, frame in self._decode(wanted, deadline):
                if frame.is_corrupt:  # also one that is not wanted: others may lean on it
                    self.damaged = True
                if i is not None:
                    left.remove(i)
                    yield i, frame
            return
        except av.FFmpegError as error:
            if self.decoding is LENIENT or isinstance(error, av.ExitError):
                raise
        if self.index is not None and not self.run_in:
            self.run_in = True
        else:
            self.decoding, self.run_in, self.damaged = LENIENT, False, True
            self._reopen(deadline)
        yield from self._frames(left, deadline)

    def _decode(self, wanted: Sequence[int], deadline: Deadline) -> Iterator[tuple[int | None, VideoFrame]]:
        """Frames up to the last one wanted, with the number of those that are."""
        if self.index is not None:
            yield from self.index.frames(self.file, wanted, deadline, self.run_in)
            return
        self._reopen(deadline)
        remaining = iter(wanted)
        target = next(remaining, None)
        for i, frame in enumerate(self.file.frames(deadline)):
            yield (i if i == target else None), frame
            if i == target:
                target = next(remaining, None)
            if target is None:
                return
        raise VideoError("ends before this frame", frame=target)

    def _read_stored(self, indices: Sequence[int], deadline: Deadline) -> UInt8[Tensor, "t h w 3"]:
        """The frames as RGB, before they are made upright."""
        positions: dict[int, list[int]] = {}
        for position, i in enumerate(indices):
            positions.setdefault(i, []).append(position)
        pixels = torch.empty(len(indices), self.to_rgb.height, self.to_rgb.width, 3, dtype=torch.uint8)
        for i, frame in self._frames(sorted(positions), deadline):
            if frame.is_corrupt:
                raise VideoError("is damaged", frame=i)
            rgb = self.to_rgb(frame)
            for position in positions[i]:  # one by one: assigning to a list of indices is ten times slower
                pixels[position] = rgb
        return pixels

    def _reopen(self, deadline: Deadline, decoding: dict[str, str] | None = None) -> None:
        """Start over: the one way back to the first frame that works for every file."""
        self.close()
        self.file = VideoFile(self.path, deadline, self.num_threads, decoding or self.decoding)
