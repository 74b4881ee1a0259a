"""Image: CIFAR-10 from its own binary files, grey, the 1,024 pixels of a picture in a row.

A record is a byte of label and 3 × 1,024 bytes of red, green and blue. Of each ten training pictures the last is set
aside for development (5,000 of 50,000, as published; which ones is our choice).
"""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from motionformer.errors import AnnotationError
from motionformer.experiments.lra.examples import Example, Picked, Splits, hold_out

PIXELS = 32 * 32
RECORD = 1 + 3 * PIXELS
WEIGHTS = np.array((0.2989, 0.5870, 0.1140))
"""Brightness of red, green and blue (ITU-R 601)."""


def read_cifar(folder: Path) -> Splits:
    """`data_batch_*.bin` and `test_batch.bin` of a folder, or of `cifar-10-batches-bin` in it."""
    inner = folder / "cifar-10-batches-bin"
    folder = inner if inner.is_dir() else folder
    files = sorted(folder.glob("data_batch_*.bin"))
    if not files:
        raise AnnotationError("holds no data_batch_*.bin: CIFAR-10's binary version is expected", folder)
    train = [example for file in files for example in read_batch(file)]
    kept, aside = hold_out(len(train))
    return Splits(Picked(train, kept), Picked(train, aside), read_batch(folder / "test_batch.bin"), folder=folder)


def read_batch(file: Path) -> list[Example]:
    if not file.is_file():
        raise AnnotationError("there is no such file", file)
    data = np.fromfile(file, np.uint8)
    if data.size == 0 or data.size % RECORD:
        raise AnnotationError(f"has {data.size:,} bytes, no multiple of {RECORD:,}: cut or another format", file)
    records = data.reshape(-1, RECORD)
    wrong = np.flatnonzero(records[:, 0] > 9)
    if wrong.size:
        raise AnnotationError(f"picture {wrong[0]} has label {records[wrong[0], 0]}; CIFAR-10 has 0 to 9", file)
    return [Example((grey(record[1:]),), int(record[0])) for record in records]


def grey(pixels: NDArray[np.uint8]) -> NDArray[np.int16]:
    """3 × 1,024 bytes → 1,024 brightnesses, 1 to 256."""
    bright = np.rint(WEIGHTS @ pixels.reshape(3, PIXELS))
    return bright.astype(np.int16) + 1
