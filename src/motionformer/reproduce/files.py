"""Files that are there whole or not at all."""

from pathlib import Path


def write_whole(file: Path, content: bytes) -> None:
    """Write beside, then replace: a kill leaves the file before or the file after."""
    file.parent.mkdir(parents=True, exist_ok=True)
    part = file.with_name(file.name + ".part")
    part.write_bytes(content)
    part.replace(file)
