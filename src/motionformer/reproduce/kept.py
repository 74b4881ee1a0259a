"""Scores of finished rows of A6, kept so that they are not computed again: one file a row and what it was made of."""

import hashlib
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from motionformer.davis.layout import Sequence
from motionformer.files import write_atomically
from motionformer.video.images import list_frames

Figures = dict[str, float]


class KeptScores:
    """The figures of each row in `folder`, found again by everything that identifies them."""

    def __init__(self, folder: Path, **made_of: Any) -> None:
        self.folder = folder
        self.made_of = made_of

    def read(self, row: str) -> Figures | None:
        """What was kept of a row with the same data and options; None if there is nothing."""
        try:
            stored = json.loads(self._file(row).read_text(encoding="utf-8"))
        except (FileNotFoundError, json.JSONDecodeError):
            return None
        figures: Figures | None = stored["figures"] if stored.get("of") == self._identify(row) else None
        return figures

    def write(self, row: str, figures: Figures) -> None:
        text = json.dumps({"of": self._identify(row), "figures": figures}, indent=1, ensure_ascii=False)
        self.folder.mkdir(parents=True, exist_ok=True)
        write_atomically(self._file(row), text)

    def _identify(self, row: str) -> dict[str, Any]:
        return {"row": row, **self.made_of}

    def _file(self, row: str) -> Path:
        text = json.dumps(self._identify(row), sort_keys=True)
        return self.folder / f"{hashlib.sha256(text.encode()).hexdigest()[:16]}.json"


def digest_sequences(sequences: Iterable[Sequence]) -> str:
    """Changes with any mask, and with the names and sizes of the frames."""
    digest = hashlib.sha256()
    for sequence in sequences:
        digest.update(sequence.name.encode())
        for frame, mask in zip(list_frames(sequence.folder), sequence.masks, strict=True):
            digest.update(f"{frame.name} {frame.stat().st_size} {mask.name}".encode())
            digest.update(mask.read_bytes())
    return digest.hexdigest()


def stamp_file(name: str) -> list[int]:
    """Size and time of a file, which change when it is replaced; nothing for what is no file."""
    if not name or not Path(name).is_file():
        return []
    status = Path(name).stat()
    return [status.st_size, status.st_mtime_ns]
