"""Folders of frames: order, pixels, and what is refused."""

from pathlib import Path

import numpy as np
import pytest
import torch
from numbered import draw_number, read_number, write_image, write_images

from motionformer.errors import VideoError
from motionformer.video import open_video, read_frames


@pytest.mark.parametrize(
    "pattern",
    ["frame_%010d.jpg", "img_%05d.jpg", "%06d.jpg", "%05d.png", "%d.JPG", "clip_2_frame%d.jpeg", "%04d_rgb.png"],
)
def test_frames_come_in_the_order_of_their_numbers(tmp_path: Path, pattern: str) -> None:
    with open_video(write_images(tmp_path / "frames", pattern)) as video:  # 1 … 12: as text, 10 comes before 2
        assert video.metadata.num_frames == 12
        assert [read_number(frame) for frame in video.read([11, 0, 5, 5])] == [11, 0, 5, 5]


def test_metadata(tmp_path: Path) -> None:
    with open_video(write_images(tmp_path / "frames", "img_%05d.jpg"), image_rate=12.0) as video:
        facts = video.check()
    assert (facts.num_frames, facts.fps, facts.duration) == (12, 12.0, 1.0)
    assert (facts.height, facts.width, facts.codec, facts.exact_count) == (64, 96, "jpg", True)
    assert not facts.variable_rate


def test_a_missing_number_shows_as_a_variable_rate(tmp_path: Path) -> None:
    folder = write_images(tmp_path / "frames", "%05d.png", num_frames=9, first=0, step=5)
    with open_video(folder) as video:
        assert not video.metadata.variable_rate
    (folder / "00020.png").unlink()
    with open_video(folder) as video:
        assert video.metadata.variable_rate
        assert [read_number(frame) for frame in video.read([3, 4])] == [3, 5]


def test_png_pixels_are_exact(tmp_path: Path) -> None:
    folder = write_images(tmp_path / "frames", "%05d.png")
    assert np.array_equal(read_frames(folder, [7])[0].numpy(), draw_number(7, 64, 96))


@pytest.mark.parametrize("source", ["gray", "rgba"])
def test_png_kinds_become_rgb(tmp_path: Path, source: str) -> None:
    (tmp_path / "f").mkdir()
    rgb = draw_number(5, 64, 96)
    pixels = {"gray": rgb[..., 0], "rgba": np.concatenate([rgb, rgb[..., :1]], axis=-1)}[source]
    write_image(tmp_path / "f" / "1.png", np.ascontiguousarray(pixels), source)
    expected = rgb[..., :1].repeat(3, axis=-1) if source == "gray" else rgb
    assert np.array_equal(read_frames(tmp_path / "f", [0])[0].numpy(), expected)


def test_jpg_pixels_are_those_of_libjpeg(tmp_path: Path) -> None:
    pillow = pytest.importorskip("PIL.Image")
    folder = tmp_path / "frames"
    folder.mkdir()
    rows, columns = np.mgrid[:64, :96]
    smooth = np.stack([rows * 4, columns * 2, 255 - rows - columns], axis=-1).astype(np.uint8)
    pillow.fromarray(smooth).save(folder / "1.jpg", quality=95)
    expected = np.asarray(pillow.open(folder / "1.jpg")).astype(int)
    assert np.abs(read_frames(folder, [0])[0].numpy().astype(int) - expected).max() <= 4


def test_hidden_and_other_files_are_no_frames(tmp_path: Path) -> None:
    folder = write_images(tmp_path / "frames", "img_%05d.jpg")
    (folder / "notes.txt").write_text("not a frame")
    (folder / "._img_00001.jpg").write_bytes(b"what some systems leave behind")
    with open_video(folder) as video:
        assert video.metadata.num_frames == 12


def test_unnumbered_files_come_by_name(tmp_path: Path) -> None:
    for number, name in enumerate(("a.png", "b.png", "c.png")):
        (tmp_path / "f").mkdir(exist_ok=True)
        write_image(tmp_path / "f" / name, draw_number(number, 64, 96))
    assert [read_number(frame) for frame in read_frames(tmp_path / "f", [0, 1, 2])] == [0, 1, 2]


def test_two_series_are_refused(tmp_path: Path) -> None:
    folder = write_images(tmp_path / "frames", "img_%05d.jpg")
    write_images(folder, "flow_x_%05d.jpg")
    with pytest.raises(VideoError, match=r"several series of images: flow_x_\*\.jpg, img_\*\.jpg"):
        open_video(folder)


def test_a_number_twice_is_refused(tmp_path: Path) -> None:
    folder = write_images(tmp_path / "frames", "%05d.png", num_frames=3)
    write_images(folder, "%d.png", num_frames=1)
    with pytest.raises(VideoError, match="the same number"):
        open_video(folder)


def test_a_folder_without_images_is_refused(tmp_path: Path) -> None:
    with pytest.raises(VideoError, match="no jpg or png") as caught:
        open_video(tmp_path)
    assert caught.value.path == tmp_path


@pytest.mark.parametrize("content", [b"", b"not a picture", b"\xff\xd8\xff\xe0 not a picture either"])
@pytest.mark.parametrize("pattern", ["img_%05d.jpg", "img_%05d.png"])
def test_a_broken_image_in_the_middle_is_named(tmp_path: Path, pattern: str, content: bytes) -> None:
    folder = write_images(tmp_path / "frames", pattern)
    broken = folder / (pattern % 6)
    broken.write_bytes(content)
    with open_video(folder) as video:
        assert read_number(video.read([4])[0]) == 4
        with pytest.raises(VideoError) as caught:
            video.read([4, 5])
        assert caught.value.path == broken
        with pytest.raises(VideoError) as caught:
            video.check()
        assert caught.value.path == broken


@pytest.mark.parametrize("pattern", ["img_%05d.jpg", "img_%05d.png"])
@pytest.mark.parametrize("keep", [0.5, 0.98])
def test_an_image_cut_short_is_named(tmp_path: Path, pattern: str, keep: float) -> None:
    folder = write_images(tmp_path / "frames", pattern)
    broken = folder / (pattern % 6)
    data = broken.read_bytes()
    broken.write_bytes(data[: int(len(data) * keep)])
    with open_video(folder) as video, pytest.raises(VideoError) as caught:
        video.read([5])
    assert caught.value.path == broken


def test_an_image_of_another_size_is_named(tmp_path: Path) -> None:
    folder = write_images(tmp_path / "frames", "%05d.png")
    write_image(folder / "00003.png", draw_number(2, 32, 96))
    with open_video(folder) as video, pytest.raises(VideoError, match="96 × 32, but the first frame is 96 × 64"):
        video.read([2])


def test_index_out_of_range(tmp_path: Path) -> None:
    with open_video(write_images(tmp_path / "frames", "%05d.png")) as video:
        with pytest.raises(VideoError, match="12 frames, 0 to 11"):
            video.read([12])
        assert torch.equal(video.read([]), torch.empty(0, 64, 96, 3, dtype=torch.uint8))
