"""Video and sound together: features for video-to-audio models, the offset between the two, and the DeSync score."""

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from motionformer.errors import EvaluationError, VideoError
from motionformer.inference.features import FeatureExtractor
from motionformer.inference.scorer import Precision, Scorer
from motionformer.models import Motionformer, Synchformer
from motionformer.video import ReadFacts
from motionformer.video.resample import Resample
from motionformer.video.sound import segments_of, spectrograms, stream_sound
from motionformer.video.stream import FrameStream
from motionformer.weights import load_synchformer

_SECONDS = 0.32
"""From segment to segment."""


class SyncFeatures:
    """The features of videos that video-to-audio models (MMAudio and its successors) condition on.

    Args:
        model: what `load_model` makes of a Synchformer, a `Synchformer`, or a name or path of one.
        device: where to compute; the model is moved there. [default: where the model is]
        precision: "32", "bf16" or "16".
        batch_size: segments per forward pass: memory grows with it, and not with the video.
        resample: how videos are read at 25 frames per second: "clock", as MMAudio's demo does, or "filter", FFmpeg's,
            as data sets and metrics do. These are not the same frames.
        seconds: how much of a video is read. [default: all]
        time_limit: seconds for opening a file.

    Raises:
        EvaluationError: the model gives no such features.

    Example:
        ```python
        net = load_model("synchformer")
        SyncFeatures(net)("clip.mp4")  # [1, S·8, 768]: 24 segments for 8 seconds
        ```
    """

    def __init__(
        self,
        model: Motionformer | Synchformer | str | Path,
        *,
        device: str | torch.device | None = None,
        precision: Precision = "32",
        batch_size: int = 4,
        resample: Resample = "clock",
        seconds: float | None = None,
        time_limit: float = 30.0,
    ) -> None:
        self.extractor = FeatureExtractor(
            model.visual if isinstance(model, Synchformer) else model,
            device=device,
            precision=precision,
            batch_size=batch_size,
            what="frames",
            resample=resample,
            seconds=seconds,
            time_limit=time_limit,
        )

    def __call__(self, video: Any, *, fps: float | None = None) -> Float[Tensor, "1 n c"]:
        """Features of a video, segment after segment.

        Args:
            video: one video, as `Predictor` takes it.
            fps: of frames in memory. [default: 25]

        Raises:
            VideoError: it cannot be read, or is shorter than a segment (0.64 s).
        """
        return torch.cat(list(self.stream(video, fps=fps))).flatten(0, 1)[None]

    def stream(self, video: Any, *, fps: float | None = None) -> Iterator[Float[Tensor, "s f c"]]:
        """The same, a batch of segments at a time: memory does not grow with the video."""
        for part in self.extractor.stream(video, fps=fps):
            yield torch.from_numpy(part.values)


@dataclass(frozen=True)
class SyncWindow:
    """What was predicted for one stretch of a video.

    Args:
        start: in seconds.
        end: in seconds.
        offset: seconds by which the sound is early; below zero it is late.
        confidence: the probability of this offset.
    """

    start: float
    end: float
    offset: float
    confidence: float


@dataclass(frozen=True)
class SyncPrediction:
    """By how much a video's sound is early or late.

    Args:
        offset: seconds by which the sound is early; below zero it is late.
        confidence: its probability, the mean over the windows.
        windows: each by itself.
        segments: of 0.64 s, every 0.32 s, that video and sound both have.
        facts: how many frames of a segment differ, and whether the video is damaged.
    """

    offset: float
    confidence: float
    windows: tuple[SyncWindow, ...]
    segments: int
    facts: ReadFacts

    @property
    def desync(self) -> float:
        """The mean of the windows' offsets, without their signs, in seconds."""
        return sum(abs(window.offset) for window in self.windows) / len(self.windows)

    def to_dict(self) -> dict[str, Any]:
        """Plain values."""
        windows = [{name: round(value, 4) for name, value in vars(window).items()} for window in self.windows]
        summary = {"offset": self.offset, "confidence": round(self.confidence, 4), "desync": round(self.desync, 4)}
        return {**summary, "segments": self.segments, "windows": windows, **self.facts.to_dict()}


class SyncPredictor:
    """Predicts the offset between a video and its sound, from stretches of 14 segments (4.8 s).

    Args:
        model: a `Synchformer`, or the name or path of one, as `load_synchformer` takes it.
        device: where to compute; the model is moved there. [default: where the model is]
        precision: "32", "bf16" or "16".
        batch_size: segments per forward pass.
        resample: as of `SyncFeatures`. Synchformer was trained, and DeSync is measured, on frames of the "filter".
        every: a stretch every so many seconds. [default: the first and the last, as DeSync takes them]
        seconds: how much of a video is read. [default: all]
        time_limit: seconds for opening a file.

    Raises:
        EvaluationError: options that make no sense.

    Example:
        ```python
        predictor = SyncPredictor("synchformer_state_dict.pth")
        predictor("clip.mp4").offset  # seconds by which the sound is early
        ```
    """

    def __init__(
        self,
        model: Synchformer | str | Path = "synchformer",
        *,
        device: str | torch.device | None = None,
        precision: Precision = "32",
        batch_size: int = 4,
        resample: Resample = "filter",
        every: float | None = None,
        seconds: float | None = None,
        time_limit: float = 30.0,
    ) -> None:
        if every is not None and not 0 < every < float("inf"):
            raise EvaluationError(f"`every` ({every:g}) must be a number of seconds above 0.")
        self.model = model if isinstance(model, Synchformer) else load_synchformer(model)
        self.scorer = Scorer(self.model.eval(), device, batch_size=batch_size, precision=precision)
        self.features = FeatureExtractor(
            self.model.visual,
            device=self.scorer.device,
            precision=precision,
            batch_size=batch_size,
            what="frames",
            resample=resample,
            seconds=seconds,
            time_limit=time_limit,
        )
        self.time_limit = time_limit
        self.step = None if every is None else max(1, round(every / _SECONDS))

    def __call__(self, video: str | PathLike[str], sound: str | PathLike[str] | None = None) -> SyncPrediction:
        """The offset of a video file's sound.

        Args:
            video: a file.
            sound: another file with the sound, which begins with the video. [default: the video's own]

        Raises:
            VideoError: one cannot be read, has no sound, or is shorter than 14 segments.
        """
        scores, windows, facts = [], [], []
        held: deque[_Segment] = deque(maxlen=self.model.config.num_segments)
        for start, logits, read in self._windows(held, Path(video), None if sound is None else Path(sound)):
            probabilities = self.scorer.check_finite(logits.float().softmax(dim=-1), "output").cpu().double().numpy()
            best = int(probabilities.argmax())
            end = start + (self.model.config.num_segments + 1) * _SECONDS
            windows.append(SyncWindow(start, end, self.model.offsets[best], float(probabilities[best])))
            scores.append(probabilities)
            facts.append(read)
        mean = np.mean(scores, axis=0)
        best = int(mean.argmax())
        together = ReadFacts.together(facts)
        return SyncPrediction(self.model.offsets[best], float(mean[best]), tuple(windows), held[-1].number, together)

    def describe(self) -> dict[str, Any]:
        """How predictions are made, in plain values."""
        every = None if self.step is None else round(self.step * _SECONDS, 2)
        made = {"resample": self.features.resample, "every": every, "seconds": self.features.seconds}
        return {**made, "precision": self.scorer.precision}

    def _windows(
        self, held: "deque[_Segment]", video: Path, sound: Path | None
    ) -> Iterator[tuple[float, Tensor, ReadFacts]]:
        """Start, logits and facts of every stretch; the segments of the latest are `held`.

        Segments are encoded when it is known that their stretch is wanted.
        """
        wanted, count, last = self.model.config.num_segments, 0, 0
        with self.features.open_at_rate(video) as stream:
            seen = self.features.overlapping(stream)
            for (times, clip, facts), wave in zip(seen, self._heard(stream, video, sound), strict=False):
                count += 1
                held.append(_Segment(count, times[0], clip, wave, facts))
                is_due = count == wanted if self.step is None else count >= wanted and (count - wanted) % self.step == 0
                if is_due:
                    last = count
                    yield self._compare(held)
        if count < wanted:
            raise VideoError(
                f"is too short: video and sound have {count} segments together, a prediction takes {wanted} "
                f"({(wanted + 1) * _SECONDS:g} s)",
                video,
            )
        if self.step is None and count > last:
            yield self._compare(held)

    def _heard(self, stream: FrameStream, video: Path, sound: Path | None) -> Iterator[Tensor]:
        """Segments of the sound, from where the video begins: known once its first frame has come."""
        start = stream.start if sound is None else 0.0
        yield from segments_of(stream_sound(sound or video, start=start, time_limit=self.time_limit))

    @torch.inference_mode()
    def _compare(self, held: "Sequence[_Segment]") -> tuple[float, Tensor, ReadFacts]:
        new = [segment for segment in held if segment.features is None]
        for some in (new[i : i + self.scorer.batch_size] for i in range(0, len(new), self.scorer.batch_size)):
            mel = spectrograms(torch.stack([segment.wave for segment in some]).to(self.scorer.device))
            with self.scorer.computing(len(some)):
                seen = self.features.encode(torch.stack([segment.clip for segment in some]))
                heard = self.model.audio_features(mel[:, None])[:, 0]
            for segment, *both in zip(some, seen, heard, strict=True):
                segment.features = (both[0], both[1])
        seen, heard = (torch.stack([segment.features[i] for segment in held if segment.features]) for i in (0, 1))
        with self.scorer.computing(1):
            logits = self.model.compare(seen[None], heard[None])[0]
        return held[0].start, logits, ReadFacts.together(segment.facts for segment in held)


@dataclass
class _Segment:
    number: int
    """From 1."""
    start: float
    clip: Tensor
    wave: Tensor
    facts: ReadFacts
    features: tuple[Tensor, Tensor] | None = None


def desync_score(offsets: Sequence[Sequence[float]]) -> float:
    """The DeSync score of a set of videos: the mean of the offsets predicted for their stretches, without signs.

    Args:
        offsets: in seconds, of every video those of its first and its last stretch. Lower scores are better.

    Raises:
        EvaluationError: there is no video.

    Example:
        >>> desync_score([[0.4, 0.2], [-1.0, 0.8]])
        0.6
    """
    sizes = [abs(offset) for video in offsets for offset in video]
    if not sizes:
        raise EvaluationError("a DeSync score is of one video at least.")
    return round(sum(sizes) / len(sizes), 10)
