"""Where masks and overlays are written: never over what is read. Checked before anything is computed."""

import re
from collections.abc import Iterable
from pathlib import Path

from motionformer.errors import MaskError
from motionformer.experiments.davis.layout import Sequence

OTHER_VIDEOS = {".avi", ".gif", ".m4v", ".mkv", ".mov", ".mpg", ".ogv", ".webm"}


def check_track_places(video: Path, mask: Path | None, *, masks: Path | None, overlay: Path | None) -> None:
    """Refuse to write the masks or the overlay of a video onto the video, its frames, or its first mask."""
    for option, output in (("--masks", masks), ("--overlay", overlay)):
        if output is None:
            continue
        if option == "--overlay" and output.suffix.lower() in OTHER_VIDEOS:
            raise MaskError(f"--overlay: {output}: the video is an mp4 (or, without an ending, a folder of png files).")
        _check_kind(option, output, is_file=option == "--overlay" and output.suffix.lower() == ".mp4")
        _refuse_same(option, output, video, "what is followed")
        if mask is not None and re.fullmatch(r"[0-9]{5,}", mask.stem):  # as the files written there are called
            _refuse_same(option, output, mask.parent, f"the folder of {mask}, which would be written over")
    if masks is not None and overlay is not None:
        _refuse_same("--overlay", overlay, masks, "the folder of --masks, whose files have the same names")


def check_evaluate_places(sequences: Iterable[Sequence], masks: Path | None, overlays: Path | None = None) -> None:
    """Refuse to write masks of sequences onto their true masks, or among their frames."""
    for sequence in sequences:
        if overlays is not None:
            _check_kind("--overlay", overlays / f"{sequence.name}.mp4", is_file=True)
        if masks is not None:
            output = masks / sequence.name
            _check_kind("--masks", output, is_file=False)
            _refuse_same("--masks", output, sequence.masks[0].parent, "the folder of the true masks")
            _refuse_same("--masks", output, sequence.folder, "the folder of the frames")


def _check_kind(option: str, output: Path, *, is_file: bool) -> None:
    """Refuse a folder where a file is to be, and a file where a folder is to be."""
    if is_file and output.is_dir():
        raise MaskError(f"{option}: {output} is a folder, and the mp4 to write is a file; choose another name.")
    for folder in (*([] if is_file else [output]), *output.parents):
        if folder.exists() and not folder.is_dir():
            raise MaskError(f"{option}: {folder} is a file, and a folder is needed there; choose another name.")


def _refuse_same(option: str, output: Path, taken: Path, what: str) -> None:
    is_link = output.exists() and taken.exists() and output.samefile(taken)
    if is_link or output.resolve() == taken.resolve():
        raise MaskError(f"{option}: {output} is {what}; write somewhere else.")
