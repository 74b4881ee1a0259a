"""Small real videos, made here: nothing is downloaded, nothing is stored."""

from collections.abc import Callable, Sequence
from fractions import Fraction
from pathlib import Path

import av
import numpy as np
import pytest

from motionformer.data import ClipReader, FrameSampler
from motionformer.data.clips import ClipTransform
from motionformer.video.spec import InputSpec

WriteVideo = Callable[..., Path]


def raw_reader(sampler: FrameSampler, transforms: Sequence[ClipTransform] = ()) -> ClipReader:
    """Clips as decoded, or transformed as a whole: nothing is resized on the way."""
    return ClipReader(InputSpec(), sampler=sampler, transforms=transforms)


def write_video(
    path: Path,
    num_frames: int = 20,
    fps: int = 30,
    size: tuple[int, int] = (32, 48),
    times: Sequence[int] | None = None,
) -> Path:
    """A video whose frame i is grey with the value 8 i + 8: brightness tells which frame it is.

    `times` are the frames' own in milliseconds, for a rate that varies.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with av.open(str(path), "w") as container:
        stream = container.add_stream("libx264", rate=fps)
        stream.height, stream.width = size
        stream.pix_fmt = "yuv420p"
        if times is not None:
            stream.codec_context.time_base = Fraction(1, 1000)
        for index in range(num_frames):
            picture = np.full((*size, 3), min(8 * index + 8, 250), np.uint8)
            frame = av.VideoFrame.from_ndarray(picture, format="rgb24")
            if times is not None:
                frame.pts, frame.time_base = times[index], Fraction(1, 1000)
            container.mux(stream.encode(frame))
        container.mux(stream.encode())
    return path


@pytest.fixture(scope="session")
def make_video() -> WriteVideo:
    return write_video


@pytest.fixture
def touch() -> Callable[..., None]:
    """Empty files in place of videos, for readers that only look at names."""

    def touch(*paths: Path) -> None:
        for path in paths:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch()

    return touch
