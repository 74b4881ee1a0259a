"""From packets to frames: an index of presentation times, and two ways to reach chosen frames with it or without.

Reading packets without decoding them is cheap (milliseconds for ten seconds of video) and tells every frame's
presentation time. That is enough to seek exactly (`frames_by_time`), as long as those times are real: `index_packets`
tells when not. Otherwise frames are counted from the start (`frames_by_order`). Both yield `(i, frame)` in ascending
order of time for the frames wanted, and decode as little as they can; frames that are decoded on the way to a wanted
one, which may lean on them, come out with `None`.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Literal, NamedTuple

import av
from av.container import InputContainer
from av.video.frame import VideoFrame
from av.video.stream import VideoStream

from motionformer.errors import VideoError
from motionformer.video.container import Deadline, VideoPacket, describe, read_packets

SMALLEST_PICTURE = 20
"""Bytes. Packets below it can be placeholders ("nothing new") that decode to no frame."""


class Stamp(NamedTuple):
    """What is kept of one packet, in decoding order. A tuple because there are as many as frames."""

    time: int | None
    decode_time: int | None
    is_key: bool
    is_discarded: bool
    size: int


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

    def key_before(self, start: int) -> int:
        """The time of the key packet before the one at time `start`; the first has itself."""
        keys = sorted(set(self.start), key=self.position.__getitem__)
        return keys[max(0, keys.index(start) - 1)]


def index_packets(stamps: Sequence[Stamp]) -> FrameIndex | None:
    """The index, or `None` where packets lack times or share them, so that only decoding tells the frames apart."""
    times = [stamp.time for stamp in stamps]
    known = [time for time in times if time is not None]
    if len(known) < len(times) or len(set(known)) < len(known):
        return None
    position = {time: k for k, time in enumerate(known)}
    shown = sorted(time for time, stamp in zip(known, stamps, strict=True) if not stamp.is_discarded)
    keys = [k for k, stamp in enumerate(stamps) if stamp.is_key or k == 0]
    start = [known[_start_position(keys, known, position[time])] for time in shown]
    return FrameIndex(shown, position, [stamp.decode_time for stamp in stamps], start)


def _start_position(keys: Sequence[int], times: Sequence[int], position: int) -> int:
    """The last key packet at or before `position` that is not shown later than the packet there.

    Frames shown before a key frame but stored after it ("open" groups of pictures) lean on the group before.
    """
    k = bisect_right(keys, position) - 1
    while k > 0 and times[keys[k]] > times[position]:
        k -= 1
    return keys[k]


def times_are_real(stamps: Sequence[Stamp], container: str, reorder_depth: int) -> bool:
    """Whether the packets' times are presentation times, one frame each.

    AVI and bare streams store none: FFmpeg counts packets, which is wrong once frames are stored out of order
    (B-frames), packed two to a packet, or replaced by placeholders.
    """
    if container not in WITHOUT_TIMES:
        return True
    return reorder_depth == 0 and all(stamp.size >= SMALLEST_PICTURE for stamp in stamps)


WITHOUT_TIMES = {"avi", "h264", "hevc", "m4v", "mpegvideo", "mjpeg", "obu", "vc1", "yuv4mpegpipe", "rm"}
"""FFmpeg's names of containers that store no presentation time, or not for every frame."""


def scan_packets(container: InputContainer, stream: VideoStream, deadline: Deadline) -> list[Stamp]:
    """All packets of the stream in decoding order, none decoded; an error for a file that was cut short."""
    stamps: list[Stamp] = []
    damage: str | None = None
    try:
        for packet in read_packets(container, stream, deadline):
            if packet.size:
                stamps.append(Stamp(packet.pts, packet.dts, packet.is_keyframe, packet.is_discard, packet.size))
            if packet.is_corrupt:
                damage = "packet marked as corrupt"
    except av.InvalidDataError as error:
        damage = describe(error)
    if _is_cut_short(container, stream, len(stamps)):
        damage = damage or "the file ends before its frames do"
    if damage:
        announced = f"announces {stream.frames} frames and " if stream.frames else ""
        raise VideoError(f"is cut short or damaged: {announced}has {len(stamps)} readable ones ({damage})")
    if not stamps:
        raise VideoError("holds a video stream without a single picture")
    return stamps


def _is_cut_short(container: InputContainer, stream: VideoStream, num_packets: int) -> bool:
    """Whether the container's own list of pictures goes beyond the end of the file.

    Fewer packets than announced is no proof in itself: edit lists of MP4 files leave pictures out on purpose.
    """
    missing = stream.frames - num_packets
    if missing <= 0:
        return False
    if container.format.name == "avi":  # its list stands at the end, so a cut file has none; one too many is common
        return missing > 1
    return any(entry.pos + entry.size > container.size for entry in stream.index_entries)


LEAVES_OUT_EXACTLY = {"h264", "mpeg4", "mpeg1video", "mpeg2video"}
"""Codecs whose pictures tell whether another leans on them, so that leaving out the rest changes no pixel."""


class UnreliableTimesError(Exception):
    """A frame did not come out under the time its packet announced: only counting tells frames apart."""


def frames_by_time(
    container: InputContainer,
    stream: VideoStream,
    index: FrameIndex,
    wanted: Sequence[int],
    deadline: Deadline,
    run_in: bool = False,
) -> Iterator[tuple[int | None, VideoFrame]]:
    """The wanted frames (ascending, no repeats): from each key frame needed, decode up to the last one wanted.

    `run_in` begins a key frame earlier. Pictures of an "open" group are shown before its key frame and lean on the
    group before; without it, strict decoding fails on them, and on what refers to them.
    """
    for start, group in groupby(wanted, key=lambda i: index.start[i]):
        frame_at = {index.times[i]: i for i in group}
        for frame in _decode_group(container, stream, index, start, set(frame_at), deadline, run_in):
            if frame.pts is not None and frame.pts >= start:  # those before lean on pictures that were not decoded
                yield frame_at.pop(frame.pts, None), frame
        if frame_at:
            raise UnreliableTimesError


def frames_by_order(
    container: InputContainer, stream: VideoStream, wanted: Sequence[int], deadline: Deadline
) -> Iterator[tuple[int | None, VideoFrame]]:
    """The wanted frames (ascending, no repeats) of a freshly opened container, counted as they come out."""
    remaining = iter(wanted)
    target = next(remaining, None)
    for i, frame in enumerate(decode_all(container, stream, deadline)):
        yield (i if i == target else None), frame
        if i == target:
            target = next(remaining, None)
        if target is None:
            return
    raise VideoError("ends before this frame", frame=target)


def decode_all(
    container: InputContainer,
    stream: VideoStream,
    deadline: Deadline,
    on_corrupt: Callable[[], None] = lambda: None,
) -> Iterator[VideoFrame]:
    """Every frame of a freshly opened container, in the order shown; `on_corrupt` is called for corrupt packets."""
    for packet in read_packets(container, stream, deadline):
        if packet.is_corrupt:
            on_corrupt()
        yield from packet.decode()


def _decode_group(
    container: InputContainer,
    stream: VideoStream,
    index: FrameIndex,
    start: int,
    wanted: set[int],
    deadline: Deadline,
    run_in: bool = False,
) -> Iterator[VideoFrame]:
    """Frames decoded from the key packet at time `start`, or the one before, up to the last that holds a wanted one.

    The decoder is then drained instead of being fed until it lets go of the frame by itself.
    """
    context = stream.codec_context
    unwanted: Literal["NONREF", "DEFAULT"] = "NONREF" if context.name in LEAVES_OUT_EXACTLY else "DEFAULT"
    last = max(index.position[time] for time in wanted)
    first = index.key_before(start) if run_in else start
    for packet in _packets_from(container, stream, index, first, deadline):
        context.skip_frame = "DEFAULT" if packet.pts in wanted else unwanted
        try:
            yield from packet.decode()
        except av.InvalidDataError:
            if packet.pts is None or packet.pts >= start:  # no wanted frame leans on those before
                raise
        if _position_of(packet, index) >= last:
            break
    context.skip_frame = "DEFAULT"
    yield from stream.decode(None)


def _packets_from(
    container: InputContainer, stream: VideoStream, index: FrameIndex, start: int, deadline: Deadline
) -> Iterator[VideoPacket]:
    """Packets in decoding order, beginning with the one at time `start`."""
    yield _seek_packet(container, stream, index, start, deadline)
    for packet in read_packets(container, stream, deadline):
        if packet.size:
            yield packet


def _seek_packet(
    container: InputContainer, stream: VideoStream, index: FrameIndex, start: int, deadline: Deadline
) -> VideoPacket:
    """The packet at time `start`, with the container standing right behind it.

    Some containers look for the time of showing, some for that of decoding, and some only get near: land at or before
    the packet, then step over what lies between.
    """
    first = index.position[start]
    for time in (start, index.decode_time[first]):
        if time is None:
            continue
        container.seek(time, stream=stream)
        for packet in read_packets(container, stream, deadline):
            if not packet.size or _position_of(packet, index) > first:
                break
            if packet.pts == start:
                return packet
    raise UnreliableTimesError


def _position_of(packet: VideoPacket, index: FrameIndex) -> int:
    position = None if packet.pts is None else index.position.get(packet.pts)
    if position is None:
        raise UnreliableTimesError
    return position
