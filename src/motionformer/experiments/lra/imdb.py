"""Text: the Large Movie Review data set read byte by byte; is the review positive?

`train/{neg,pos}` and `test/{neg,pos}` hold one file a review. The published comparison chose its checkpoints on the
test set; here one training review in ten, by name, is set aside for it, so that the test set is seen once.
"""

from pathlib import Path

from motionformer.errors import AnnotationError
from motionformer.experiments.lra.examples import Example, Picked, Splits, as_bytes, hold_out

CLASSES = ("neg", "pos")


def read_imdb(folder: Path, length: int = 4000) -> Splits:
    """Reviews of a folder, or of `aclImdb` in it, cut after `length` bytes."""
    inner = folder / "aclImdb"
    folder = inner if inner.is_dir() else folder
    train = _read_part(folder / "train", length)
    kept, aside = hold_out(len(train))
    return Splits(Picked(train, kept), Picked(train, aside), _read_part(folder / "test", length), folder=folder)


def _read_part(folder: Path, length: int) -> list[Example]:
    examples = []
    for label, name in enumerate(CLASSES):
        files = sorted((folder / name).glob("*.txt"), key=lambda file: (len(file.stem), file.stem))
        if not files:
            raise AnnotationError("holds no review (*.txt): the layout of aclImdb is expected", folder / name)
        for file in files:
            text = file.read_bytes()
            if not text:
                raise AnnotationError("is empty", file)
            examples.append(Example((as_bytes(text, length),), label))
    return examples
