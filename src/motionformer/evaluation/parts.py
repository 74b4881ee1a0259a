"""A running evaluation on disk, in parts: killed at any moment, it goes on where it stopped.

`parts/header.json` says what is being evaluated; every other file holds the scores of some videos. Each is written
whole or not at all. How videos fall into parts has no influence on the result.
"""

import json
import logging
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
from jaxtyping import Float32

from motionformer.errors import EvaluationError
from motionformer.evaluation.results import Header, facts_from, facts_to_array, write_atomically
from motionformer.video import ReadFacts

log = logging.getLogger("motionformer")
FOLDER, HEADER = "parts", "header.json"


@dataclass
class Scored:
    """Videos done so far, by index: the scores of every task `[v c k]`, or why there are none.

    `stamps` are those of their files, and `facts` what the scores were made from, where they are known.
    """

    scores: dict[int, dict[str, Float32[np.ndarray, "v c _"]]] = field(default_factory=dict)
    failures: dict[int, str] = field(default_factory=dict)
    stamps: dict[int, str] = field(default_factory=dict)
    facts: dict[int, ReadFacts] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.scores) + len(self.failures)

    def __contains__(self, index: int) -> bool:
        return index in self.scores or index in self.failures

    def update(self, other: "Scored") -> None:
        self.scores.update(other.scores)
        self.failures.update(other.failures)
        self.stamps.update(other.stamps)
        self.facts.update(other.facts)


def open_parts(output: Path, header: Header) -> list[Scored]:
    """What an earlier, unfinished run with this header has done. Refuses a folder where something else was begun."""
    folder = output / FOLDER
    if (folder / HEADER).exists():
        refuse_others(output, _read_header(folder / HEADER), header)
    else:
        _make(folder)
        write_atomically(folder / HEADER, lambda stream: stream.write(header.to_json().encode()))
    return [_read_part(file, header) for file in sorted(folder.glob("*.npz"))]


def write_part(output: Path, part: Scored) -> None:
    """Named after its first video: no two processes write the same one."""
    folder = output / FOLDER
    _make(folder)  # another machine of the run may have another disk
    first = min([*part.scores, *part.failures])
    write_atomically(folder / f"{first:09d}.npz", lambda stream: np.savez(stream, **_arrays(part)))


def remove_parts(output: Path) -> None:
    shutil.rmtree(output / FOLDER, ignore_errors=True)


def refuse_others(output: Path, found: Header, header: Header) -> None:
    """Results of another experiment are neither continued nor overwritten."""
    if differences := found.differences(header):
        raise EvaluationError(
            f"{output} holds an evaluation of {found.model} on {found.data}, which differs from this one"
            f" ({header.model} on {header.data}) in {', '.join(differences)}. Give another folder, or remove this one."
        )


def _arrays(part: Scored) -> dict[str, Any]:
    indices, failed, stamped = sorted(part.scores), sorted(part.failures), sorted(part.stamps)
    tasks = list(part.scores[indices[0]]) if indices else []
    return {
        "indices": np.array(indices, dtype=np.int64),
        "failed": np.array(failed, dtype=np.int64),
        "reasons": np.array([part.failures[index] for index in failed], dtype=np.str_),
        "stamped": np.array(stamped, dtype=np.int64),
        "stamps": np.array([part.stamps[index] for index in stamped], dtype=np.str_),
        "facts": facts_to_array(part.facts),
        **{f"scores.{task}": np.stack([part.scores[index][task] for index in indices]) for task in tasks},
    }


def _read_part(file: Path, header: Header) -> Scored:
    try:
        with np.load(file, allow_pickle=False) as arrays:
            return _scored(arrays, header)
    except (BadZipFile, OSError, ValueError, KeyError, EOFError) as error:
        log.warning("%s is damaged (%s); its videos are evaluated again", file, error)
        return Scored()


def _scored(arrays: Mapping[str, Any], header: Header) -> Scored:
    indices = arrays["indices"].tolist()
    tasks = {task: arrays[f"scores.{task}"] for task in header.class_names} if indices else {}
    scores = {index: {task: values[i] for task, values in tasks.items()} for i, index in enumerate(indices)}
    failures = dict(zip(arrays["failed"].tolist(), arrays["reasons"].tolist(), strict=True))
    known = "stamps" in arrays
    stamps = dict(zip(arrays["stamped"].tolist(), arrays["stamps"].tolist(), strict=True)) if known else {}
    return Scored(scores, failures, stamps, facts_from(arrays))


def _read_header(file: Path) -> Header:
    try:
        return Header.from_json(file.read_text(encoding="utf-8"))
    except (ValueError, TypeError, AttributeError, json.JSONDecodeError) as error:
        raise EvaluationError(f"{file}: not the start of an evaluation ({error}). Remove the folder.") from error


def _make(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise EvaluationError(f"{folder}: cannot be made ({error.strerror or error}).") from error
