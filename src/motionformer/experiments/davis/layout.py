"""Where DAVIS keeps its files: frames, masks and lists of sequences, of the 2016 and the 2017 release.

ROOT/JPEGImages/480p/<sequence>/00000.jpg …
ROOT/Annotations/480p/<sequence>/00000.png …
ROOT/ImageSets/2017/val.txt        one sequence a line
ROOT/ImageSets/480p/val.txt        DAVIS 2016: one frame and its mask a line
"""

from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from motionformer.errors import MaskError
from motionformer.video.images import list_frames, number_of

LISTS: dict[int | None, tuple[str, ...]] = {
    2017: ("2017",),
    2016: ("2016", "480p"),
    None: ("2017", "2016", "480p"),
}
"""Where a release keeps its lists."""
MIN_FRAMES = 3
"""Of a sequence: scores leave out the first and the last."""


@dataclass(frozen=True)
class Sequence:
    """One video: a folder of frames, and a true mask for each, in the order of the frames."""

    name: str
    folder: Path
    masks: tuple[Path, ...]


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
                f"{root} is no DAVIS folder: it has no {folder.relative_to(root)}. Give the folder that holds"
                " JPEGImages and Annotations, and --resolution where it is not 480p."
            )
    if year not in LISTS:
        raise MaskError(f"DAVIS was released in 2016 and 2017, not in {year}.")
    listed = _listed(root, year, split) if split else _folders(masks)
    names = tuple(dict.fromkeys(Path(name).name for name in names))  # once each, and without a slash at the end
    if split and (strange := [name for name in names if name not in listed]):
        raise MaskError(f"{strange[0]}: there is no such sequence in the list {split!r}; leave --split out.")
    return [_sequence(name, frames / name, masks / name) for name in names or listed]


def mask_files(folder: Path) -> tuple[Path, ...]:
    """The masks of one sequence, in the order of their numbers."""
    files = [file for file in folder.glob("*.png") if not file.name.startswith(".")] if folder.is_dir() else []
    if not files:
        raise MaskError(f"{folder}: holds no masks (png files)." if folder.is_dir() else f"{folder}: no such folder.")
    return tuple(sorted(files, key=lambda file: (number_of(file) or 0, file.name)))


def _sequence(name: str, frames: Path, masks: Path) -> Sequence:
    if not frames.is_dir():
        raise MaskError(f"{frames}: there is no such sequence.")
    images = [file.stem for file in list_frames(frames)]
    if len(images) < MIN_FRAMES:
        raise MaskError(
            f"{name}: {frames} holds {len(images)} frames; scores leave out the first and the last, so it needs"
            f" {MIN_FRAMES} or more. Leave it out with --split or --sequence."
        )
    files = {file.stem: file for file in mask_files(masks)}
    missing = [stem for stem in images if stem not in files]
    if missing:
        raise MaskError(
            f"{masks}: {len(missing)} frames have no mask, {missing[0]} the first; scores need a mask of every frame."
        )
    alone = sorted(files[stem].name for stem in files.keys() - set(images))
    if alone:
        raise MaskError(
            f"{masks}: {len(alone)} masks have no frame in {frames}, {alone[0]} the first; a mask has its frame's name."
        )
    return Sequence(name, frames, tuple(files[stem] for stem in images))


def _folders(masks: Path) -> tuple[str, ...]:
    found = sorted(folder.name for folder in masks.iterdir() if folder.is_dir() and not folder.name.startswith("."))
    if not found:
        raise MaskError(f"{masks}: holds no folder of masks.")
    return tuple(found)


def _listed(root: Path, year: int | None, split: str) -> tuple[str, ...]:
    places = [root / "ImageSets" / folder / f"{split}.txt" for folder in LISTS[year]]
    for place in places:
        if place.is_file():
            return _read_list(place)
    raise MaskError(f"{root}: there is no list of {split!r}; looked for {', '.join(map(str, places))}.")


def _read_list(file: Path) -> tuple[str, ...]:
    """Names in their order, each once: a line is a name, or the paths of a frame and its mask."""
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
