"""Masks as files (a PNG whose pixels are object numbers, 0 for the background), and masks drawn over their frames.

DAVIS 2017 stores palette images (the number is the index), DAVIS 2016 grey ones of 0 and 255. Both are read and the
former is written, with the palette that DAVIS uses. PyAV reads and writes them, as it does the frames.
"""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from fractions import Fraction
from pathlib import Path
from types import TracebackType
from typing import Any

import av
import numpy as np
import torch
import torch.nn.functional as F
from av import CodecContext, VideoFrame
from av.video.codeccontext import VideoCodecContext
from av.video.stream import VideoStream
from jaxtyping import Bool, UInt8
from torch import Tensor

from motionformer.errors import MaskError, VideoError
from motionformer.runs import make_folder, write_atomically
from motionformer.video.container import wrap_decoder_errors
from motionformer.video.images import decode_image

_VOID = 255  # of palette masks: unlabelled; background in the semi-supervised protocol


def read_mask(file: str | Path) -> UInt8[Tensor, "H W"]:
    """Read the object number of each pixel.

    Args:
        file: a PNG: a palette image (the index is the object), or grey: 0 and 255, or object numbers below 32.

    Returns:
        Object numbers, 0 for the background.

    Raises:
        MaskError: the file cannot be read, or is no mask (colours, shades of grey).

    Example:
        >>> write_mask("first.png", torch.tensor([[0, 2], [2, 1]], dtype=torch.uint8))
        >>> read_mask("first.png").unique()
        tensor([0, 1, 2], dtype=torch.uint8)
    """
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
        numbers[numbers == _VOID] = 0
    elif image.format.name in ("gray", "monob"):
        numbers = _from_grey(image.reformat(format="gray").to_ndarray(), file)
    else:
        numbers = _from_colours(image.reformat(format="rgb24").to_ndarray(), image.format.name, file)
    return torch.from_numpy(np.ascontiguousarray(numbers))


def write_mask(file: str | Path, mask: UInt8[Tensor, "H W"]) -> None:
    """Write object numbers as a palette PNG, in the colours of DAVIS.

    Args:
        file: to write.
        mask: object numbers, 0 for the background.
    """
    opaque = np.full((256, 1), 255, np.uint8)
    picture: Any = (np.ascontiguousarray(mask.numpy()), np.concatenate([opaque, PALETTE.numpy()], axis=1))
    write_png(file, VideoFrame.from_ndarray(picture, format="pal8"))


def object_numbers(mask: UInt8[Tensor, "H W"]) -> list[int]:
    """The objects of a mask, ascending."""
    return (torch.bincount(mask.flatten(), minlength=1)[1:].nonzero().flatten() + 1).tolist()


def outline(mask: Bool[Tensor, "H W"]) -> Bool[Tensor, "H W"]:
    """Pixels that differ from their neighbour to the right, below, or diagonally below to the right.

    The mask is replicated beyond the last row and column, so an object cut off by the image has no outline
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
    for bit in range(8):
        for channel in range(3):
            colours[:, channel] |= ((index >> (3 * bit + channel)) & 1) << (7 - bit)
    return colours.to(torch.uint8)


PALETTE = _palette()


def write_png(file: str | Path, picture: VideoFrame) -> None:
    """Store a picture in the pixel format it has: `pal8` and `rgb24` are among those a PNG can hold."""
    codec = CodecContext.create("png", "w")
    assert isinstance(codec, VideoCodecContext)
    codec.height, codec.width = picture.height, picture.width
    codec.pix_fmt = picture.format.name
    codec.time_base = Fraction(1)  # the encoder needs one, though a picture has no time
    packets = [*codec.encode(picture), *codec.encode(None)]
    write_atomically(Path(file), b"".join(bytes(packet) for packet in packets))


def paint(frame: UInt8[Tensor, "H W 3"], mask: UInt8[Tensor, "H W"], opacity: float = 0.45) -> UInt8[Tensor, "H W 3"]:
    """The frame with each object tinted in its colour and outlined in white."""
    colour = PALETTE[mask.long()].float()
    tinted = frame + opacity * (mask > 0)[..., None] * (colour - frame)
    edges = torch.stack([outline(mask == number) for number in mask.unique()]).any(dim=0)
    return torch.where(edges[..., None], torch.tensor(255.0), tinted).round().to(torch.uint8)


class OverlayWriter:
    """Frames and masks one at a time, into an mp4 file or (any other name) a folder of numbered PNG files.

    An mp4 gets its name when it is complete: until then it is `NAME.mp4.part`, which an error removes. Of a video that
    cannot be read to its end, the part that could is kept as `NAME.partial.mp4`.
    """

    def __init__(self, target: str | Path, *, fps: float = 24.0) -> None:
        self.target = Path(target)
        self.part = self.target.with_name(self.target.name + ".part")
        self.fps = fps
        self.count = 0
        self.container: av.container.OutputContainer | None = None
        self.stream: VideoStream | None = None
        is_video = self.target.suffix.lower() == ".mp4"
        make_folder(self.target.parent if is_video else self.target)
        if is_video:
            self.part.touch()  # libav opens it with the first packet, after minutes of work
            self.container = av.open(str(self.part), "w", format="mp4")

    def add(self, frame: UInt8[Tensor, "H W 3"], mask: UInt8[Tensor, "H W"]) -> None:
        picture = paint(frame, mask)
        if self.container is None:
            write_png(self.target / f"{self.count:05d}.png", _as_frame(picture))
        else:
            even = picture[: picture.shape[0] // 2 * 2, : picture.shape[1] // 2 * 2]  # H.264 halves colour
            if self.stream is None:
                self.stream = self._start(even)
            with self._named():
                self.container.mux(self.stream.encode(_as_frame(even)))
        self.count += 1

    @property
    def partial(self) -> Path:
        """The name of a video that could not be finished."""
        return self.target.with_suffix(".partial.mp4")

    def close(self, *, is_complete: bool = True) -> None:
        if self.container is None:
            return
        with self._named():
            if self.stream is not None:
                self.container.mux(self.stream.encode())
            self.container.close()
        self.container = None
        self.part.replace(self.target if is_complete else self.partial)

    def discard(self) -> None:
        """End without the video."""
        if self.container is not None:
            with suppress(av.FFmpegError):  # the file is deleted anyway
                self.container.close()
            self.container = None
            self.part.unlink(missing_ok=True)

    @contextmanager
    def _named(self) -> Iterator[None]:
        """Errors of writing name the file, and leave no file behind."""
        try:
            yield
        except av.FFmpegError as error:
            self.discard()
            raise OSError(error.errno, error.strerror, str(self.target)) from error

    def _start(self, picture: Tensor) -> VideoStream:
        assert self.container is not None
        stream = self.container.add_stream(
            "libx264", rate=Fraction(self.fps).limit_denominator(1001), options={"crf": "18"}
        )
        assert isinstance(stream, VideoStream)
        stream.height, stream.width = picture.shape[:2]
        stream.pix_fmt = "yuv420p"
        return stream

    def __enter__(self) -> "OverlayWriter":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.close()
        elif issubclass(kind, VideoError) and self.count:
            self.close(is_complete=False)
        else:
            self.discard()


def _as_frame(picture: UInt8[Tensor, "H W 3"]) -> VideoFrame:
    return VideoFrame.from_ndarray(picture.contiguous().numpy(), format="rgb24")


def check_output_kind(option: str, output: Path, *, is_file: bool) -> None:
    """Raise `MaskError` for a folder where a file is needed, and a file where a folder is needed."""
    if is_file and output.is_dir():
        raise MaskError(f"{option}: {output} is a folder, and the mp4 to write is a file; choose another name.")
    for folder in (*([] if is_file else [output]), *output.parents):
        if folder.exists() and not folder.is_dir():
            raise MaskError(f"{option}: {folder} is a file, and a folder is needed there; choose another name.")


def check_no_overwrite(option: str, output: Path, taken: Path, what: str) -> None:
    """Raise `MaskError` if `output` is `taken`, also by another name or a link."""
    is_link = output.exists() and taken.exists() and output.samefile(taken)
    if is_link or output.resolve() == taken.resolve():
        raise MaskError(f"{option}: {output} is {what}; write somewhere else.")
