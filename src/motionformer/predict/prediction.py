"""What came out: scores of all classes, averaged over views, and of every view. Plain arrays; knows no model."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from jaxtyping import Float32

from motionformer.errors import EvaluationError
from motionformer.evaluation.aggregate import average_views
from motionformer.evaluation.classes import SINGLE
from motionformer.evaluation.epic import best_actions
from motionformer.video import ReadFacts

ACTION = "action"


@dataclass(frozen=True)
class Guess:
    """One class and how sure the model is of it. An action has two indices, a verb's and a noun's."""

    label: str
    score: float
    index: int | tuple[int, int]

    def to_dict(self) -> dict[str, Any]:
        index = list(self.index) if isinstance(self.index, tuple) else self.index
        return {"label": self.label, "score": round(self.score, 6), "index": index}


@dataclass(frozen=True)
class Prediction:
    """Of one video, or of one window of it (`start` and `end`, in seconds).

    `views` and `labels` go by task: "class", or "verb" and "noun" for EPIC-Kitchens weights.
    """

    video: str
    labels: Mapping[str, tuple[str, ...]]
    views: Mapping[str, Float32[np.ndarray, "v c _"]]
    start: float | None = None
    end: float | None = None
    facts: ReadFacts | None = None
    """What the scores were made from: how many frames differ, and whether the video is damaged."""

    @cached_property
    def scores(self) -> dict[str, Float32[np.ndarray, " k"]]:
        """Of every class, by task: the mean over clips and crops."""
        return {task: average_views(views[None])[0] for task, views in self.views.items()}

    @property
    def label(self) -> str:
        """Of the best guess."""
        return self.top(1)[0].label

    @property
    def score(self) -> float:
        """Of the best guess."""
        return self.top(1)[0].score

    def top(self, count: int = 5, task: str | None = None) -> list[Guess]:
        """The best guesses, best first; equal ones by number. Without `task`, of EPIC weights: actions.

        An action's score is the product of its verb's and its noun's.
        """
        task = task or (ACTION if set(self.views) == {"verb", "noun"} else next(iter(self.views)))
        if task == ACTION and {"verb", "noun"} <= set(self.views):
            return self._actions(count)
        if task not in self.views:
            raise EvaluationError(f"there is no {task!r} in this prediction; there is {', '.join(self.views)}.")
        scores, names = self.scores[task], self.labels[task]
        best = np.argsort(-scores, kind="stable")[:count].tolist()
        return [Guess(names[index], float(scores[index]), index) for index in best]

    def to_dict(self, top: int = 5) -> dict[str, Any]:
        """For JSON; `top` guesses, and for EPIC weights also of verb and noun by themselves."""
        made: dict[str, Any] = {"video": self.video}
        if self.start is not None and self.end is not None:
            made |= {"start": round(self.start, 3), "end": round(self.end, 3)}
        made["top"] = [guess.to_dict() for guess in self.top(top)]
        if set(self.views) != {SINGLE}:
            made |= {task: [guess.to_dict() for guess in self.top(top, task)] for task in self.views}
        clips, crops, _ = next(iter(self.views.values())).shape
        read = {} if self.facts is None else self.facts.to_dict()
        return {**made, "views": clips, "crops": crops, **read}

    def to_json(self, top: int = 5) -> str:
        return json.dumps(self.to_dict(top), ensure_ascii=False)

    def _actions(self, count: int) -> list[Guess]:
        verbs, nouns = self.labels["verb"], self.labels["noun"]
        pairs = best_actions(self.scores["verb"], self.scores["noun"], count)
        return [Guess(f"{verbs[verb]} {nouns[noun]}", score, (verb, noun)) for (verb, noun), score in pairs]
