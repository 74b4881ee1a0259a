"""The sound of a file → a waveform at 16 kHz → the spectrograms that Synchformer's audio half takes.

Segments of 0.64 s every 0.32 s, as many samples as 16 and 8 frames at 25 per second. Channels are averaged; the rate is
changed by FFmpeg's resampler, whose samples differ slightly from other resamplers'.
"""

import math
from collections.abc import Iterable, Iterator
from contextlib import closing
from functools import cache
from itertools import chain
from os import PathLike
from pathlib import Path

import torch
from av.audio.resampler import AudioResampler
from av.audio.stream import AudioStream
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import pad

from motionformer.errors import VideoError
from motionformer.video.container import SOUND, Deadline, open_container, wrap_decoder_errors

SAMPLE_RATE = 16_000
SEGMENT, HOP = 10_240, 5_120
"""Samples of a segment, and from segment to segment."""
_FFT, _WINDOW, _STRIDE, _BINS = 1024, 400, 160, 128
_FRAMES = 66
"""Of a spectrogram: one more than the segment has."""
_SMALLEST = 1e-6
_MEAN, _STD = -4.2677393, 4.5689974


def read_sound(
    path: str | PathLike[str], *, start: float = 0.0, time_limit: float | None = 30.0
) -> Float[Tensor, " n"]:
    """The waveform of a file, mono at 16 kHz; `stream_sound` gives it piece by piece.

    Args:
        path: of a video or a sound file.
        start: where it begins, in seconds of the file's own time; before the first sample there is silence.
        time_limit: seconds for opening it.

    Raises:
        VideoError: it cannot be read, or has no sound.

    Example:
        ```python
        spectrograms(segments_of([read_sound("clip.mp4")]))
        ```
    """
    return torch.cat(list(stream_sound(path, start=start, time_limit=time_limit)))


def stream_sound(
    path: str | PathLike[str], *, start: float = 0.0, time_limit: float | None = 30.0
) -> Iterator[Float[Tensor, " _"]]:
    """`read_sound`, as it is decoded."""
    path = Path(path)
    if path.is_dir():
        raise VideoError("a folder of frames has no sound", path)
    with closing(open_container(path, Deadline(time_limit), SOUND)) as container, wrap_decoder_errors(path):
        stream = container.streams.best("audio")
        if not isinstance(stream, AudioStream) or stream.codec_context is None:
            raise VideoError("has no sound track")
        resampler = AudioResampler(format="fltp", rate=SAMPLE_RATE)
        missing: int | None = None
        for frame in chain(container.decode(stream), [None]):  # None: what the resampler still holds
            if missing is None and frame is not None:  # samples of silence in front, or, below zero, to be left out
                missing = round(((frame.time or 0.0) - start) * SAMPLE_RATE)
                if missing > 0:
                    yield torch.zeros(missing)
            for resampled in resampler.resample(frame):
                samples = torch.from_numpy(resampled.to_ndarray()).mean(dim=0)
                skipped = min(len(samples), max(0, -(missing or 0)))
                missing = (missing or 0) + skipped
                yield samples[skipped:]


def segments_of(samples: Iterable[Float[Tensor, " _"]]) -> Iterator[Float[Tensor, " 10240"]]:
    """Every whole segment of a waveform that comes in pieces."""
    held = torch.empty(0)
    for piece in samples:
        held = torch.cat((held, piece))
        while len(held) >= SEGMENT:
            yield held[:SEGMENT]
            held = held[HOP:]


def spectrograms(segments: Float[Tensor, "s 10240"]) -> Float[Tensor, "s 1 128 66"]:
    """Logarithms of mel spectrograms, normalised. The last column is padding: a logarithm of zero, as in training."""
    window = torch.hann_window(_WINDOW, device=segments.device)
    spectrum = torch.stft(segments, _FFT, _STRIDE, _WINDOW, window, center=True, return_complex=True)
    power = spectrum.abs().square()
    mel = torch.einsum("sft,fm->smt", power, _mel_filters().to(segments.device))
    log = pad((mel + _SMALLEST).log(), (0, _FRAMES - mel.shape[-1]))
    return ((log - _MEAN) / (2 * _STD))[:, None]


@cache
def _mel_filters() -> Float[Tensor, "513 128"]:
    """Triangles of height one, their corners at equal distances on the mel scale (HTK's) from 0 to 8 kHz."""
    top = 2595 * math.log10(1 + SAMPLE_RATE / 2 / 700)
    corners = 700 * (10 ** (torch.linspace(0, top, _BINS + 2) / 2595) - 1)
    frequencies = torch.linspace(0, SAMPLE_RATE // 2, _FFT // 2 + 1)
    distance = corners[None] - frequencies[:, None]
    widths = corners.diff()
    rising, falling = -distance[:, :-2] / widths[:-1], distance[:, 2:] / widths[1:]
    return torch.minimum(rising, falling).clamp(min=0)
