"""What comes out: the `Prediction` of one video, and the `Results` of an evaluation (every video's label and scores).

`results.npz` holds everything and is what resuming, comparing and redrawing read; `results.csv` is for people and
spreadsheets. Both are written in one piece or not at all, and the same results give the same bytes.
"""

import json
from collections.abc import Collection, Mapping
from dataclasses import asdict, astuple, dataclass, field, fields
from functools import cached_property
from pathlib import Path
from typing import Any
from zipfile import BadZipFile, is_zipfile

import numpy as np
from jaxtyping import Bool, Float32, Shaped

from motionformer.errors import EvaluationError
from motionformer.inference.metrics import best_actions
from motionformer.inference.scorer import SINGLE, average_views
from motionformer.logging import show_count
from motionformer.runs import atomic_write, make_folder, write_csv
from motionformer.video import ReadFacts

ACTION = "action"
RESULTS, TABLE = "results.npz", "results.csv"
FORMAT = 1
UNKNOWN = -1
READ = tuple(field.name for field in fields(ReadFacts))
_COLUMNS = ("label", "label_name", "prediction", "prediction_name", "score", "right")
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
class ClassScore:
    """A class and its score. An action has two indices, a verb's and a noun's.

    Example:
        >>> ClassScore("wave", 0.93, 4)
        ClassScore('wave' 0.930, index 4)
    """

    label: str
    score: float
    index: int | tuple[int, int]

    def to_dict(self) -> dict[str, Any]:
        index = list(self.index) if isinstance(self.index, tuple) else self.index
        return {"label": self.label, "score": round(self.score, 6), "index": index}

    def __repr__(self) -> str:
        return f"ClassScore({self.label!r} {self.score:.3f}, index {self.index})"


@dataclass(frozen=True, repr=False)
class Prediction:
    """The scores of one video, or of one window of it.

    Args:
        video: its path; empty for frames in memory.
        labels: names of the classes, by task: "class", or "verb" and "noun" for EPIC-Kitchens weights.
        views: scores `[v c k]` of every clip and crop, by task.
        start, end: of a window, in seconds.
        facts: how many frames of a clip differ, and whether the video is damaged.

    Example:
        ```python
        prediction = predictor("clip.mp4")
        prediction.label, prediction.score  # ("swipe left", 0.93)
        prediction.top(3)  # the three best classes
        prediction.scores["class"]  # of every class
        ```
    """

    video: str
    labels: Mapping[str, tuple[str, ...]]
    views: Mapping[str, Float32[np.ndarray, "v c _"]]
    start: float | None = None
    end: float | None = None
    facts: ReadFacts | None = None

    @cached_property
    def scores(self) -> dict[str, Float32[np.ndarray, " k"]]:
        """Scores of every class, by task: the mean over clips and crops."""
        return {task: average_views(views[None])[0] for task, views in self.views.items()}

    @property
    def label(self) -> str:
        """Of the best class."""
        return self.top(1)[0].label

    @property
    def score(self) -> float:
        """Of the best class."""
        return self.top(1)[0].score

    def top(self, count: int = 5, task: str | None = None) -> list[ClassScore]:
        """The best classes, best first; equal ones by index. Without `task`, of EPIC weights: actions.

        An action's score is the product of its verb's and its noun's.
        """
        is_epic = set(self.views) == {"verb", "noun"}
        task = task or (ACTION if is_epic else next(iter(self.views)))
        if task == ACTION and is_epic:
            verbs, nouns = self.labels["verb"], self.labels["noun"]
            pairs = best_actions(self.scores["verb"], self.scores["noun"], count)
            return [ClassScore(f"{verbs[verb]} {nouns[noun]}", score, (verb, noun)) for (verb, noun), score in pairs]
        if task not in self.views:
            raise EvaluationError(f"there is no task {task!r} in this prediction; there is {', '.join(self.views)}.")
        scores, names = self.scores[task], self.labels[task]
        best = np.argsort(-scores, kind="stable")[:count].tolist()
        return [ClassScore(names[index], float(scores[index]), index) for index in best]

    def to_dict(self, top: int = 5) -> dict[str, Any]:
        """For JSON: the `top` best classes, and for EPIC weights also verbs and nouns by themselves."""
        made: dict[str, Any] = {"video": self.video}
        if self.start is not None and self.end is not None:
            made |= {"start": round(self.start, 3), "end": round(self.end, 3)}
        made["top"] = [one.to_dict() for one in self.top(top)]
        if set(self.views) != {SINGLE}:
            made |= {task: [one.to_dict() for one in self.top(top, task)] for task in self.views}
        clips, crops, _ = next(iter(self.views.values())).shape
        read = {} if self.facts is None else self.facts.to_dict()
        return {**made, "views": clips, "crops": crops, **read}

    def to_json(self, top: int = 5) -> str:
        return json.dumps(self.to_dict(top), ensure_ascii=False)

    def __repr__(self) -> str:
        when = "" if self.start is None or self.end is None else f" {self.start:.1f}–{self.end:.1f} s"
        best = ", ".join(f"{one.label} {one.score:.2f}" for one in self.top(3))
        return f"Prediction({self.video!r}{when}: {best})"


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


@dataclass(frozen=True, repr=False)
class Results:
    """Labels and scores of every video of an evaluation, in the order of its list.

    Args:
        header: which model was evaluated on what, and how.
        ids: names of the videos, the same on every machine.
        paths: of their files.
        labels: by task: class indices (-1: unknown) or, for any number of classes per video, a boolean per class.
        scores: by task: `[n v c k]`, videos, temporal views, crops, classes; NaN for a failed video.
        failures: why a video could not be read, by index.
        stamps: of the videos' files as they were scored; empty where that is not known.
        facts: how many frames of a video's clips differ and whether it is damaged, by index, where known.
        overlap: which of the videos the model was trained on.

    Example:
        ```python
        results = Results.load("results/k400")
        results.averaged("class").argmax(axis=1)  # the predicted class of every video
        summarise(results)["tasks"]["class"]["all"]["top1"]
        ```
    """

    header: Header
    ids: tuple[str, ...]
    paths: tuple[str, ...]
    labels: dict[str, Shaped[np.ndarray, "n ..."]]
    scores: dict[str, Float32[np.ndarray, "n v c _"]]
    failures: dict[int, str]
    stamps: tuple[str, ...] = ()
    facts: dict[int, ReadFacts] = field(default_factory=dict)
    overlap: dict[str, Any] = field(default_factory=lambda: {"known": False, "note": "not looked for"})

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def tasks(self) -> tuple[str, ...]:
        return tuple(self.scores)

    @property
    def is_epic(self) -> bool:
        """Whether actions are pairs of a verb and a noun, as in EPIC-Kitchens."""
        return set(self.tasks) == {"verb", "noun"}

    @property
    def readable(self) -> Bool[np.ndarray, " n"]:
        return np.array([index not in self.failures for index in range(len(self))], dtype=bool)

    def averaged(self, task: str) -> Float32[np.ndarray, "n _"]:
        """The mean score per video and class over all views."""
        return average_views(self.scores[task])

    @property
    def metrics(self) -> dict[str, dict[str, float]]:
        """Metrics over all labelled videos by task, as `results.metrics["class"]["top1"]`; `summarise` has all of them,
        with their intervals."""
        from motionformer.inference.report import summarise

        tasks = summarise(self)["tasks"]
        return {
            task: {key: value for key, value in of["all"].items() if value is not None} for task, of in tasks.items()
        }

    def save(self, folder: Path) -> None:
        """`results.csv`, then `results.npz`: when the latter is there, all of it is."""
        make_folder(folder)
        write_csv(folder / TABLE, self._rows())
        with atomic_write(folder / RESULTS) as stream:
            np.savez(stream, **self._arrays())

    @classmethod
    def load(cls, path: str | Path) -> "Results":
        """Read results.

        Args:
            path: `results.npz`, or the folder it is in.

        Raises:
            EvaluationError: it is not there, or is no results file.
        """
        file = Path(path) / RESULTS if Path(path).is_dir() else Path(path)
        if not file.is_file():
            raise EvaluationError(
                f"{file}: no such results file; `motionformer evaluate MODEL DATA --output DIR` makes one."
            )
        try:
            if not is_zipfile(file):
                raise ValueError(f"it is no npz; give the folder of --output, or the {RESULTS} in it")
            with np.load(file, allow_pickle=False) as arrays:
                return cls._from_arrays(arrays)
        except (BadZipFile, OSError, ValueError, KeyError, EOFError) as error:
            raise EvaluationError(f"{file}: not a results file of `motionformer evaluate` ({error}).") from error

    def __repr__(self) -> str:
        failed = f", {len(self.failures)} failed" if self.failures else ""
        views = f"{self.header.views} × {self.header.crops} views"
        scores = [
            f"{task} {key} {of[key]:.3f}" for task, of in self.metrics.items() for key in ("top1", "map") if key in of
        ]
        found = "".join(f", {one.removeprefix(f'{SINGLE} ')}" for one in scores)
        videos = f"{show_count(len(self), 'video')}{failed}"
        return f"Results({self.header.model!r} on {self.header.data!r}: {videos}, {views}{found})"

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
            "facts": np.array(json.dumps({index: astuple(one) for index, one in sorted(self.facts.items())})),
            **named,
        }

    @classmethod
    def _from_arrays(cls, arrays: Mapping[str, Any]) -> "Results":
        header = Header.from_json(str(arrays["header"]))
        facts = json.loads(str(arrays["facts"])) if "facts" in arrays else {}
        later = {"overlap": json.loads(str(arrays["overlap"]))} if "overlap" in arrays else {}
        return cls(
            header,
            tuple(arrays["ids"].tolist()),
            tuple(arrays["paths"].tolist()),
            {task: arrays[f"labels.{task}"] for task in header.class_names},
            {task: arrays[f"scores.{task}"] for task in header.class_names},
            dict(zip(arrays["failed"].tolist(), arrays["reasons"].tolist(), strict=True)),
            tuple(arrays["stamps"].tolist()) if "stamps" in arrays else (),
            {int(index): ReadFacts(*one) for index, one in facts.items()},
            **later,
        )

    def _rows(self) -> list[list[str]]:
        scores = {task: self.averaged(task) for task in self.tasks}
        prefixes = [f"{task}_" if len(self.tasks) > 1 else "" for task in self.tasks]
        shown = [prefix + column for prefix in prefixes for column in _COLUMNS]
        rows = [["id", "path", "status", *shown, "reason", *READ]]
        for index, name in enumerate(self.ids):
            failed = index in self.failures
            cells = [name, self.paths[index], "failed" if failed else "ok"]
            for task in self.tasks:
                names = self.header.class_names[task]
                cells += _cells(self.labels[task][index], None if failed else scores[task][index], names)
            facts = self.facts.get(index)
            read = [None] * len(READ) if facts is None else astuple(facts)
            rows.append([*cells, self.failures.get(index, ""), *("" if v is None else str(v).lower() for v in read)])
        return rows


def summarise_reads(facts: Collection[ReadFacts]) -> dict[str, Any] | None:
    """Frames of a clip, the fewest that differ in one, and how many videos repeat frames or are damaged."""
    if not facts:
        return None
    return {
        "videos": len(facts),
        "frames": max(one.frames for one in facts),
        "fewest_distinct_frames": min(one.distinct_frames for one in facts),
        "videos_with_repeated_frames": sum(one.distinct_frames < one.frames for one in facts),
        "damaged_videos": sum(bool(one.damaged) for one in facts),
    }


def read_notes(read: dict[str, Any] | None) -> list[str]:
    """What of a summary of reads makes scores mean something else, as sentences."""
    notes = []
    if read and (count := read["videos_with_repeated_frames"]):
        notes.append(
            f"{count} of {read['videos']} videos show frames several times (the fewest distinct ones:"
            f" {read['fewest_distinct_frames']} of {read['frames']} in a clip): they are slower than the rate at which"
            " clips are sampled, or shorter than a clip. --sample-by frames counts a video's own frames."
        )
    if read and (count := read["damaged_videos"]):
        notes.append(
            f"{count} of {read['videos']} videos are damaged where they were read: their scores are of patched-up"
            " frames. `motionformer data check` shows where."
        )
    return notes


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
