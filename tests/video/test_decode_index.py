"""From packets to frames, on packets written out by hand."""

from pathlib import Path

import pytest

from motionformer.errors import VideoError
from motionformer.video import torchcodec
from motionformer.video.index import Stamp, index_packets, times_are_real


def stamps(text: str) -> list[Stamp]:
    """Packets in decoding order: their times, `!` after a key packet, `x` after one that is not to be shown."""
    return [
        Stamp(None if word == "?" else int(word.rstrip("!x")), place, "!" in word, "x" in word, size=100)
        for place, word in enumerate(text.split())
    ]


def test_frames_are_in_order_of_time_and_start_at_their_key_packet() -> None:
    # Shown 0 1 2 3 | 4 5 6: each group is decoded from its own key packet.
    index = index_packets(stamps("0! 3 1 2 4! 6 5"))
    assert index is not None
    assert index.times == [0, 1, 2, 3, 4, 5, 6]
    assert index.start == [0, 0, 0, 0, 4, 4, 4]
    assert [index.position[time] for time in index.times] == [0, 2, 3, 1, 4, 6, 5]


def test_frames_shown_before_their_key_frame_lean_on_the_group_before() -> None:
    # An open group: 4 and 5 are stored after the key packet 6, and shown before it.
    index = index_packets(stamps("0! 3 1 2 6! 4 5 7"))
    assert index is not None
    assert index.start == [0, 0, 0, 0, 0, 0, 6, 6]


def test_packets_left_out_by_the_container_are_decoded_and_not_counted() -> None:
    index = index_packets(stamps("0!x 1x 2 3"))
    assert index is not None
    assert index.times == [2, 3]
    assert index.start == [0, 0]


def test_a_stream_that_starts_without_a_key_packet_starts_at_its_first() -> None:
    index = index_packets(stamps("0 1 2! 3"))
    assert index is not None
    assert index.start == [0, 0, 2, 2]


@pytest.mark.parametrize("text", ["0! ? 2", "0! 1 1 2"])
def test_missing_or_shared_times_give_no_index(text: str) -> None:
    assert index_packets(stamps(text)) is None


def test_times_of_avi_are_believed_only_without_reordering_and_place_holders() -> None:
    plain = stamps("0! 1 2")
    assert times_are_real(plain, "avi", reorder_depth=0)
    assert not times_are_real(plain, "avi", reorder_depth=1)
    assert not times_are_real([*plain, Stamp(3, 3, False, False, size=8)], "avi", reorder_depth=0)
    assert times_are_real(plain, "matroska,webm", reorder_depth=2)


def test_a_missing_torchcodec_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise ImportError(f"No module named {name!r}")

    monkeypatch.setattr(torchcodec, "import_module", missing)
    with pytest.raises(VideoError, match="install torchcodec and the system's ffmpeg, or use the decoder pyav"):
        torchcodec.open_torchcodec(Path("any.mp4"))
