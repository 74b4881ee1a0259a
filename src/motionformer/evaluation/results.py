"""What an evaluation leaves behind: for every video its label and the scores of every view, as npz and csv.

The npz holds everything and is what resuming, comparing and redrawing read; the csv is for people and spreadsheets.
Written in one piece or not at all, and the same bytes for the same results.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, astuple, dataclass, field, fields
from pathlib import Path
from typing import IO, Any
from zipfile import BadZipFile, is_zipfile

import numpy as np
from jaxtyping import Bool, Float32, Shaped

from motionformer.errors import EvaluationError
from motionformer.evaluation.aggregate import average_views
from motionformer.runs import atomic_write, write_csv
from motionformer.video import ReadFacts

RESULTS, TABLE = "results.npz", "results.csv"
FORMAT = 1
UNKNOWN = -1
READ = tuple(field.name for field in fields(ReadFacts))
_MEANING = (
    "model_fingerprint",
    "data_fingerprint",
    "views",
    "crops",
    "protocol",
    "scoring",
    "precision",
    "class_names",
)


@dataclass(frozen=True)
class Header:
    """Which model was evaluated on what, and how: what makes two results files the same experiment."""

    model: str
    model_fingerprint: str
    data: str
    data_fingerprint: str
    views: int
    crops: int
    protocol: dict[str, Any]  # how views are cut
    scoring: str
    precision: str
    class_names: dict[str, tuple[str, ...]]
    format: int = FORMAT

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> "Header":
        values = json.loads(text)
        if values.get("format") != FORMAT or set(values) != {field.name for field in fields(cls)}:
            raise ValueError(f"results of another format ({values.get('format')!r}; this is {FORMAT})")
        values["class_names"] = {task: tuple(names) for task, names in values["class_names"].items()}
        return cls(**values)

    def differences(self, other: "Header") -> list[str]:
        """What makes them different experiments; names of files do not count, contents do."""
        mine, theirs = json.loads(self.to_json()), json.loads(other.to_json())
        return [key.replace("_", " ") for key in _MEANING if mine[key] != theirs[key]]


@dataclass(frozen=True)
class Results:
    """Every video in the order of its list. Scores of a failed video are not numbers (NaN).

    `labels` of a task are class indices (-1: unknown) or, for videos of several classes, true and false for each.
    """

    header: Header
    ids: tuple[str, ...]
    paths: tuple[str, ...]
    labels: dict[str, Shaped[np.ndarray, "n ..."]]
    scores: dict[str, Float32[np.ndarray, "n v c _"]]
    failures: dict[int, str]
    stamps: tuple[str, ...] = ()
    """Of the videos' files as they were scored (`video_stamps`); empty where that is not known."""
    facts: dict[int, ReadFacts] = field(default_factory=dict)
    """What each video's scores were made from, where that is known."""
    overlap: dict[str, Any] = field(default_factory=lambda: {"known": False, "note": "not looked for"})
    """Which of the videos the model has learnt from (`find_overlap`)."""

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def tasks(self) -> tuple[str, ...]:
        return tuple(self.scores)

    @property
    def readable(self) -> Bool[np.ndarray, " n"]:
        return np.array([index not in self.failures for index in range(len(self))], dtype=bool)

    def averaged(self, task: str) -> Float32[np.ndarray, "n _"]:
        """One score a class and video, over all views."""
        return average_views(self.scores[task])

    def save(self, folder: Path) -> None:
        """`results.csv`, then `results.npz`: when the latter is there, all of it is."""
        folder.mkdir(parents=True, exist_ok=True)
        write_atomically(folder / TABLE, self._write_csv)
        write_atomically(folder / RESULTS, lambda stream: np.savez(stream, **self._arrays()))

    @classmethod
    def load(cls, path: str | Path) -> "Results":
        """From the npz, or the folder it is in."""
        file = Path(path) / RESULTS if Path(path).is_dir() else Path(path)
        if not file.is_file():
            raise EvaluationError(
                f"{file}: no such results file; `motionformer evaluate MODEL DATA --out DIR` makes one."
            )
        try:
            if not is_zipfile(file):
                raise ValueError(f"it is no npz; give the folder of --out, or the {RESULTS} in it")
            with np.load(file, allow_pickle=False) as arrays:
                return cls._from_arrays(arrays)
        except (BadZipFile, OSError, ValueError, KeyError, EOFError) as error:
            raise EvaluationError(f"{file}: not a results file of `motionformer evaluate` ({error}).") from error

    def _arrays(self) -> dict[str, Any]:
        named = {f"labels.{task}": values for task, values in self.labels.items()}
        named |= {f"scores.{task}": values for task, values in self.scores.items()}
        failed = sorted(self.failures)
        return {
            "header": np.array(self.header.to_json()),
            "ids": np.array(self.ids, dtype=np.str_),
            "paths": np.array(self.paths, dtype=np.str_),
            "failed": np.array(failed, dtype=np.int64),
            "reasons": np.array([self.failures[index] for index in failed], dtype=np.str_),
            "stamps": np.array(self.stamps, dtype=np.str_),
            "overlap": np.array(json.dumps(self.overlap)),
            "facts": facts_to_array(self.facts),
            **named,
        }

    @classmethod
    def _from_arrays(cls, arrays: Mapping[str, Any]) -> "Results":
        header = Header.from_json(str(arrays["header"]))
        later = {"overlap": json.loads(str(arrays["overlap"]))} if "overlap" in arrays else {}
        return cls(
            header,
            tuple(arrays["ids"].tolist()),
            tuple(arrays["paths"].tolist()),
            {task: arrays[f"labels.{task}"] for task in header.class_names},
            {task: arrays[f"scores.{task}"] for task in header.class_names},
            dict(zip(arrays["failed"].tolist(), arrays["reasons"].tolist(), strict=True)),
            tuple(arrays["stamps"].tolist()) if "stamps" in arrays else (),
            facts_from(arrays),
            **later,
        )

    def _write_csv(self, stream: IO[bytes]) -> None:
        scores = {task: self.averaged(task) for task in self.tasks}
        shown = [column for task in self.tasks for column in _columns(task, self.tasks)]
        rows = [["id", "path", "status", *shown, "reason", *READ]]
        for index, name in enumerate(self.ids):
            failed = index in self.failures
            cells = [name, self.paths[index], "failed" if failed else "ok"]
            for task in self.tasks:
                names = self.header.class_names[task]
                cells += _cells(self.labels[task][index], None if failed else scores[task][index], names)
            rows.append([*cells, self.failures.get(index, ""), *read_cells(self.facts.get(index))])
        write_csv(stream, rows)


def facts_to_array(facts: Mapping[int, ReadFacts]) -> Shaped[np.ndarray, ""]:
    """As JSON, for an npz."""
    return np.array(json.dumps({index: astuple(one) for index, one in sorted(facts.items())}))


def facts_from(arrays: Mapping[str, Any]) -> dict[int, ReadFacts]:
    """What `facts_to_array` put into an npz; nothing where there is none."""
    found = json.loads(str(arrays["facts"])) if "facts" in arrays else {}
    return {int(index): ReadFacts(*one) for index, one in found.items()}


def read_cells(facts: ReadFacts | None) -> list[str]:
    """Of the columns `READ` of a csv; empty where it is not known."""
    return [""] * len(READ) if facts is None else ["" if v is None else str(v).lower() for v in astuple(facts)]


def write_atomically(file: Path, write: Callable[[IO[bytes]], object]) -> None:
    """The file appears complete or not at all, whenever the process is killed."""
    try:
        with atomic_write(file) as stream:
            write(stream)
    except OSError as error:
        raise EvaluationError(f"{file}: cannot be written ({error.strerror or error}).") from error


def _columns(task: str, tasks: tuple[str, ...]) -> list[str]:
    prefix = f"{task}_" if len(tasks) > 1 else ""
    return [prefix + name for name in ("label", "label_name", "prediction", "prediction_name", "score", "right")]


def _cells(label: Any, scores: Any, names: tuple[str, ...]) -> list[str]:
    """Several labels, and several predictions (at one half), are joined by |."""
    several = np.ndim(label) > 0
    true = np.flatnonzero(label) if several else np.array([label] if label != UNKNOWN else [], dtype=np.int64)
    shown = ["|".join(map(str, true.tolist())), "|".join(names[i] for i in true)]
    if scores is None:
        return [*shown, "", "", "", "0" if several or len(true) else ""]
    found = np.flatnonzero(scores >= 0.5) if several else np.array([scores.argmax()])
    right = str(int(np.array_equal(found, true))) if several or len(true) else ""
    listed = "|".join(f"{scores[i]:.6f}" for i in found)
    return [*shown, "|".join(map(str, found.tolist())), "|".join(names[i] for i in found), listed, right]
