"""Files that are there whole or not at all, whenever the process is killed and whatever fails; and how they hold file
names that are no UTF-8."""

import csv
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from motionformer.errors import OutputError


@contextmanager
def written_whole(file: Path) -> Iterator[IO[bytes]]:
    """A stream to write to: the file takes its name when everything is on the disk, and stays as it was otherwise."""
    aside = file.with_name(f".{file.name}.{os.getpid()}.part")
    try:
        with aside.open("wb") as stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        aside.replace(file)
    except OSError as error:
        if error.errno is not None and error.filename is None:  # a full disk does not say which file it was
            error.filename = str(file)
        raise
    finally:
        aside.unlink(missing_ok=True)


def write_whole(file: Path, content: bytes | str) -> None:
    """All of `content` or nothing; text as UTF-8."""
    with written_whole(file) as stream:
        stream.write(content.encode() if isinstance(content, str) else content)


def check_output(file: Path) -> None:
    """Before long work: make the folder that its results go to, and refuse a file that could not be written."""
    if file.is_dir():
        raise OutputError(f"{file} is a folder, and a file is to be written there; choose another name.")
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OutputError(f"{file}: its folder cannot be made ({error.strerror}); choose another place.") from error
    if not os.access(file if file.exists() else file.parent, os.W_OK):
        raise OutputError(f"{file}: may not be written (see the permissions); choose another place.")


def write_csv(stream: IO[bytes], rows: Iterable[Iterable[object]]) -> None:
    """File names that are no UTF-8 are written as they are on the disk."""

    class Encoded:
        def write(self, text: str) -> int:
            return stream.write(text.encode("utf-8", "surrogateescape"))

    csv.writer(Encoded(), lineterminator="\n").writerows(rows)


def valid_json(text: str) -> str:
    """JSON that UTF-8 can hold: of a file name that is no UTF-8, each such byte becomes the escape that JSON has."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")
