"""Masks as files: a PNG whose pixels are object numbers, 0 for the background. Knows no sequences and no scores.

DAVIS 2017 stores palette images (the number is the index), DAVIS 2016 grey ones of 0 and 255. Both are read and the
former is written, with the palette that DAVIS uses. PyAV reads and writes them, as it does the frames.
"""

from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from av import CodecContext, VideoFrame
from av.video.codeccontext import VideoCodecContext
from jaxtyping import Bool, Float, UInt8
from torch import Tensor

from motionformer.errors import MaskError, VideoError
from motionformer.runs import write_atomically
from motionformer.video.container import wrap_decoder_errors
from motionformer.video.images import decode_image

VOID = 255
"""The index of pixels that belong to nobody, in palette masks; the semi-supervised protocol takes it for background."""


def read_mask(file: str | Path) -> UInt8[Tensor, "H W"]:
    """The object number of each pixel. Raises `MaskError` for what is no mask: colours, or shades of grey."""
    file = Path(file)
    if file.suffix.lower() != ".png":
        raise MaskError(f"{file}: a mask is a png file; jpg changes the numbers of the pixels.")
    if not file.is_file():
        raise MaskError(f"{file}: there is no such file.")
    try:
        with wrap_decoder_errors(file):
            image = decode_image(file)
    except VideoError as error:
        raise MaskError(str(error)) from error
    if image.format.name == "pal8":
        pixels: Any = image.to_ndarray()
        numbers = pixels[0].copy()
        numbers[numbers == VOID] = 0
    elif image.format.name in ("gray", "monob"):
        numbers = _from_grey(image.reformat(format="gray").to_ndarray(), file)
    else:
        numbers = _from_colours(image.reformat(format="rgb24").to_ndarray(), image.format.name, file)
    return torch.from_numpy(np.ascontiguousarray(numbers))


def write_mask(file: str | Path, mask: UInt8[Tensor, "H W"]) -> None:
    """Write object numbers as a palette PNG."""
    opaque = np.full((256, 1), 255, np.uint8)
    picture: Any = (np.ascontiguousarray(mask.numpy()), np.concatenate([opaque, PALETTE.numpy()], axis=1))
    write_png(file, VideoFrame.from_ndarray(picture, format="pal8"))


def object_numbers(mask: UInt8[Tensor, "H W"]) -> list[int]:
    """Which objects a mask shows, in order."""
    return (torch.bincount(mask.flatten(), minlength=1)[1:].nonzero().flatten() + 1).tolist()


def one_hot(mask: UInt8[Tensor, "H W"], objects: list[int]) -> Float[Tensor, "o H W"]:
    """One layer for the background, then one for each object; other numbers count as background."""
    layers: Bool[Tensor, "o H W"] = mask[None] == torch.tensor(objects, dtype=torch.uint8)[:, None, None]
    return torch.cat((~layers.any(dim=0, keepdim=True), layers)).float()


def outline(mask: Bool[Tensor, "H W"]) -> Bool[Tensor, "H W"]:
    """Pixels that differ from their neighbour to the right, below, or diagonally below to the right.

    Beyond the last row and column the mask goes on as it is there, so an object cut off by the image has no outline
    along the cut.
    """
    wide = F.pad(mask[None].float(), (0, 1, 0, 1), mode="replicate")[0] > 0.5
    here = wide[:-1, :-1]
    return (here ^ wide[:-1, 1:]) | (here ^ wide[1:, :-1]) | (here ^ wide[1:, 1:])


def _from_colours(pixels: UInt8[np.ndarray, "H W 3"], name: str, file: Path) -> UInt8[np.ndarray, "H W"]:
    """Black and white, which paint programs save in colours, possibly with transparency."""
    if np.isin(pixels, (0, 255)).all() and (pixels == pixels[..., :1]).all():
        return _from_grey(np.ascontiguousarray(pixels[..., 0]), file)
    raise MaskError(
        f"{file}: its pixels are {name}; a mask is a palette image (object numbers) or black and white. Save it as "
        "indexed colours (mode P), or one object as white on black."
    )


def _from_grey(pixels: UInt8[np.ndarray, "H W"], file: Path) -> UInt8[np.ndarray, "H W"]:
    """White is object 1. Small numbers are object numbers, which some tools write without a palette."""
    shades = np.unique(pixels)
    if shades[-1] == 255 and len(shades) <= 2:
        white: UInt8[np.ndarray, "H W"] = (pixels == 255).astype(np.uint8)
        return white
    if shades[-1] < 32:
        return pixels
    raise MaskError(
        f"{file}: holds {len(shades)} shades of grey up to {shades[-1]}; a grey mask is 0 and 255, or object numbers "
        f"below 32."
    )


def _palette() -> UInt8[Tensor, "256 3"]:
    """The colours of PASCAL VOC and DAVIS: the bits of the index, three at a time, are the high bits of R, G and B."""
    index = torch.arange(256)
    colours = torch.zeros(256, 3, dtype=torch.long)
    for place in range(8):
        for channel in range(3):
            colours[:, channel] |= ((index >> (3 * place + channel)) & 1) << (7 - place)
    return colours.to(torch.uint8)


PALETTE = _palette()


def write_png(file: str | Path, picture: VideoFrame) -> None:
    """Store a picture in the pixel format it has: `pal8` and `rgb24` are among those a PNG can hold."""
    codec = CodecContext.create("png", "w")
    assert isinstance(codec, VideoCodecContext)
    codec.height, codec.width = picture.height, picture.width
    codec.pix_fmt = picture.format.name
    codec.time_base = Fraction(1)  # the encoder asks for one, though a picture has no time
    packets = [*codec.encode(picture), *codec.encode(None)]
    write_atomically(Path(file), b"".join(bytes(packet) for packet in packets))
