"""From packets to frames: which packet holds frame i, and where decoding must begin to reach it.

Reading packets without decoding them is cheap (milliseconds for ten seconds of video) and tells every frame's
presentation time. That is enough to seek exactly, as long as those times are real: `index_packets` says when not.
"""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

SMALLEST_PICTURE = 20
"""Bytes. Packets below it can be place-holders ("nothing new") that decode to no frame."""


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
    """Time of a packet → its place in decoding order."""
    decode_time: list[int | None]
    """When the packet at each place is due at the decoder; never after it is shown."""
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
    position = {time: place for place, time in enumerate(known)}
    shown = sorted(time for time, stamp in zip(known, stamps, strict=True) if not stamp.is_discarded)
    keys = [place for place, stamp in enumerate(stamps) if stamp.is_key or place == 0]
    start = [known[start_place(keys, known, position[time])] for time in shown]
    return FrameIndex(shown, position, [stamp.decode_time for stamp in stamps], start)


def start_place(keys: Sequence[int], times: Sequence[int], place: int) -> int:
    """The last key packet at or before `place` that is not shown later than the packet there.

    Frames shown before a key frame but stored after it ("open" groups of pictures) lean on the group before.
    """
    k = bisect_right(keys, place) - 1
    while k > 0 and times[keys[k]] > times[place]:
        k -= 1
    return keys[k]


def times_are_real(stamps: Sequence[Stamp], container: str, reorder_depth: int) -> bool:
    """Whether the packets' times are presentation times, one frame each.

    AVI and bare streams store none: FFmpeg counts packets, which is wrong once frames are stored out of order
    (B-frames), packed two to a packet, or replaced by place-holders.
    """
    if container not in WITHOUT_TIMES:
        return True
    return reorder_depth == 0 and all(stamp.size >= SMALLEST_PICTURE for stamp in stamps)


WITHOUT_TIMES = {"avi", "h264", "hevc", "m4v", "mpegvideo", "mjpeg", "obu", "vc1", "yuv4mpegpipe", "rm"}
"""FFmpeg's names of containers that store no presentation time, or not for every frame."""
