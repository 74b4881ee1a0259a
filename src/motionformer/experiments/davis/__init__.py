"""START HERE: a DAVIS folder (paper, appendix) and a tracker → masks and scores. `score.py` has the metrics.

ROOT/JPEGImages/480p/<sequence>/00000.jpg …
ROOT/Annotations/480p/<sequence>/00000.png …
ROOT/ImageSets/2017/val.txt        one sequence per line
ROOT/ImageSets/480p/val.txt        DAVIS 2016: one frame and its mask per line
"""

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from jaxtyping import UInt8
from torch import Tensor

from motionformer.errors import MaskError
from motionformer.experiments.davis.score import ObjectScore, Scores, jaccard, score_sequence
from motionformer.logging import show_count
from motionformer.tracking.masks import check_no_overwrite, check_output_kind, read_mask
from motionformer.tracking.tracker import Tracker, check_first_mask, track_and_write
from motionformer.video import open_video
from motionformer.video.images import list_frames, number_of

__all__ = ["Evaluation", "Sequence", "check_outputs", "evaluate", "find_sequences", "jaccard", "score_folders"]

_FPS = 24.0
_LISTS: dict[int | None, tuple[str, ...]] = {
    2017: ("2017",),
    2016: ("2016", "480p"),
    None: ("2017", "2016", "480p"),
}
_MIN_FRAMES = 3  # scores leave out the first and the last


@dataclass(frozen=True)
class Sequence:
    """One video: a folder of frames, and a true mask for each, in the order of the frames."""

    name: str
    folder: Path
    masks: tuple[Path, ...]


@dataclass(frozen=True)
class Evaluation:
    """Scores, and the seconds that the masks took (decoding, features, propagation), if they were computed here."""

    scores: Scores
    num_frames: int
    seconds: float | None

    def to_dict(self) -> dict[str, Any]:
        speed = None if self.seconds is None else self.seconds / self.num_frames
        return {**self.scores.to_dict(), "num_frames": self.num_frames, "seconds_per_frame": speed}


def find_sequences(
    root: str | Path,
    *,
    year: int | None = None,
    split: str | None = None,
    names: tuple[str, ...] = (),
    resolution: str = "480p",
) -> list[Sequence]:
    """The sequences of a DAVIS folder: those named, or those of a list in `ImageSets`, or all that have masks."""
    root = Path(root)
    frames, masks = root / "JPEGImages" / resolution, root / "Annotations" / resolution
    for folder in (frames, masks):
        if not folder.is_dir():
            raise MaskError(
                f"{root} is not a DAVIS folder: it has no {folder.relative_to(root)}. Give the folder that holds"
                " JPEGImages and Annotations, and --resolution where it is not 480p."
            )
    if year not in _LISTS:
        raise MaskError(f"DAVIS was released in 2016 and 2017, not in {year}.")
    listed = _listed(root, year, split) if split else _folders(masks)
    names = tuple(dict.fromkeys(Path(name).name for name in names))  # once each, and without a slash at the end
    if split and (unknown := [name for name in names if name not in listed]):
        raise MaskError(f"{unknown[0]}: there is no such sequence in the list {split!r}; leave --split out.")
    return [_open_sequence(name, frames / name, masks / name) for name in names or listed]


def evaluate(
    sequences: Iterable[Sequence],
    tracker: Tracker,
    *,
    single_object: bool = False,
    masks: Path | None = None,
    overlays: Path | None = None,
    after_frame: Callable[[], object] = lambda: None,
) -> Iterator[tuple[Sequence, list[ObjectScore], float]]:
    """Track from the first mask of each sequence and score it; yields sequence, scores and seconds.

    Predicted masks go to `masks/<sequence>/00000.png`, as DAVIS expects them, and overlay videos to
    `overlays/<sequence>.mp4`, where these are given. All first masks and outputs are checked before any tracking.
    """
    sequences = list(sequences)
    check_outputs(sequences, masks, overlays)
    for sequence in sequences:
        with open_video(sequence.folder) as video:
            check_first_mask(read_mask(sequence.masks[0]), video, sequence.masks[0])

    def run() -> Iterator[tuple[Sequence, list[ObjectScore], float]]:
        for sequence in sequences:
            timed = _TimedTracker(tracker, after_frame)
            running = track_and_write(
                sequence.folder,
                read_mask(sequence.masks[0]),
                timed,
                masks=None if masks is None else masks / sequence.name,
                names=[file.name for file in sequence.masks],
                overlay=None if overlays is None else overlays / f"{sequence.name}.mp4",
                fps=_FPS,
            )
            with closing(running) as predicted:
                truth = map(read_mask, sequence.masks)
                scores = score_sequence(sequence.name, predicted, truth, single_object=single_object)
            yield sequence, scores, timed.seconds

    return run()


def score_folders(
    predictions: Path, sequences: Iterable[Sequence], *, single_object: bool = False
) -> Iterator[tuple[Sequence, list[ObjectScore]]]:
    """Score masks in `predictions/<sequence>/`, named like the true ones; missing ones raise before any is scored."""
    files = {sequence: _predicted_masks(predictions / sequence.name, sequence) for sequence in sequences}

    def run() -> Iterator[tuple[Sequence, list[ObjectScore]]]:
        for sequence, predicted in files.items():
            masks, truth = map(read_mask, predicted), map(read_mask, sequence.masks)
            yield sequence, score_sequence(sequence.name, masks, truth, single_object=single_object)

    return run()


def check_outputs(sequences: Iterable[Sequence], masks: Path | None, overlays: Path | None = None) -> None:
    """Raise `MaskError` if predicted masks would replace true masks or frames."""
    for sequence in sequences:
        if overlays is not None:
            check_output_kind("--overlay", overlays / f"{sequence.name}.mp4", is_file=True)
        if masks is not None:
            output = masks / sequence.name
            check_output_kind("--output", output, is_file=False)
            check_no_overwrite("--output", output, sequence.masks[0].parent, "the folder of the true masks")
            check_no_overwrite("--output", output, sequence.folder, "the folder of the frames")


class _TimedTracker(Tracker):
    """Adds up the seconds that a tracker takes, without what is done with its masks."""

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


def _predicted_masks(folder: Path, sequence: Sequence) -> list[Path]:
    """One for each true mask. The first and the last frame do not count: there the truth may stand in."""
    there = {file.name: file for file in _mask_files(folder)}
    missing = sorted({file.name for file in sequence.masks[1:-1]} - there.keys())
    if missing:
        raise MaskError(f"{folder}: {missing[0]} is missing ({len(missing)} in all).")
    return [there.get(file.name, file) for file in sequence.masks]


def _mask_files(folder: Path) -> tuple[Path, ...]:
    """In the order of their numbers."""
    files = [file for file in folder.glob("*.png") if not file.name.startswith(".")] if folder.is_dir() else []
    if not files:
        raise MaskError(f"{folder}: holds no masks (png files)." if folder.is_dir() else f"{folder}: no such folder.")
    return tuple(sorted(files, key=lambda file: (number_of(file) or 0, file.name)))


def _open_sequence(name: str, frames: Path, masks: Path) -> Sequence:
    if not frames.is_dir():
        raise MaskError(f"{frames}: there is no such sequence.")
    images = [file.stem for file in list_frames(frames)]
    if len(images) < _MIN_FRAMES:
        raise MaskError(
            f"{name}: {frames} holds {show_count(len(images), 'frame')}; scores leave out the first and the last, so it"
            f" needs {_MIN_FRAMES} or more. Leave it out with --split or --sequence."
        )
    files = {file.stem: file for file in _mask_files(masks)}
    missing = [stem for stem in images if stem not in files]
    if missing:
        raise MaskError(
            f"{masks}: no mask for {show_count(len(missing), 'frame')}, {missing[0]} the first;"
            " scores need a mask of every frame."
        )
    alone = sorted(files[stem].name for stem in files.keys() - set(images))
    if alone:
        raise MaskError(
            f"{masks}: no frame in {frames} for {show_count(len(alone), 'mask')}, {alone[0]} the first; a mask"
            " has its frame's name."
        )
    return Sequence(name, frames, tuple(files[stem] for stem in images))


def _folders(masks: Path) -> tuple[str, ...]:
    found = sorted(folder.name for folder in masks.iterdir() if folder.is_dir() and not folder.name.startswith("."))
    if not found:
        raise MaskError(f"{masks}: holds no folder of masks.")
    return tuple(found)


def _listed(root: Path, year: int | None, split: str) -> tuple[str, ...]:
    """Names in their order, each once: a line is a name, or the paths of a frame and its mask."""
    files = [root / "ImageSets" / folder / f"{split}.txt" for folder in _LISTS[year]]
    file = next((file for file in files if file.is_file()), None)
    if file is None:
        raise MaskError(f"{root}: there is no list of {split!r}; looked for {', '.join(map(str, files))}.")
    names: dict[str, None] = {}
    for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1):
        words = line.split()
        if not words:
            continue
        path = PurePosixPath(words[0])
        if len(words) > 1 and len(path.parts) < 2:
            raise MaskError(f"{file}:{number}: neither the name of a sequence nor the paths of a frame and its mask.")
        names[path.parent.name if len(words) > 1 or path.suffix == ".jpg" else words[0]] = None
    if not names:
        raise MaskError(f"{file}: the list is empty.")
    return tuple(names)
