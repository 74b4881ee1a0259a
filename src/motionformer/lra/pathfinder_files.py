"""The published Pathfinder folders: `metadata/*.npy` are lists in plain text, `imgs/<part>/*.png` the pictures."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from motionformer.errors import AnnotationError, VideoError
from motionformer.video.container import wrap_decoder_errors
from motionformer.video.images import CODECS, decode_image


def read_published(folder: Path, size: int) -> Iterator[tuple[NDArray[np.uint8], int]]:
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
