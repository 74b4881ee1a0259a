"""START HERE: a DAVIS folder and a tracker → scores; a video and a first mask → masks. Streams frame by frame."""

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import count, tee
from pathlib import Path
from typing import Any

from jaxtyping import UInt8
from torch import Tensor

from motionformer.errors import MaskError
from motionformer.experiments.davis.layout import Sequence, mask_files
from motionformer.experiments.davis.places import check_evaluate_places, check_track_places
from motionformer.experiments.davis.score import ObjectScore, Scores, score_sequence
from motionformer.tracking.masks import object_numbers, read_mask, write_mask
from motionformer.tracking.overlay import OverlayWriter
from motionformer.tracking.tracker import Tracker
from motionformer.video import Video, open_video
from motionformer.video.stream import stream_video

DAVIS_RATE = 24.0


@dataclass(frozen=True)
class Evaluation:
    """Scores, and how long the masks took (decoding, features, propagation), if they were made and not read."""

    scores: Scores
    num_frames: int
    seconds: float | None

    def to_dict(self) -> dict[str, Any]:
        speed = None if self.seconds is None else self.seconds / self.num_frames
        return {**self.scores.to_dict(), "num_frames": self.num_frames, "seconds_per_frame": speed}


def evaluate(
    sequences: Iterable[Sequence],
    tracker: Tracker,
    *,
    single_object: bool = False,
    masks: Path | None = None,
    overlays: Path | None = None,
    after_frame: Callable[[], object] = lambda: None,
) -> Iterator[tuple[Sequence, list[ObjectScore], float]]:
    """Follow the first mask through each sequence and score it; yields sequence, scores and seconds as they come.

    Predicted masks go to `masks/<sequence>/00000.png`, as DAVIS wants them, and overlay videos to
    `overlays/<sequence>.mp4`, where these are given; what is read is not written over. First masks that cannot be
    followed are refused before anything is. `after_frame` is called after each.
    """
    sequences = list(sequences)
    check_evaluate_places(sequences, masks, overlays)
    for sequence in sequences:
        with open_video(sequence.folder) as video:
            check_first_mask(read_mask(sequence.masks[0]), video, sequence.masks[0])
    return _evaluate(sequences, tracker, single_object, masks, overlays, after_frame)


def _evaluate(
    sequences: list[Sequence],
    tracker: Tracker,
    single_object: bool,
    masks: Path | None,
    overlays: Path | None,
    after_frame: Callable[[], object],
) -> Iterator[tuple[Sequence, list[ObjectScore], float]]:
    for sequence in sequences:
        clock = Stopwatch()
        with stream_video(sequence.folder) as video, ExitStack() as stack:
            frames, again = tee(video.frames)
            guesses: Iterable[Tensor] = clock.measure(tracker.track(frames, read_mask(sequence.masks[0])))
            guesses = _tell_each(guesses, after_frame)
            if masks is not None:
                guesses = keep_masks(guesses, masks / sequence.name, [file.name for file in sequence.masks])
            if overlays is not None:
                writer = stack.enter_context(OverlayWriter(overlays / f"{sequence.name}.mp4", fps=DAVIS_RATE))
                guesses = keep_overlay(guesses, again, writer)
            else:
                del again  # nobody else reads the frames: a copy that is kept would grow with the video
            truth = map(read_mask, sequence.masks)
            scores = score_sequence(sequence.name, guesses, truth, single_object=single_object)
        yield sequence, scores, clock.seconds


def score_folders(
    predictions: Path, sequences: Iterable[Sequence], *, single_object: bool = False
) -> Iterator[tuple[Sequence, list[ObjectScore]]]:
    """Score masks that lie in `predictions/<sequence>/`, one for each frame that counts and named like the true one.

    What is missing is told before anything is scored.
    """
    files = {sequence: _predicted(predictions / sequence.name, sequence) for sequence in sequences}
    return _score_folders(files, single_object)


def _score_folders(
    files: dict[Sequence, list[Path]], single_object: bool
) -> Iterator[tuple[Sequence, list[ObjectScore]]]:
    for sequence, predicted in files.items():
        guesses, truth = map(read_mask, predicted), map(read_mask, sequence.masks)
        yield sequence, score_sequence(sequence.name, guesses, truth, single_object=single_object)


def _predicted(folder: Path, sequence: Sequence) -> list[Path]:
    """A mask for each true one. The first and the last frame do not count: there the truth may stand in."""
    there = {file.name: file for file in mask_files(folder)}
    missing = sorted({file.name for file in sequence.masks[1:-1]} - there.keys())
    if missing:
        raise MaskError(f"{folder}: {missing[0]} is missing ({len(missing)} in all).")
    return [there.get(file.name, file) for file in sequence.masks]


def track_video(
    video: Video, first: UInt8[Tensor, "H W"], tracker: Tracker, *, masks: Path | None, overlay: Path | None
) -> Iterator[UInt8[Tensor, "H W"]]:
    """Masks of a whole video from that of its first frame, written where asked while they come."""
    check_track_places(video.path, None, masks=masks, overlay=overlay)
    return _track_video(video, first, tracker, masks, overlay)


def _track_video(
    video: Video, first: UInt8[Tensor, "H W"], tracker: Tracker, masks: Path | None, overlay: Path | None
) -> Iterator[UInt8[Tensor, "H W"]]:
    with stream_video(video.path) as stream, ExitStack() as stack:
        frames, again = tee(stream.frames)
        guesses: Iterable[Tensor] = tracker.track(frames, first)
        if masks is not None:
            guesses = keep_masks(guesses, masks, (f"{i:05d}.png" for i in count()))
        if overlay is not None:
            writer = stack.enter_context(OverlayWriter(overlay, fps=video.metadata.fps))
            guesses = keep_overlay(guesses, again, writer)
        else:
            del again
        yield from guesses


def check_first_mask(mask: UInt8[Tensor, "H W"], video: Video, file: Path) -> None:
    """Refuse a mask that shows nothing or is not the size of the frames."""
    size = (video.metadata.height, video.metadata.width)
    if tuple(mask.shape) != size:
        raise MaskError(
            f"{file}: the mask is {mask.shape[1]} × {mask.shape[0]}, the frames of {video.path} are "
            f"{size[1]} × {size[0]}."
        )
    if not object_numbers(mask):
        raise MaskError(
            f"{file}: the mask shows no object, so there is nothing to follow: 0 is background, and 255 of a palette"
            " belongs to nobody."
        )


def keep_masks(guesses: Iterable[Tensor], folder: Path, names: Iterable[str]) -> Iterator[Tensor]:
    """Write each mask on its way through."""
    folder.mkdir(parents=True, exist_ok=True)
    for guess, name in zip(guesses, names, strict=False):
        write_mask(folder / name, guess)
        yield guess


def keep_overlay(guesses: Iterable[Tensor], frames: Iterable[Tensor], writer: OverlayWriter) -> Iterator[Tensor]:
    """Write each mask over its frame on its way through."""
    for guess, frame in zip(guesses, frames, strict=True):
        writer.add(frame, guess)
        yield guess


def _tell_each(guesses: Iterable[Tensor], after_frame: Callable[[], object]) -> Iterator[Tensor]:
    for guess in guesses:
        yield guess
        after_frame()


class Stopwatch:
    """Adds up the time that an iterator takes, and not what is done with its items."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def measure(self, items: Iterable[Tensor]) -> Iterator[Tensor]:
        source = iter(items)
        while True:
            started = time.perf_counter()
            item = next(source, None)
            self.seconds += time.perf_counter() - started
            if item is None:
                return
            yield item
