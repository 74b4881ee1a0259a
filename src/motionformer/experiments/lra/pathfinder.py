"""Pathfinder: are the two discs the ends of one dashed contour? A 32 × 32 picture, its 1,024 pixels in a row.

A generator of our own with the published parameters: two long contours of 14 dashes, five distractors of 4 dashes,
dashes of 2 pixels, ½ pixel thick, 1 pixel apart, discs of radius 1½. Which curves are drawn, and how they are painted,
is ours: pictures look like the published ones and are not the same, nor need they be as hard.
"""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from motionformer.errors import AnnotationError, VideoError
from motionformer.experiments.lra.examples import Example, MadeExamples, Picked, Splits
from motionformer.video.container import wrap_decoder_errors
from motionformer.video.images import CODECS, decode_image

_SIZE = 32
_PADDING = 1
_DASH, _GAP, _THICKNESS = 2.0, 1.0, 0.5
_CONTOUR_LENGTH = 14
_DISTRACTOR_LENGTH = _CONTOUR_LENGTH // 3
_NUM_DISTRACTORS = 20 // _DISTRACTOR_LENGTH
_MARKER_RADIUS = 1.5
_CONTRAST = 1.5
"""Published: 2 for a contour times 0.75 for a dash. A dash thinner than a pixel never covers one whole."""
_CLEARANCE = 2.0
"""Pixels between dashes that do not follow each other. More than the gap: else contours would not be told apart."""
_SEED_DISTANCE = 7.0
_TURN = 0.35
"""Deviation of the angle between two dashes, in radians, where there is room."""
_TURNS, _SHARPEST = 12, 3.0
"""Angles tried for a dash, and how many times `TURN` the last of them deviates."""
SPLITS = {"train": 160_000, "val": 20_000, "test": 20_000}
FILES = {split: f"{split}.npz" for split in SPLITS}

_Points = NDArray[np.float64]
_Picture = NDArray[np.uint8]


class Pathfinder(MadeExamples):
    """Pictures whose labels take turns.

    What was drawn for an example is kept, a kilobyte each: a hundred passes over them are no hundred drawings.
    """

    sizes = SPLITS

    def __init__(self, split: str, count: int | None = None, seed: int = 0) -> None:
        super().__init__(split, count, seed)
        self._drawn: dict[int, tuple[_Picture, int]] = {}

    def picture(self, index: int) -> tuple[_Picture, int]:
        self.check_index(index)
        rng = np.random.default_rng((self.seed, list(SPLITS).index(self.split), index))
        label = index % 2
        contours, markers = _draw_scene(bool(label), rng)
        return _paint(contours, markers), label

    def __getitem__(self, index: int) -> Example:
        if index not in self._drawn:
            self._drawn[index] = self.picture(index)
        return _as_example(*self._drawn[index])


def make_pathfinder(seed: int = 0) -> Splits:
    """The three splits, each example made when it is asked for."""
    return Splits(Pathfinder("train", seed=seed), Pathfinder("val", seed=seed), Pathfinder("test", seed=seed))


def write_pathfinder(folder: Path, counts: dict[str, int], seed: int = 0, workers: int = 1) -> Iterator[int]:
    """Write `train.npz`, `val.npz`, `test.npz` (`pictures`, `labels`); yields the number of examples so far.

    They take their names together, at the end.
    """
    folder.mkdir(parents=True, exist_ok=True)
    done = 0
    for split, count in counts.items():
        made = Pathfinder(split, count, seed)
        pictures, labels = np.zeros((count, _SIZE, _SIZE), np.uint8), np.zeros(count, np.int64)
        for index, (picture, label) in enumerate(made.in_order(made.picture, workers)):
            pictures[index], labels[index] = picture, label
            done += 1
            yield done
        with (folder / f"{FILES[split]}.part").open("wb") as file:
            np.savez_compressed(file, pictures=pictures, labels=labels)
    for split in counts:
        (folder / f"{FILES[split]}.part").replace(folder / FILES[split])


def read_pathfinder(folder: Path) -> Splits:
    """A folder written here, or one difficulty of the published set (`imgs/`, `metadata/`; 80, 10 and 10 %)."""
    if (folder / "metadata").is_dir():
        pictures = [_as_example(picture, label) for picture, label in _read_published(folder, _SIZE)]
        first, second = 8 * len(pictures) // 10, 9 * len(pictures) // 10
        parts = (range(first), range(first, second), range(second, len(pictures)))
        return Splits(*(Picked(pictures, part) for part in parts), folder=folder)
    return Splits(*(_read_npz(folder / name) for name in FILES.values()), folder=folder)


def _as_example(picture: _Picture, label: int) -> Example:
    return Example((picture.reshape(-1).astype(np.int16) + 1,), label)


def _draw_scene(joined: bool, rng: np.random.Generator) -> tuple[list[_Points], _Points]:
    """Contours, each `[dashes 2 2]` (two ends, x and y), and the places of the two markers `[2 2]`."""
    while True:
        contours: list[_Points] = []
        for length in (_CONTOUR_LENGTH, _CONTOUR_LENGTH, *(_DISTRACTOR_LENGTH,) * _NUM_DISTRACTORS):
            contour = _draw_contour(length, contours, rng)
            if contour is None:
                break
            contours.append(contour)
        else:
            return contours, _place_markers(contours, joined, rng)


def _paint(contours: list[_Points], markers: _Points) -> _Picture:
    """Each pixel's brightness is the share of it that a dash or disc covers, by its distance."""
    y, x = np.mgrid[:_SIZE, :_SIZE] + 0.5
    pixels = np.stack((x, y), axis=-1)[:, :, None]
    dashes = np.concatenate(contours)
    start, along = dashes[:, 0], dashes[:, 1] - dashes[:, 0]
    share = ((pixels - start) * along).sum(-1) / (along**2).sum(-1)
    nearest = start + np.clip(share, 0, 1)[..., None] * along
    covered = _THICKNESS / 2 + 0.5 - np.linalg.norm(pixels - nearest, axis=-1).min(axis=-1)
    disc = _MARKER_RADIUS + 0.5 - np.linalg.norm(pixels - markers, axis=-1).min(axis=-1)
    bright = np.maximum(_CONTRAST * np.clip(covered, 0, 1), np.clip(disc, 0, 1))
    picture: _Picture = np.rint(255 * np.clip(bright, 0, 1)).astype(np.uint8)
    return picture


def _draw_contour(length: int, others: list[_Points], rng: np.random.Generator, tries: int = 20) -> _Points | None:
    taken = _spread(np.concatenate(others)) if others else np.zeros((0, 2))
    for _ in range(tries):
        position, angle = rng.uniform(_PADDING, _SIZE - _PADDING, 2), rng.uniform(0, 2 * np.pi)
        if len(others) == 1 and np.linalg.norm(position - others[0][0, 0]) < _SEED_DISTANCE:
            continue
        dashes = np.zeros((length, 2, 2))
        for number in range(length):
            before = np.concatenate((taken, _spread(dashes[: max(0, number - 1)])))
            found = _next_angle(position, angle, before, rng)
            if found is None:
                break
            angle = found
            forward = np.array((np.cos(angle), np.sin(angle)))
            dashes[number] = position, position + _DASH * forward
            position = dashes[number, 1] + _GAP * forward
        else:
            return dashes
    return None


def _next_angle(position: _Points, angle: float, before: _Points, rng: np.random.Generator) -> float | None:
    """Where to turn so that the dash stays inside and clear of `before`; sharper turns are tried after gentle ones."""
    turned = angle + _TURN * rng.standard_normal(_TURNS) * np.linspace(1, _SHARPEST, _TURNS)
    forward = np.stack((np.cos(turned), np.sin(turned)), axis=-1)
    end, ahead = position + _DASH * forward, position + (_DASH + _GAP) * forward  # the next dash begins ahead
    good = (ahead.min(axis=-1) >= _PADDING) & (ahead.max(axis=-1) <= _SIZE - _PADDING)
    if len(before):
        points = _spread(np.stack((np.broadcast_to(position, end.shape), end), axis=1)).reshape(_TURNS, 3, 1, 2)
        good &= np.square(points - before).sum(axis=-1).min(axis=(1, 2)) >= _CLEARANCE**2
    return float(turned[good.argmax()]) if good.any() else None


def _spread(dashes: _Points) -> _Points:
    """Three points on each dash, a pixel apart."""
    points: _Points = (dashes[:, :1] + np.linspace(0, 1, 3)[:, None] * (dashes[:, 1:] - dashes[:, :1])).reshape(-1, 2)
    return points


def _place_markers(contours: list[_Points], joined: bool, rng: np.random.Generator) -> _Points:
    """Both ends of the first contour; or one end of each long one, the pair about as far apart as the joined ends.

    Ends of one contour are bound to be nearer than ends of two: without the choice, distance alone would tell.
    """
    ends, other = (np.stack((contour[0, 0], contour[-1, 1])) for contour in contours[:2])
    if joined:
        return ends
    pairs = [np.stack((a, b)) for a in ends for b in other]
    wanted = np.linalg.norm(ends[0] - ends[1])
    order = sorted(pairs, key=lambda pair: abs(float(np.linalg.norm(pair[0] - pair[1]) - wanted)))
    return order[0][rng.permutation(2)]


def _read_npz(file: Path) -> list[Example]:
    if not file.is_file():
        raise AnnotationError(
            "there is no such file; `motionformer lra make pathfinder` writes one, the published set has metadata/",
            file,
        )
    try:
        with np.load(file, allow_pickle=False) as stored:
            pictures, labels = stored["pictures"], stored["labels"]
    except Exception as error:  # a cut or foreign file fails in many ways; all of them are reported
        raise AnnotationError(
            f"is cut, or not a Pathfinder file ({error}); `motionformer lra make pathfinder` writes it anew", file
        ) from error
    fits = labels.ndim == 1 and pictures.shape == (len(labels), _SIZE, _SIZE) and pictures.dtype == np.uint8
    if not fits or not np.isin(labels, (0, 1)).all():
        raise AnnotationError(
            f"holds pictures {pictures.shape} of {pictures.dtype} and labels {labels.shape}; expected bytes "
            f"[count {_SIZE} {_SIZE}] and as many labels, 0 or 1",
            file,
        )
    return [_as_example(picture, int(label)) for picture, label in zip(pictures, labels, strict=True)]


def _read_published(folder: Path, size: int) -> Iterator[tuple[NDArray[np.uint8], int]]:
    """Picture and label (1: joined) of every line of every list, lists by number."""
    lists = sorted((folder / "metadata").glob("*.npy"), key=lambda file: (len(file.stem), file.stem))
    if not lists:
        raise AnnotationError("holds no list (*.npy)", folder / "metadata")
    for file in lists:
        try:
            lines = file.read_text(encoding="utf-8").splitlines()
        except UnicodeDecodeError as error:
            raise AnnotationError("is not the plain text that the published lists are", file) from error
        for number, line in enumerate(lines, 1):
            words = line.split()
            if len(words) < 4 or words[3] not in ("0", "1"):
                raise AnnotationError(f"expected folder, picture, number and label (0 or 1): {line!r}", file, number)
            yield _read_picture(folder / words[0] / words[1], size, file, number), int(words[3])


def _read_picture(picture: Path, size: int, file: Path, number: int) -> NDArray[np.uint8]:
    if picture.suffix.lower() not in CODECS:
        raise AnnotationError(f"{picture} is no picture by its name: {', '.join(CODECS)} are read", file, number)
    try:
        with wrap_decoder_errors(picture):
            grey = decode_image(picture).to_ndarray(format="gray")
    except VideoError as error:
        raise AnnotationError(str(error), file, number) from error
    if grey.shape != (size, size):
        raise AnnotationError(f"{picture} is {grey.shape[1]} × {grey.shape[0]}, not {size} × {size}", file, number)
    return grey.astype(np.uint8)
