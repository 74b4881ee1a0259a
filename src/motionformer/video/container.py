"""A video file opened with PyAV: safely, within a time limit, and with FFmpeg's real reason when it fails; its packets,
its frames, and an index that finds chosen frames by seeking.

Reading packets without decoding them is cheap (milliseconds for ten seconds of video) and tells every frame's
presentation time. That is enough to seek exactly (`FrameIndex.frames`), as long as those times are real.
"""

import errno
import time
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain, groupby
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple

import av
import av.logging
from av.container import InputContainer
from av.packet import Packet
from av.stream import Discard
from av.video.frame import VideoFrame
from av.video.stream import VideoStream

from motionformer.errors import VideoError
from motionformer.logging import show_count

if TYPE_CHECKING:
    _VideoPacket = Packet[VideoStream]
else:
    _VideoPacket = Packet  # takes no parameters at run time

MAX_PIXELS = 8192 * 8192
"""Of one frame. A larger one is a broken or hostile header."""
_TOO_LARGE = f"larger than {MAX_PIXELS // 1_000_000} megapixels"
LENIENT = {"max_pixels": str(MAX_PIXELS)}
"""A damaged picture is patched up, as every player does."""
STRICT = {**LENIENT, "err_detect": "crccheck+bitstream+buffer+explode"}
"""A damaged picture is an error."""
_CONTAINERS = (
    "mov,mp4,m4a,3gp,3g2,mj2,matroska,webm,avi,mpegts,mpeg,mpegvideo,flv,asf,ogg,ivf,obu,av1,h264,hevc,m4v,mxf,dv,rm,"
    "nut,gif,apng,mjpeg,vc1,wtv,yuv4mpegpipe"
)
"""Formats that hold pictures themselves. Play lists are not among them: they would open other files or addresses, and
neither is the one that takes any text for a terminal's screen."""
SOUND = f"{_CONTAINERS},wav,w64,flac,mp3,aac,aiff,caf,au,wv"
"""The same, and formats of sound alone."""
_WITHOUT_TIMES = {"avi", "h264", "hevc", "m4v", "mpegvideo", "mjpeg", "obu", "vc1", "yuv4mpegpipe", "rm"}
"""FFmpeg's names of containers that store no presentation time, or not for every frame."""
_SMALLEST_PICTURE = 20
"""Bytes. Packets below it can be placeholders ("nothing new") that decode to no frame."""
_LEAVES_OUT_EXACTLY = {"h264", "mpeg4", "mpeg1video", "mpeg2video"}
"""Codecs whose pictures tell whether another leans on them, so that leaving out the rest changes no pixel."""


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


class VideoFile:
    """An open file and its video stream; other streams are not read."""

    def __init__(
        self, path: Path, deadline: Deadline, num_threads: int = 1, decoding: dict[str, str] = LENIENT
    ) -> None:
        self.container = open_container(path, deadline)
        stream = self.container.streams.best("video")
        if not isinstance(stream, VideoStream):
            kinds = ", ".join(sorted({stream.type for stream in self.container.streams}))
            self.close()
            raise VideoError("holds no video stream" + (f", only {kinds}" if kinds else ""), path)
        if stream.codec_context is None:
            self.close()
            raise VideoError("holds video of a codec that FFmpeg does not know", path)
        width, height = stream.codec_context.width, stream.codec_context.height
        if width * height > MAX_PIXELS:
            self.close()
            raise VideoError(f"its frames are {width} × {height} pixels: {_TOO_LARGE}", path)
        for other in self.container.streams:
            other.discard = Discard.none if other is stream else Discard.all
        stream.codec_context.thread_count = num_threads
        stream.codec_context.thread_type = "SLICE" if num_threads == 1 else "AUTO"
        stream.codec_context.options = dict(decoding)
        self.stream = stream

    def close(self) -> None:
        self.container.close()

    @property
    def format(self) -> str:
        """FFmpeg's name of the container."""
        return self.container.format.name

    @property
    def has_times(self) -> bool:
        """Whether frames come out with the time of their own packet.

        AVI and bare streams store none: FFmpeg counts packets, which is wrong once frames are stored out of order
        (B-frames).
        """
        return self.format not in _WITHOUT_TIMES or self.stream.codec_context.reorder_depth == 0

    def packets(self, deadline: Deadline) -> Iterator[_VideoPacket]:
        """The stream's packets from where the container stands; at the end of the file an empty one."""
        try:
            for packet in self.container.demux(self.stream):
                deadline.check()
                yield packet
        except IndexError as error:  # PyAV counts streams once, on opening
            raise VideoError("damaged: a stream turns up that the header does not announce") from error

    def frames(self, deadline: Deadline, on_corrupt: Callable[[], None] = lambda: None) -> Iterator[VideoFrame]:
        """Every frame of a freshly opened file, in the order shown; `on_corrupt` is called for corrupt packets."""
        for packet in self.packets(deadline):
            if packet.is_corrupt:
                on_corrupt()
            yield from packet.decode()

    def scan(self, deadline: Deadline) -> "list[_Stamp]":
        """All packets in decoding order, none decoded; an error for a file that was cut short."""
        stamps: list[_Stamp] = []
        damage: str | None = None
        try:
            for packet in self.packets(deadline):
                if packet.size:
                    stamps.append(_Stamp(packet.pts, packet.dts, packet.is_keyframe, packet.is_discard, packet.size))
                if packet.is_corrupt:
                    damage = "packet marked as corrupt"
        except av.InvalidDataError as error:
            damage = describe(error)
        if self._is_cut_short(len(stamps)):
            damage = damage or "the file ends before its frames do"
        if damage:
            announced = f"announces {show_count(self.stream.frames, 'frame')} and " if self.stream.frames else ""
            raise VideoError(f"is cut short or damaged: {announced}has {len(stamps)} readable ones ({damage})")
        if not stamps:
            raise VideoError("holds a video stream without a single picture")
        return stamps

    def _is_cut_short(self, num_packets: int) -> bool:
        """Whether the container's own list of pictures goes beyond the end of the file.

        Fewer packets than announced is no proof in itself: edit lists of MP4 files leave pictures out on purpose.
        """
        missing = self.stream.frames - num_packets
        if missing <= 0:
            return False
        if self.format == "avi":  # its list stands at the end, so a cut file has none; one too many is common
            return missing > 1
        return any(entry.pos + entry.size > self.container.size for entry in self.stream.index_entries)


class _Stamp(NamedTuple):
    """What is kept of one packet, in decoding order. A tuple because there are as many as frames."""

    time: int | None
    decode_time: int | None
    is_key: bool
    is_discarded: bool
    size: int


class UnreliableTimesError(Exception):
    """A frame did not come out under the time its packet announced: only counting tells frames apart."""


@dataclass(frozen=True)
class FrameIndex:
    """Presentation times of all frames, and the packets that hold them."""

    times: list[int]
    """Of the frames, ascending: frame i is shown at `times[i]`."""
    position: dict[int, int]
    """Time of a packet → its position in decoding order."""
    decode_time: list[int | None]
    """When the packet at each position is due at the decoder; never after it is shown."""
    start: list[int]
    """For frame i, the time of the key packet at which decoding must begin."""

    @classmethod
    def of(cls, stamps: Sequence[_Stamp], *, has_times: bool = True, format: str = "") -> "FrameIndex | None":
        """The index, or `None` where only decoding tells the frames apart.

        Packets lack times or share them; or the container stores none, and packets are placeholders.
        """
        times = [stamp.time for stamp in stamps]
        known = [time for time in times if time is not None]
        if not has_times or len(known) < len(times) or len(set(known)) < len(known):
            return None
        if format in _WITHOUT_TIMES and any(stamp.size < _SMALLEST_PICTURE for stamp in stamps):
            return None
        position = {time: k for k, time in enumerate(known)}
        shown = sorted(time for time, stamp in zip(known, stamps, strict=True) if not stamp.is_discarded)
        keys = [k for k, stamp in enumerate(stamps) if stamp.is_key or k == 0]
        start = [known[_start_position(keys, known, position[time])] for time in shown]
        return cls(shown, position, [stamp.decode_time for stamp in stamps], start)

    def frames(
        self, file: VideoFile, wanted: Sequence[int], deadline: Deadline, run_in: bool = False
    ) -> Iterator[tuple[int | None, VideoFrame]]:
        """The wanted frames (ascending, no repeats): from each key frame needed, decode up to the last one wanted.

        Frames that are decoded on the way to a wanted one, which may lean on them, come out with `None`. `run_in`
        begins a key frame earlier. Pictures of an "open" group are shown before its key frame and lean on the group
        before; without it, strict decoding fails on them, and on what refers to them.
        """
        for start, group in groupby(wanted, key=self.start.__getitem__):
            frame_at = {self.times[i]: i for i in group}
            for frame in self._decode_group(file, start, set(frame_at), deadline, run_in):
                if frame.pts is not None and frame.pts >= start:  # those before lean on pictures that were not decoded
                    yield frame_at.pop(frame.pts, None), frame
            if frame_at:
                raise UnreliableTimesError

    def _decode_group(
        self, file: VideoFile, start: int, wanted: set[int], deadline: Deadline, run_in: bool
    ) -> Iterator[VideoFrame]:
        """Frames from the key packet at time `start`, or the one before, up to the last that holds a wanted one.

        The decoder is then drained instead of being fed until it lets go of the frame by itself.
        """
        context = file.stream.codec_context
        unwanted: Literal["NONREF", "DEFAULT"] = "NONREF" if context.name in _LEAVES_OUT_EXACTLY else "DEFAULT"
        last = max(self.position[time] for time in wanted)
        first = self._seek_packet(file, self._key_before(start) if run_in else start, deadline)
        for packet in chain([first], file.packets(deadline)):
            if not packet.size:
                continue
            context.skip_frame = "DEFAULT" if packet.pts in wanted else unwanted
            try:
                yield from packet.decode()
            except av.InvalidDataError:
                if packet.pts is None or packet.pts >= start:  # no wanted frame leans on those before
                    raise
            if self._position_of(packet) >= last:
                break
        context.skip_frame = "DEFAULT"
        yield from file.stream.decode(None)

    def _key_before(self, start: int) -> int:
        """The time of the key packet before the one at time `start`; the first has itself."""
        keys = sorted(set(self.start), key=self.position.__getitem__)
        return keys[max(0, keys.index(start) - 1)]

    def _seek_packet(self, file: VideoFile, start: int, deadline: Deadline) -> _VideoPacket:
        """The packet at time `start`, with the container standing right behind it.

        Some containers look for the time of showing, some for that of decoding, and some only get near: land at or
        before the packet, then step over what lies between.
        """
        first = self.position[start]
        for target in (start, self.decode_time[first]):
            if target is None:
                continue
            file.container.seek(target, stream=file.stream)
            for packet in file.packets(deadline):
                if not packet.size or self._position_of(packet) > first:
                    break
                if packet.pts == start:
                    return packet
        raise UnreliableTimesError

    def _position_of(self, packet: _VideoPacket) -> int:
        position = None if packet.pts is None else self.position.get(packet.pts)
        if position is None:
            raise UnreliableTimesError
        return position


def _start_position(keys: Sequence[int], times: Sequence[int], position: int) -> int:
    """The last key packet at or before `position` that is not shown later than the packet there.

    Frames shown before a key frame but stored after it ("open" groups of pictures) lean on the group before.
    """
    k = bisect_right(keys, position) - 1
    while k > 0 and times[keys[k]] > times[position]:
        k -= 1
    return keys[k]


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
    if error.errno == errno.EINVAL:  # FFmpeg checks the size of frames before all else
        return f"the decoder cannot read it: its frames are {_TOO_LARGE}, or its header is broken"
    return error.strerror or str(error)


def open_container(path: Path, deadline: Deadline, formats: str = _CONTAINERS) -> InputContainer:
    """A file of one of the `formats`, opened; a `VideoError` with FFmpeg's real reason where it cannot be."""
    _check_regular_file(path)
    try:
        return _open_with_av(path, deadline, formats)
    except av.FFmpegError as error:
        raise VideoError(_opening_reason(error, path, deadline, formats), path) from error


def _check_regular_file(path: Path) -> None:
    """Plain words for what FFmpeg would report oddly, or wait for (a pipe)."""
    if not path.exists():
        raise VideoError("there is no such file", path)
    if not path.is_file():
        raise VideoError("is not a regular file", path)
    if path.stat().st_size == 0:
        raise VideoError("the file is empty (0 bytes)", path)


def _open_with_av(path: Path, deadline: Deadline, formats: str) -> InputContainer:
    # The prefix keeps a colon in a name from being read as a protocol. Names and comments inside files are in any
    # encoding and not needed here.
    options = {"protocol_whitelist": "file", "format_whitelist": formats, "max_pixels": str(MAX_PIXELS)}
    return av.open(f"file:{path.absolute()}", options=options, metadata_errors="replace", timeout=deadline.remaining())


def _opening_reason(error: av.FFmpegError, path: Path, deadline: Deadline, formats: str) -> str:
    """FFmpeg's words, with what it logs while it fails to open the file: often the real reason.

    Logging stays off otherwise: it would print to the terminal, and costs time.
    """
    before, skips = av.logging.get_level(), av.logging.get_skip_repeated()
    av.logging.set_level(av.logging.ERROR)
    av.logging.set_skip_repeated(False)  # the second file with the same fault has the same reason
    try:
        with av.logging.Capture() as messages, _open_with_av(path, deadline, formats):
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
