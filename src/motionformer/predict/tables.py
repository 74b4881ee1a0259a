"""Entries as files for scripts: one JSON document, or a csv with a line a guess (or a segment)."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from motionformer.evaluation.results import READ, write_atomically
from motionformer.predict.journal import Entry
from motionformer.runs import valid_json, write_csv


def write_json(entries: Sequence[Entry], header: Mapping[str, Any], file: Path) -> None:
    """`{..., "predictions": [...]}`, a line a video."""
    write_atomically(file, lambda stream: stream.write(json_text(entries, header).encode()))


def json_text(entries: Sequence[Entry], header: Mapping[str, Any]) -> str:
    lines = ",\n".join(json.dumps(entry, ensure_ascii=False) for entry in entries)
    return valid_json(json.dumps(dict(header), ensure_ascii=False)[:-1] + f', "predictions": [\n{lines}\n]}}\n')


def write_table(entries: Sequence[Entry], file: Path) -> None:
    """Best guess first; a failed video has one line with its reason."""
    rows = [["video", "start", "end", "task", "rank", "index", "label", "score", "failed", *READ]]
    for entry in entries:
        rows += _rows(entry)

    def write(stream: IO[bytes]) -> None:
        write_csv(stream, rows)

    write_atomically(file, write)


def _rows(entry: Entry) -> list[list[str]]:
    video, read = entry["video"], [_cell(entry.get(key)) for key in READ]
    if "failed" in entry:
        return [[video, "", "", "", "", "", "", "", entry["failed"], *read]]
    if "segments" in entry:
        return [
            [
                video,
                str(s["start"]),
                str(s["end"]),
                s["task"],
                "",
                str(s["index"]),
                s["label"],
                str(s["score"]),
                "",
                *read,
            ]
            for s in entry["segments"]
        ]
    tasks = [task for task in ("verb", "noun") if task in entry]
    named = [("action" if tasks else "class", entry["top"]), *((task, entry[task]) for task in tasks)]
    return [
        [video, "", "", task, str(rank), _index(guess["index"]), guess["label"], str(guess["score"]), "", *read]
        for task, guesses in named
        for rank, guess in enumerate(guesses, start=1)
    ]


def _cell(value: Any) -> str:
    return "" if value is None else str(value).lower()


def _index(index: Any) -> str:
    return ",".join(map(str, index)) if isinstance(index, list) else str(index)
