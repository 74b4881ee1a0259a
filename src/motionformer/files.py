"""Files that are there whole or not at all, whenever the process is killed and whatever fails."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO


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
    finally:
        aside.unlink(missing_ok=True)


def write_whole(file: Path, content: bytes | str) -> None:
    """All of `content` or nothing; text as UTF-8."""
    with written_whole(file) as stream:
        stream.write(content.encode() if isinstance(content, str) else content)
