"""Two ways to get at chosen frames of an open container: by time, with seeking, or by counting from the start.

Both yield `(i, frame)` in ascending order of time for the frames wanted, and decode as little as they can. Frames that
are decoded on the way to a wanted one, which may lean on them, come out with `None`.
"""

from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from typing import Literal

import av
from av.container import InputContainer
from av.video.frame import VideoFrame
from av.video.stream import VideoStream

from motionformer.errors import VideoError
from motionformer.video.container import VideoPacket, read_packets
from motionformer.video.deadline import Deadline
from motionformer.video.index import FrameIndex

LEAVES_OUT_EXACTLY = {"h264", "mpeg4", "mpeg1video", "mpeg2video"}
"""Codecs whose pictures say whether another leans on them, so that leaving out the rest changes no pixel."""


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
        for frame in decode_group(container, stream, index, start, set(frame_at), deadline, run_in):
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
    """Every frame of a freshly opened container, in the order shown; a packet that is marked as corrupt is told."""
    for packet in read_packets(container, stream, deadline):
        if packet.is_corrupt:
            on_corrupt()
        yield from packet.decode()


def decode_group(
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
    for packet in packets_from(container, stream, index, first, deadline):
        context.skip_frame = "DEFAULT" if packet.pts in wanted else unwanted
        try:
            yield from packet.decode()
        except av.InvalidDataError:
            if packet.pts is None or packet.pts >= start:  # no wanted frame leans on those before
                raise
        if place_of(packet, index) >= last:
            break
    context.skip_frame = "DEFAULT"
    yield from stream.decode(None)


def packets_from(
    container: InputContainer, stream: VideoStream, index: FrameIndex, start: int, deadline: Deadline
) -> Iterator[VideoPacket]:
    """Packets in decoding order, beginning with the one at time `start`."""
    yield seek_packet(container, stream, index, start, deadline)
    for packet in read_packets(container, stream, deadline):
        if packet.size:
            yield packet


def seek_packet(
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
            if not packet.size or place_of(packet, index) > first:
                break
            if packet.pts == start:
                return packet
    raise UnreliableTimesError


def place_of(packet: VideoPacket, index: FrameIndex) -> int:
    place = None if packet.pts is None else index.position.get(packet.pts)
    if place is None:
        raise UnreliableTimesError
    return place
