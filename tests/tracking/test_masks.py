"""Masks as files: what is written is read, both releases' kinds are understood, anything else is refused."""

from pathlib import Path

import numpy as np
import pytest
import torch
from av import VideoFrame

from motionformer.errors import MaskError
from motionformer.tracking.masks import PALETTE, object_numbers, read_mask, write_mask, write_png
from motionformer.tracking.propagation import _one_hot
from motionformer.video import read_frames


def write_grey(file: Path, pixels: np.ndarray) -> Path:
    write_png(file, VideoFrame.from_ndarray(pixels.astype(np.uint8), format="gray"))
    return file


def test_what_is_written_is_read(tmp_path: Path) -> None:
    mask = torch.randint(0, 5, (37, 51), dtype=torch.uint8)
    write_mask(tmp_path / "a.png", mask)
    assert torch.equal(read_mask(tmp_path / "a.png"), mask)


def test_colours_are_those_of_davis(tmp_path: Path) -> None:
    assert PALETTE[:4].tolist() == [[0, 0, 0], [128, 0, 0], [0, 128, 0], [128, 128, 0]]
    assert PALETTE[[8, 255]].tolist() == [[64, 0, 0], [224, 224, 192]]
    write_mask(tmp_path / "00000.png", torch.tensor([[0, 1], [2, 3]], dtype=torch.uint8))
    assert torch.equal(read_frames(tmp_path, [0])[0].view(4, 3), PALETTE[:4])


def test_void_is_background(tmp_path: Path) -> None:
    write_mask(tmp_path / "a.png", torch.tensor([[0, 1, 255]], dtype=torch.uint8))
    assert read_mask(tmp_path / "a.png").tolist() == [[0, 1, 0]]


def test_grey_masks(tmp_path: Path) -> None:
    white = np.array([[0, 255], [255, 0]])
    assert read_mask(write_grey(tmp_path / "a.png", white)).tolist() == [[0, 1], [1, 0]]
    assert read_mask(write_grey(tmp_path / "b.png", np.array([[0, 1], [2, 2]]))).tolist() == [[0, 1], [2, 2]]
    assert read_mask(write_grey(tmp_path / "c.png", np.zeros((2, 2)))).tolist() == [[0, 0], [0, 0]]


@pytest.mark.parametrize("channels", [3, 4])
def test_black_and_white_in_colours(tmp_path: Path, channels: int) -> None:
    picture = np.zeros((2, 2, channels), np.uint8)
    picture[0, 1] = picture[1, 0] = 255
    name = "rgb24" if channels == 3 else "rgba"
    write_png(tmp_path / "a.png", VideoFrame.from_ndarray(picture, format=name))
    assert read_mask(tmp_path / "a.png").tolist() == [[0, 1], [1, 0]]


def test_layers(tmp_path: Path) -> None:
    mask = torch.tensor([[0, 2, 7]], dtype=torch.uint8)
    assert object_numbers(mask) == [2, 7]
    assert _one_hot(mask, [2, 7])[:, 0].tolist() == [[1, 0, 0], [0, 1, 0], [0, 0, 1]]
    assert _one_hot(mask, [7])[:, 0].tolist() == [[1, 1, 0], [0, 0, 1]]


def test_refuses_what_is_no_mask(tmp_path: Path) -> None:
    with pytest.raises(MaskError, match="holds 3 shades of grey up to 255"):
        read_mask(write_grey(tmp_path / "soft.png", np.array([[0, 128, 255]])))
    for red, shade in ((255, 0), (128, 128)):  # a colour, and a grey that is neither black nor white
        picture = np.zeros((4, 4, 3), np.uint8)
        picture[0] = (red, shade, shade)
        write_png(tmp_path / "rgb.png", VideoFrame.from_ndarray(picture, format="rgb24"))
        with pytest.raises(MaskError, match=r"its pixels are rgb24.*white on black"):
            read_mask(tmp_path / "rgb.png")
    (tmp_path / "bad.png").write_text("no picture")
    with pytest.raises(MaskError, match=r"bad\.png"):
        read_mask(tmp_path / "bad.png")
    with pytest.raises(MaskError, match="no such file"):
        read_mask(tmp_path / "gone.png")
    with pytest.raises(MaskError, match="a mask is a png file"):
        read_mask(tmp_path / "mask.jpg")
