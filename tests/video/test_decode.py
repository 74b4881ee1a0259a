"""The frames asked for, from every kind of file: each generated frame carries its own number."""

from fractions import Fraction
from pathlib import Path

import av
import numpy as np
import pytest
import torch
from numbered import NOTHING_NEW, draw_number, read_number, write_video

from motionformer.errors import VideoError
from motionformer.video import open_video, read_frames
from motionformer.video.source import measure_timing

UNEVEN = [0, *np.cumsum([20, 33, 50, 100] * 10).tolist()][:40]
OPEN_GROUPS = {"b_frames": 3, "x264-params": "open-gop=1:bframes=3:keyint=12:scenecut=0:log-level=-1"}

FILES = {
    "plain.mp4": {},
    "b_frames.mp4": {"b_frames": 3},
    "b_frames.mkv": {"b_frames": 3},
    "b_frames.ts": {"b_frames": 3},
    "b_frames.flv": {"b_frames": 3},
    "b_frames.avi": {"b_frames": 3},
    "open_groups.mkv": OPEN_GROUPS,
    "open_groups.mp4": OPEN_GROUPS,
    "short_groups.mp4": {"b_frames": 3, "group": 2},
    "only_keys.mp4": {"group": 1},
    "one_group.mp4": {"b_frames": 3, "group": 250},
    "no_key_after_the_first.mp4": {"x264-params": "intra-refresh=1:keyint=12:log-level=-1"},
    "no_index.mkv": {"b_frames": 3, "container": {"live": "1"}},
    "fragments.mp4": {"b_frames": 3, "container": {"movflags": "frag_keyframe+empty_moov"}},
    "bare.h264": {"b_frames": 3},
    "xvid.avi": {"codec": "mpeg4"},
    "xvid_b_frames.avi": {"codec": "mpeg4", "b_frames": 2},
    "dvd.mpg": {"codec": "mpeg2video", "b_frames": 2},
    "vp9.webm": {"codec": "libvpx-vp9", "cpu-used": "8", "deadline": "realtime"},
    "hevc.mp4": {"codec": "libx265", "b_frames": 3, "x265-params": "log-level=none:keyint=12"},
    "motion_jpeg.avi": {"codec": "mjpeg", "pixels": "yuvj420p"},
    "uneven.mkv": {"times": UNEVEN, "tick": Fraction(1, 1000), "b_frames": 2},
    "uneven.mp4": {"times": UNEVEN, "tick": Fraction(1, 1000), "b_frames": 2},
    "odd_size.mp4": {"codec": "mpeg4", "height": 61, "width": 95},
    "ten_bits.mp4": {"pixels": "yuv420p10le"},
    "grey.mp4": {"pixels": "gray"},
    "full_range.mp4": {"pixels": "yuvj420p"},
    "bt709.mp4": {"colorspace": "bt709", "color_range": "tv"},
    "yuv444.mp4": {"pixels": "yuv444p"},
    "audio.mp4": {"audio": True, "b_frames": 2},
    "wide_pixels.mp4": {"aspect": Fraction(4, 3)},
    "one_frame.mp4": {"num_frames": 1},
    "name with spaces, ünïcödé & 50%d: x.mp4": {"num_frames": 5},
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("numbered")


def written(folder: Path, name: str) -> Path:
    path = folder / name
    return path if path.exists() else write_video(path, **FILES[name])


def decode_everything(path: Path) -> np.ndarray:
    """The slow loop nobody can misread: every frame, as stored."""
    with av.open(str(path), metadata_errors="replace") as container:
        return np.stack([frame.to_ndarray(format="rgb24") for frame in container.decode(video=0)])


def scattered(count: int) -> list[int]:
    """Backwards, repeated, near, far: the orders a caller may ask in."""
    return [count - 1, 0, count // 2, count // 2, *range(count)[::7], *range(count)[count // 3 : count // 3 + 6], 0]


@pytest.mark.parametrize("name", FILES)
def test_every_index_is_its_frame(folder: Path, name: str) -> None:
    with open_video(written(folder, name)) as video:
        indices = scattered(video.metadata.num_frames)
        frames = video.read(indices)
        assert video.metadata.num_frames == FILES[name].get("num_frames", 40)
        assert frames.shape == (len(indices), video.metadata.height, video.metadata.width, 3)
        assert [read_number(frame) for frame in frames] == indices


@pytest.mark.parametrize("name", [name for name in FILES if name != "wide_pixels.mp4"])
def test_seeking_changes_no_pixel(folder: Path, name: str) -> None:
    whole = decode_everything(written(folder, name))
    with open_video(folder / name) as video:
        for indices in (scattered(len(whole)), [len(whole) - 1], [len(whole) // 2]):
            assert np.array_equal(video.read(indices).numpy(), whole[indices])


def test_a_video_shows_what_it_is(tmp_path: Path) -> None:
    file = write_video(tmp_path / "x.mp4", num_frames=12)
    with open_video(file) as video:
        assert len(video) == 12
        assert repr(video) == f"Video({str(file)!r}: 12 frames 64×96, 30 per second)"


def test_pixels_are_red_green_blue_in_rows(tmp_path: Path) -> None:
    path = write_video(tmp_path / "lossless.mkv", codec="ffv1", pixels="bgr0", num_frames=3)
    assert np.array_equal(read_frames(path, [2])[0].numpy(), draw_number(2, 64, 96))


def test_metadata_of_an_ordinary_file(folder: Path) -> None:
    with open_video(written(folder, "audio.mp4")) as video:
        facts = video.metadata
    assert (facts.num_frames, facts.fps, facts.height, facts.width) == (40, 30.0, 64, 96)
    assert facts.duration == pytest.approx(40 / 30)
    assert (facts.codec, facts.rotation, facts.variable_rate, facts.exact_count) == ("h264", 0, False, False)


@pytest.mark.parametrize("name", ["uneven.mkv", "uneven.mp4"])
def test_variable_rate_is_noticed(folder: Path, name: str) -> None:
    with open_video(written(folder, name)) as video:
        assert video.metadata.variable_rate
        # 39 steps take UNEVEN[39] milliseconds.
        assert video.metadata.fps == pytest.approx(39 / UNEVEN[39] * 1000)


def test_rounding_to_ticks_is_no_variable_rate() -> None:
    # 30 frames a second in milliseconds: 0, 33, 67, 100, …
    timing = measure_timing([round(k * 1000 / 30) for k in range(300)], Fraction(1, 1000), Fraction(30))
    assert (timing.fps, timing.variable_rate) == (30.0, False)
    # One frame dropped in the middle, on a tick of one frame.
    assert measure_timing([*range(50), *range(51, 101)], Fraction(1, 30), Fraction(30)).variable_rate


@pytest.mark.parametrize("name", ["bare.h264", "b_frames.avi", "xvid_b_frames.avi"])
def test_files_without_times_are_counted(folder: Path, name: str) -> None:
    with open_video(written(folder, name)) as video:
        assert video.metadata.exact_count
        assert video.metadata.num_frames == 40


def test_place_holders_that_decode_to_nothing_are_no_frames(tmp_path: Path) -> None:
    """MPEG-4 in AVI: a packet that only says "nothing new" is announced as a frame, and is none."""
    source = write_video(tmp_path / "source.avi", codec="mpeg4", num_frames=10)
    path = tmp_path / "announces_too_many.avi"
    with av.open(str(source)) as original, av.open(str(path), "w") as output:
        stream = output.add_stream_from_template(original.streams.video[0])
        packets = [bytes(packet) for packet in original.demux(video=0) if packet.size]
        for k, data in enumerate([*packets[:5], NOTHING_NEW, *packets[5:]]):
            packet = av.Packet(data)
            packet.stream, packet.pts, packet.dts, packet.time_base = stream, k, k, Fraction(1, 30)
            packet.is_keyframe = k == 0
            output.mux(packet)
    with open_video(path) as video:
        assert video.file.stream.frames == 11  # type: ignore[attr-defined]
        assert video.metadata.num_frames == 10
        assert [read_number(frame) for frame in video.read(range(10))] == list(range(10))


@pytest.mark.parametrize(
    ("angle", "mirror", "turn"),
    [
        # FFmpeg counts angles against the clock, `rot90` with the rows pointing down too: k quarter turns.
        (0, False, lambda x: x),
        (90, False, lambda x: torch.rot90(x, 1, (1, 2))),
        (180, False, lambda x: torch.rot90(x, 2, (1, 2))),
        (-90, False, lambda x: torch.rot90(x, 3, (1, 2))),
        (0, True, lambda x: x.flip(2)),
    ],
)
def test_rotation_is_applied(tmp_path: Path, angle: int, mirror: bool, turn) -> None:
    stored = torch.from_numpy(decode_everything(write_video(tmp_path / "flat.mp4", num_frames=6)))
    path = write_video(tmp_path / "turned.mp4", num_frames=6, rotation=angle, mirror=mirror)
    with open_video(path) as video:
        frames = video.read(range(6))
        assert (video.metadata.height, video.metadata.width) == tuple(frames.shape[1:3])
        assert video.metadata.rotation == -angle % 360
        assert torch.equal(frames, turn(stored))


def test_pixels_become_square_unless_told_otherwise(folder: Path) -> None:
    path = written(folder, "wide_pixels.mp4")
    with open_video(path) as video:
        assert (video.metadata.height, video.metadata.width) == (64, 128)
    with open_video(path, square_pixels=False) as video:
        assert (video.metadata.height, video.metadata.width) == (64, 96)
        assert np.array_equal(video.read([7]).numpy(), decode_everything(path)[[7]])


def test_turned_and_wide_together(tmp_path: Path) -> None:
    path = write_video(tmp_path / "both.mp4", num_frames=3, rotation=90, aspect=Fraction(4, 3))
    with open_video(path) as video:
        upright = video.read([2]).rot90(3, (1, 2))
        assert (video.metadata.height, video.metadata.width) == (128, 64)
        assert read_number(upright[0]) == 2


def test_frames_left_out_by_an_edit_list_do_not_count(tmp_path: Path) -> None:
    early = {"times": range(-5, 35), "container": {"avoid_negative_ts": "disabled"}, "b_frames": 2}
    with open_video(write_video(tmp_path / "edited.mp4", **early)) as video:
        assert video.metadata.num_frames == 35
        assert [read_number(frame) for frame in video.read([0, 34, 12])] == [5, 39, 17]


def test_names_inside_the_file_may_be_in_any_encoding(tmp_path: Path) -> None:
    path = write_video(tmp_path / "latin.mp4", num_frames=5, metadata={"title": "PLACEHOLDER"})
    data = path.read_bytes()
    assert data.count(b"PLACEHOLDER") == 1
    path.write_bytes(data.replace(b"PLACEHOLDER", b"\xe9t\xe9 \xff\xfe\x80 \xc3("))
    assert read_number(read_frames(path, [3])[0]) == 3


def test_no_indices_give_no_frames(folder: Path) -> None:
    for name in ("plain.mp4", "wide_pixels.mp4", "bare.h264"):
        with open_video(written(folder, name)) as video:
            assert video.read([]).shape == (0, video.metadata.height, video.metadata.width, 3)


def test_check_decodes_everything(folder: Path) -> None:
    with open_video(written(folder, "b_frames.mp4")) as video:
        assert not video.metadata.exact_count
        assert video.check().exact_count
        assert [read_number(frame) for frame in video.read([39, 2])] == [39, 2]


def test_more_threads_give_the_same(folder: Path) -> None:
    path = written(folder, "b_frames.mp4")
    assert torch.equal(read_frames(path, scattered(40)), read_frames(path, scattered(40), num_threads=2))


def test_a_decoder_of_before_is_warned_of_and_an_unknown_one_is_an_error(folder: Path) -> None:
    path = written(folder, "plain.mp4")
    with (
        pytest.warns(FutureWarning, match="'torchcodec' was removed"),
        open_video(path, decoder="torchcodec") as old,
    ):
        assert torch.equal(old.read([3]), read_frames(path, [3], decoder="pyav"))
    with pytest.raises(ValueError, match="no decoder 'magic'"):
        open_video(path, decoder="magic")


@pytest.mark.shared
def test_real_clips_are_read_exactly(shared: Path) -> None:
    for path in sorted((shared / "data/clips").iterdir()):
        if path.suffix not in {".mp4", ".avi"} or path.stat().st_size > 600_000:
            continue
        whole = torch.from_numpy(decode_everything(path))
        with open_video(path, square_pixels=False) as video:
            assert video.metadata.num_frames == len(whole), path.name
            indices = scattered(len(whole))
            assert torch.equal(video.read(indices), whole[indices]), path.name


@pytest.mark.shared
def test_real_files_that_announce_one_frame_too_many(shared: Path) -> None:
    with open_video(shared / "data/clips/RATRACE_wave_f_nm_np1_fr_goo_37.avi") as video:
        assert (video.file.stream.frames, video.metadata.num_frames) == (73, 72)  # type: ignore[attr-defined]
        with pytest.raises(VideoError, match="72 frames, 0 to 71"):
            video.read([72])
