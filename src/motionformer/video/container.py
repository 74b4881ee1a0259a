"""Opening a video file with PyAV: safely, within a time limit, and with FFmpeg's real reason when it fails."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import av
import av.logging
from av.container import InputContainer
from av.packet import Packet
from av.stream import Discard
from av.video.stream import VideoStream

from motionformer.errors import VideoError


class Deadline:
    """Counts down from the moment it is made; `None` never ends."""

    def __init__(self, seconds: float | None) -> None:
        self.seconds = seconds
        self.end = None if seconds is None else time.monotonic() + seconds

    def remaining(self) -> float | None:
        """Seconds left, at least a hundredth so that FFmpeg does not take it for "no limit"."""
        return None if self.end is None else max(self.end - time.monotonic(), 0.01)

    def check(self) -> None:
        """Raise once the time is over."""
        if self.end is not None and time.monotonic() > self.end:
            raise VideoError(f"took longer than the time limit of {self.seconds:g} s")


if TYPE_CHECKING:
    VideoPacket = Packet[VideoStream]
else:
    VideoPacket = Packet  # takes no parameters at run time

MAX_PIXELS = 8192 * 8192
"""Of one frame. A larger one is a broken or hostile header."""

CONTAINERS = (
    "mov,mp4,m4a,3gp,3g2,mj2,matroska,webm,avi,mpegts,mpeg,mpegvideo,flv,asf,ogg,ivf,obu,av1,h264,hevc,m4v,mxf,dv,rm,"
    "nut,gif,apng,mjpeg,vc1,wtv,yuv4mpegpipe"
)
"""Formats that hold pictures themselves. Play lists are not among them: they would open other files or addresses, and
neither is the one that takes any text for a terminal's screen."""

OPTIONS = {"protocol_whitelist": "file", "format_whitelist": CONTAINERS, "max_pixels": str(MAX_PIXELS)}


LENIENT = {"max_pixels": str(MAX_PIXELS)}
"""A damaged picture is patched up, as every player does."""

STRICT = {**LENIENT, "err_detect": "crccheck+bitstream+buffer+explode"}
"""A damaged picture is an error."""


def open_container(
    path: Path, deadline: Deadline, num_threads: int, decoding: dict[str, str] = LENIENT
) -> tuple[InputContainer, VideoStream]:
    """The open file and its video stream; other streams are not read."""
    _check_regular_file(path)
    try:
        container = _open_with_av(path, deadline)
    except av.FFmpegError as error:
        raise VideoError(_opening_reason(error, path, deadline), path) from error
    stream = container.streams.best("video")
    if not isinstance(stream, VideoStream):
        kinds = ", ".join(sorted({stream.type for stream in container.streams}))
        container.close()
        raise VideoError("holds no video stream" + (f", only {kinds}" if kinds else ""), path)
    if stream.codec_context is None:
        container.close()
        raise VideoError("holds video of a codec that FFmpeg does not know", path)
    for other in container.streams:
        other.discard = Discard.none if other is stream else Discard.all
    stream.codec_context.thread_count = num_threads
    stream.codec_context.thread_type = "SLICE" if num_threads == 1 else "AUTO"
    stream.codec_context.options = dict(decoding)
    return container, stream


def read_packets(container: InputContainer, stream: VideoStream, deadline: Deadline) -> Iterator[VideoPacket]:
    """The stream's packets from where the container stands; at the end of the file an empty one."""
    try:
        for packet in container.demux(stream):
            deadline.check()
            yield packet
    except IndexError as error:  # PyAV counts streams once, on opening
        raise VideoError("damaged: a stream turns up that the header does not announce") from error


@contextmanager
def wrap_decoder_errors(path: Path) -> Iterator[None]:
    """Turn whatever PyAV or the system raises inside into one `VideoError` that names the file."""
    try:
        yield
    except VideoError as error:
        if error.path is not None:
            raise
        raise VideoError(error.reason, path, frame=error.frame, line=error.line) from error
    except av.FFmpegError as error:
        raise VideoError(describe(error), path) from error
    except (OSError, MemoryError, OverflowError, UnicodeError) as error:
        raise VideoError(str(error) or type(error).__name__, path) from error


def describe(error: av.FFmpegError) -> str:
    """FFmpeg's words for an error, without numbers and file names."""
    if isinstance(error, av.ExitError):
        return "took longer than the time limit"
    return error.strerror or str(error)


def _check_regular_file(path: Path) -> None:
    """Plain words for what FFmpeg would report oddly, or wait for (a pipe)."""
    if not path.exists():
        raise VideoError("there is no such file", path)
    if not path.is_file():
        raise VideoError("is not a regular file", path)
    if path.stat().st_size == 0:
        raise VideoError("the file is empty (0 bytes)", path)


def _open_with_av(path: Path, deadline: Deadline) -> InputContainer:
    # The prefix keeps a colon in a name from being read as a protocol. Names and comments inside files are in any
    # encoding and not needed here.
    return av.open(f"file:{path.absolute()}", options=OPTIONS, metadata_errors="replace", timeout=deadline.remaining())


def _opening_reason(error: av.FFmpegError, path: Path, deadline: Deadline) -> str:
    """FFmpeg's words, with what it logs while it fails to open the file: often the real reason.

    Logging stays off otherwise: it would print to the terminal, and costs time.
    """
    before, skips = av.logging.get_level(), av.logging.get_skip_repeated()
    av.logging.set_level(av.logging.ERROR)
    av.logging.set_skip_repeated(False)  # the second file with the same fault has the same reason
    try:
        with av.logging.Capture() as messages, _open_with_av(path, deadline):
            pass
    except av.FFmpegError:
        pass
    finally:
        av.logging.set_level(before)
        av.logging.set_skip_repeated(skips)
    lines = list(dict.fromkeys(text.strip() for _, _, text in messages if text.strip()))
    if any("not on whitelist" in line for line in lines):
        return "is of a kind that is not read as a video: a single image, a play list, plain text"
    return f"{describe(error)} ({'; '.join(lines[:3])})" if lines else describe(error)
