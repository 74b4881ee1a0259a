"""What tracking writes: masks, and masks laid over their frames (pictures or a video); never over what is read."""

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from fractions import Fraction
from pathlib import Path
from types import TracebackType

import av
import torch
from av import VideoFrame
from av.video.stream import VideoStream
from jaxtyping import UInt8
from torch import Tensor

from motionformer.errors import MaskError, VideoError
from motionformer.tracking.masks import PALETTE, outline, write_mask, write_png


def paint(frame: UInt8[Tensor, "H W 3"], mask: UInt8[Tensor, "H W"], opacity: float = 0.45) -> UInt8[Tensor, "H W 3"]:
    """The frame with each object tinted in its colour and outlined in white."""
    colour = PALETTE[mask.long()].float()
    tinted = frame + opacity * (mask > 0)[..., None] * (colour - frame)
    edges = torch.stack([outline(mask == number) for number in mask.unique()]).any(dim=0)
    return torch.where(edges[..., None], torch.tensor(255.0), tinted).round().to(torch.uint8)


class OverlayWriter:
    """Frames and masks one at a time, into an mp4 file or (any other name) a folder of numbered PNG files.

    An mp4 has its name when it is whole: until then it is `NAME.mp4.part`, which an error removes. Of a video that
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
        (self.target.parent if is_video else self.target).mkdir(parents=True, exist_ok=True)
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
        """What a video is called that could not be finished."""
        return self.target.with_suffix(".partial.mp4")

    def close(self, *, is_whole: bool = True) -> None:
        if self.container is None:
            return
        with self._named():
            if self.stream is not None:
                self.container.mux(self.stream.encode())
            self.container.close()
        self.container = None
        self.part.replace(self.target if is_whole else self.partial)

    def discard(self) -> None:
        """End without the video."""
        if self.container is not None:
            with suppress(av.FFmpegError):  # what could not be written goes anyway
                self.container.close()
            self.container = None
            self.part.unlink(missing_ok=True)

    @contextmanager
    def _named(self) -> Iterator[None]:
        """Errors of writing name the file, and leave nothing."""
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
            self.close(is_whole=False)
        else:
            self.discard()


def _as_frame(picture: UInt8[Tensor, "H W 3"]) -> VideoFrame:
    return VideoFrame.from_ndarray(picture.contiguous().numpy(), format="rgb24")


def keep_masks(predicted: Iterable[Tensor], folder: Path, names: Iterable[str]) -> Iterator[Tensor]:
    """Write each mask on its way through."""
    folder.mkdir(parents=True, exist_ok=True)
    for mask, name in zip(predicted, names, strict=False):
        write_mask(folder / name, mask)
        yield mask


def keep_overlay(predicted: Iterable[Tensor], frames: Iterable[Tensor], writer: OverlayWriter) -> Iterator[Tensor]:
    """Write each mask over its frame on its way through."""
    for mask, frame in zip(predicted, frames, strict=True):
        writer.add(frame, mask)
        yield mask


OTHER_VIDEOS = {".avi", ".gif", ".m4v", ".mkv", ".mov", ".mpg", ".ogv", ".webm"}


def check_track_output(video: Path, mask: Path | None, *, masks: Path | None, overlay: Path | None) -> None:
    """Refuse to write the masks or the overlay of a video onto the video, its frames, or its first mask."""
    for option, output in (("--masks", masks), ("--overlay", overlay)):
        if output is None:
            continue
        if option == "--overlay" and output.suffix.lower() in OTHER_VIDEOS:
            raise MaskError(f"--overlay: {output}: the video is an mp4 (or, without an ending, a folder of png files).")
        check_output_kind(option, output, is_file=option == "--overlay" and output.suffix.lower() == ".mp4")
        check_no_overwrite(option, output, video, "what is followed")
        if mask is not None and re.fullmatch(r"[0-9]{5,}", mask.stem):  # as the files written there are called
            check_no_overwrite(option, output, mask.parent, f"the folder of {mask}, which would be written over")
    if masks is not None and overlay is not None:
        check_no_overwrite("--overlay", overlay, masks, "the folder of --masks, whose files have the same names")


def check_output_kind(option: str, output: Path, *, is_file: bool) -> None:
    """Refuse a folder where a file is to be, and a file where a folder is to be."""
    if is_file and output.is_dir():
        raise MaskError(f"{option}: {output} is a folder, and the mp4 to write is a file; choose another name.")
    for folder in (*([] if is_file else [output]), *output.parents):
        if folder.exists() and not folder.is_dir():
            raise MaskError(f"{option}: {folder} is a file, and a folder is needed there; choose another name.")


def check_no_overwrite(option: str, output: Path, taken: Path, what: str) -> None:
    is_link = output.exists() and taken.exists() and output.samefile(taken)
    if is_link or output.resolve() == taken.resolve():
        raise MaskError(f"{option}: {output} is {what}; write somewhere else.")
