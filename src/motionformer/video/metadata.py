"""What a video says about itself once it is open: counts, rate, size, codec. Knows no decoder."""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise


@dataclass(frozen=True)
class VideoMetadata:
    """Facts about one video, as `read` will deliver it."""

    num_frames: int
    """Frames in presentation order; `read` takes 0 … num_frames − 1."""
    fps: float
    """Frames per second; the mean where the rate varies."""
    duration: float
    """Seconds from the first frame's appearance to the last one's end."""
    height: int
    """After rotation and pixel aspect: the height of what `read` returns."""
    width: int
    """After rotation and pixel aspect: the width of what `read` returns."""
    codec: str
    """FFmpeg's name of the codec (`h264`), or the image format of a folder (`jpg`)."""
    rotation: int
    """Degrees clockwise that were applied to show the frames upright: 0, 90, 180 or 270."""
    variable_rate: bool
    """Frames do not lie on one regular grid of times, so index / fps is not the time of a frame (`Video.clock` is)."""
    exact_count: bool
    """`num_frames` comes from decoding every frame; otherwise from the container's packets, one frame each."""


@dataclass(frozen=True)
class Timing:
    """Rate and length of a video, in seconds."""

    fps: float
    duration: float
    variable_rate: bool


def measure_timing(times: Sequence[int], tick: Fraction, announced_rate: Fraction | None) -> Timing:
    """Rate and length from the frames' own times (ascending, in ticks), the announced rate where they agree.

    Containers round times to ticks (a millisecond in Matroska), so the announced rate is the cleaner number for a
    regular video, and the only one for a single frame.
    """
    announced = float(announced_rate) if announced_rate and announced_rate > 0 else 0.0
    span = times[-1] - times[0] if times else 0
    if len(times) < 2 or span <= 0:
        fps = announced or 1.0
        return Timing(fps, len(times) / fps, variable_rate=False)
    steps = len(times) - 1
    measured = float(Fraction(steps, span) / tick)
    variable = is_uneven([after - before for before, after in pairwise(times)], tick)
    fps = announced if not variable and abs(announced - measured) < 0.01 * measured else measured
    return Timing(fps, len(times) / fps, variable)


def is_uneven(gaps: Sequence[int], tick: Fraction) -> bool:
    """Whether the gaps between frames differ by more than rounding explains: a tick or a millisecond.

    (Times often pass through milliseconds on their way.) A gap half as long again as another is one whatever the tick.
    """
    rounding = max(Fraction(1), Fraction(1, 1000) / tick)
    return max(gaps) - min(gaps) > rounding or 2 * max(gaps) >= 3 * min(gaps)
