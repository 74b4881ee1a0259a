"""START HERE: a DAVIS folder and a tracker → masks and scores."""

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jaxtyping import UInt8
from torch import Tensor

from motionformer.errors import MaskError
from motionformer.experiments.davis.layout import Sequence, mask_files
from motionformer.experiments.davis.score import ObjectScore, Scores, score_sequence
from motionformer.tracking.masks import check_no_overwrite, check_output_kind, read_mask
from motionformer.tracking.tracker import Tracker, check_first_mask, track_and_write
from motionformer.video import open_video

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
    check_evaluate_output(sequences, masks, overlays)
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
        timed = TimedTracker(tracker, after_frame)
        running = track_and_write(
            sequence.folder,
            read_mask(sequence.masks[0]),
            timed,
            masks=None if masks is None else masks / sequence.name,
            names=[file.name for file in sequence.masks],
            overlay=None if overlays is None else overlays / f"{sequence.name}.mp4",
            fps=DAVIS_RATE,
        )
        with closing(running) as predicted:
            truth = map(read_mask, sequence.masks)
            scores = score_sequence(sequence.name, predicted, truth, single_object=single_object)
        yield sequence, scores, timed.seconds


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
        predicted_masks, truth = map(read_mask, predicted), map(read_mask, sequence.masks)
        yield sequence, score_sequence(sequence.name, predicted_masks, truth, single_object=single_object)


def _predicted(folder: Path, sequence: Sequence) -> list[Path]:
    """A mask for each true one. The first and the last frame do not count: there the truth may stand in."""
    there = {file.name: file for file in mask_files(folder)}
    missing = sorted({file.name for file in sequence.masks[1:-1]} - there.keys())
    if missing:
        raise MaskError(f"{folder}: {missing[0]} is missing ({len(missing)} in all).")
    return [there.get(file.name, file) for file in sequence.masks]


def check_evaluate_output(sequences: Iterable[Sequence], masks: Path | None, overlays: Path | None = None) -> None:
    """Refuse to write masks of sequences onto their true masks, or among their frames."""
    for sequence in sequences:
        if overlays is not None:
            check_output_kind("--overlay", overlays / f"{sequence.name}.mp4", is_file=True)
        if masks is not None:
            output = masks / sequence.name
            check_output_kind("--masks", output, is_file=False)
            check_no_overwrite("--masks", output, sequence.masks[0].parent, "the folder of the true masks")
            check_no_overwrite("--masks", output, sequence.folder, "the folder of the frames")


class TimedTracker(Tracker):
    """Adds up the seconds that a tracker takes, and not what is done with its masks; `after_frame` hears of each."""

    def __init__(self, tracker: Tracker, after_frame: Callable[[], object]) -> None:
        self.tracker, self.after_frame = tracker, after_frame
        self.seconds = 0.0

    def track(
        self, frames: Iterable[UInt8[Tensor, "H W 3"]], first: UInt8[Tensor, "H W"]
    ) -> Iterator[UInt8[Tensor, "H W"]]:
        source = self.tracker.track(frames, first)
        while True:
            started = time.perf_counter()
            mask = next(source, None)
            self.seconds += time.perf_counter() - started
            if mask is None:
                return
            yield mask
            self.after_frame()
