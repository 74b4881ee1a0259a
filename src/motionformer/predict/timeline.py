"""What happens when in a long video: scores of windows along time, and the segments above a threshold."""

import csv
import io
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float32

from motionformer.errors import EvaluationError
from motionformer.predict.prediction import Prediction
from motionformer.video import ReadFacts


@dataclass(frozen=True)
class Segment:
    """One class for a while: from the start of its first window to the end of its last, in seconds."""

    start: float
    end: float
    label: str
    score: float
    """The largest of its windows'."""
    index: int
    task: str

    def to_dict(self) -> dict[str, Any]:
        times = {"start": round(self.start, 3), "end": round(self.end, 3)}
        return {**times, "label": self.label, "score": round(self.score, 6), "index": self.index, "task": self.task}


@dataclass(frozen=True)
class Timeline:
    """Windows in order of time. A few numbers a window: an hour is some megabytes."""

    video: str
    duration: float
    windows: tuple[Prediction, ...]

    @property
    def facts(self) -> ReadFacts | None:
        """Of all windows together."""
        known = [window.facts for window in self.windows if window.facts is not None]
        return ReadFacts.together(known) if known else None

    @property
    def tasks(self) -> tuple[str, ...]:
        return tuple(self.windows[0].views)

    def scores(self, task: str) -> Float32[np.ndarray, "w k"]:
        """Of every window and class."""
        return np.stack([window.scores[task] for window in self.windows])

    def segments(self, threshold: float = 0.5) -> list[Segment]:
        """For every class, runs of windows whose score reaches the threshold; windows that touch are one run."""
        if not 0 < threshold <= 1:
            raise EvaluationError(f"a threshold is above 0 and at most 1; not {threshold:g}.")
        found = [segment for task in self.tasks for segment in self._of_task(task, threshold)]
        return sorted(found, key=lambda segment: (segment.start, segment.task, -segment.score, segment.index))

    def to_dict(self, threshold: float = 0.5, top: int = 5) -> dict[str, Any]:
        windows = [window.to_dict(top) for window in self.windows]
        shown = [{key: one[key] for key in one if key not in ("video", "views", "crops")} for one in windows]
        return {
            "video": self.video,
            "duration": round(self.duration, 3),
            "threshold": threshold,
            **({} if self.facts is None else self.facts.to_dict()),
            "segments": [segment.to_dict() for segment in self.segments(threshold)],
            "windows": shown,
        }

    def to_json(self, threshold: float = 0.5, top: int = 5) -> str:
        return json.dumps(self.to_dict(threshold, top), ensure_ascii=False)

    def to_csv(self, threshold: float = 0.5) -> str:
        """A line a segment."""
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(["start", "end", "task", "index", "label", "score"])
        for one in (segment.to_dict() for segment in self.segments(threshold)):
            writer.writerow([one[key] for key in ("start", "end", "task", "index", "label", "score")])
        return text.getvalue()

    def _of_task(self, task: str, threshold: float) -> Iterator[Segment]:
        scores, names = self.scores(task), self.windows[0].labels[task]
        for index in np.flatnonzero((scores >= threshold).any(axis=0)).tolist():
            for first, last in self._runs(scores[:, index] >= threshold):
                start, end = self.windows[first].start or 0.0, self.windows[last].end or 0.0
                yield Segment(start, end, names[index], float(scores[first : last + 1, index].max()), index, task)

    def _runs(self, is_above: Any) -> Iterator[tuple[int, int]]:
        """First and last window of every run; a hop longer than a window leaves gaps that end runs."""
        run: list[int] = []
        for i in np.flatnonzero(is_above).tolist():
            if run and not (i == run[-1] + 1 and self._touch(run[-1], i)):
                yield run[0], run[-1]
                run = []
            run.append(i)
        if run:
            yield run[0], run[-1]

    def _touch(self, before: int, after: int) -> bool:
        return (self.windows[after].start or 0.0) <= (self.windows[before].end or 0.0)
