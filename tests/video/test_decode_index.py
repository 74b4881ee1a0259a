"""From packets to frames, on packets written out by hand."""

from pathlib import Path

import pytest
import torch
from numbered import read_number, write_lying_video

from motionformer.errors import VideoError
from motionformer.video import open_video, retry_if_frame_count_changed
from motionformer.video.container import FrameIndex, _Stamp


def stamps(text: str) -> list[_Stamp]:
    """Packets in decoding order: their times, `!` after a key packet, `x` after one that is not to be shown."""
    return [
        _Stamp(None if word == "?" else int(word.rstrip("!x")), place, "!" in word, "x" in word, size=100)
        for place, word in enumerate(text.split())
    ]


def test_frames_are_in_order_of_time_and_start_at_their_key_packet() -> None:
    # Shown 0 1 2 3 | 4 5 6: each group is decoded from its own key packet.
    index = FrameIndex.of(stamps("0! 3 1 2 4! 6 5"))
    assert index is not None
    assert index.times == [0, 1, 2, 3, 4, 5, 6]
    assert index.start == [0, 0, 0, 0, 4, 4, 4]
    assert [index.position[time] for time in index.times] == [0, 2, 3, 1, 4, 6, 5]


def test_frames_shown_before_their_key_frame_lean_on_the_group_before() -> None:
    # An open group: 4 and 5 are stored after the key packet 6, and shown before it.
    index = FrameIndex.of(stamps("0! 3 1 2 6! 4 5 7"))
    assert index is not None
    assert index.start == [0, 0, 0, 0, 0, 0, 6, 6]


def test_packets_left_out_by_the_container_are_decoded_and_not_counted() -> None:
    index = FrameIndex.of(stamps("0!x 1x 2 3"))
    assert index is not None
    assert index.times == [2, 3]
    assert index.start == [0, 0]


def test_a_stream_that_starts_without_a_key_packet_starts_at_its_first() -> None:
    index = FrameIndex.of(stamps("0 1 2! 3"))
    assert index is not None
    assert index.start == [0, 0, 2, 2]


@pytest.mark.parametrize("text", ["0! ? 2", "0! 1 1 2"])
def test_missing_or_shared_times_give_no_index(text: str) -> None:
    assert FrameIndex.of(stamps(text)) is None


def test_times_of_avi_are_believed_only_without_reordering_and_place_holders() -> None:
    plain = stamps("0! 1 2")
    small = [*plain, _Stamp(3, 3, False, False, size=8)]
    assert FrameIndex.of(plain, has_times=True, format="avi") is not None
    assert FrameIndex.of(plain, has_times=False, format="avi") is None
    assert FrameIndex.of(small, has_times=True, format="avi") is None
    assert FrameIndex.of(small, has_times=True, format="matroska,webm") is not None


@pytest.mark.parametrize("name", ["lying.mp4", "lying.mkv"])
def test_frames_are_chosen_anew_where_the_number_of_frames_was_wrong(name: str, tmp_path: Path) -> None:
    path, lengths = write_lying_video(tmp_path / name, num_frames=18, places=(7, 12)), list[int]()

    def read_some() -> torch.Tensor:
        lengths.append(video.metadata.num_frames)
        return video.read([7, 9, video.metadata.num_frames - 1])

    with open_video(path) as video:
        assert [read_number(frame) for frame in retry_if_frame_count_changed(video, read_some)] == [7, 9, 17]
        assert [read_number(frame) for frame in retry_if_frame_count_changed(video, read_some)] == [7, 9, 17]
    assert lengths == [20, 18, 18], "once more, and never again"
    with open_video(path) as video:  # 7 and 9 of 20 exist, but of 18 others are meant
        frames = retry_if_frame_count_changed(
            video, lambda: video.read([video.metadata.num_frames - k for k in (13, 11)])
        )
        assert [read_number(frame) for frame in frames] == [5, 7]
    with open_video(path) as video, pytest.raises(VideoError, match="frame 19: is out of range: the video has 18"):
        retry_if_frame_count_changed(video, lambda: video.read([7, 9, 19]))


def test_other_errors_are_not_tried_again(tmp_path: Path) -> None:
    calls = 0

    def fail() -> None:
        nonlocal calls
        calls += 1
        raise VideoError("is damaged")

    with open_video(write_lying_video(tmp_path / "x.mp4")) as video, pytest.raises(VideoError, match="is damaged"):
        retry_if_frame_count_changed(video, fail)
    assert calls == 1
