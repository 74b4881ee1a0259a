"""The models of a page and what can be asked of them, one question at a time. Knows no HTTP."""

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from motionformer.app.video import PageVideo
from motionformer.errors import TraceError
from motionformer.inference import Predictor
from motionformer.inference.timeline import model_windows
from motionformer.models import Motionformer
from motionformer.trace import Clip, Comparison, Trace, open_clip, trace
from motionformer.trace.query import Point

Shown = TypeVar("Shown")
POINTED = ("trajectory", "rollout")
"""What can be asked of a point; the rest is of the whole clip."""
MAX_WINDOWS = 60
"""Of a timeline: more than a screen shows, and a wait for each."""
THRESHOLD = 0.5


@dataclass(frozen=True)
class Asked:
    """A question about a video: of the clip around frame `around`, and of the point `at` in frame `frame`."""

    what: str = "trajectory"
    around: int | None = None
    frame: int | None = None
    at: Point | None = None
    layer: str = "last"
    head: str = "mean"
    label: str | None = None
    scale: str = "relative"


class Models:
    """By the name they have on the page."""

    def __init__(self, models: Mapping[str, Motionformer]) -> None:
        self.models = dict(models)
        # the middle crop only: three of each take three times the wait (`motionformer predict` does as was tested)
        self.predictors = {name: Predictor(model, crops=1) for name, model in self.models.items()}
        self._one_shown_at_a_time = threading.Lock()
        self._one_at_a_time = threading.Lock()  # attention is recorded by wrapping a model's modules

    def describe(self) -> list[dict[str, Any]]:
        """What the page offers to choose from."""
        return [
            {
                "name": name,
                "scheme": model.config.attention,
                "layers": model.config.depth,
                "heads": model.config.num_heads,
                "labels": list(model.config.labels or ()),
                "has_class_token": model.config.num_prefix_tokens > 0,
            }
            for name, model in self.models.items()
        ]

    def clips(self, video: PageVideo, around: int | None, show: Callable[[str, Clip], Shown]) -> list[Shown]:
        """The frames that each model is shown of the video around a frame (its middle unless said), as `show` tells
        them. Clips are large: one is in memory at a time."""
        with self._one_shown_at_a_time:
            return [show(name, _open(video, model, around)) for name, model in self.models.items()]

    def predict(self, video: PageVideo) -> list[dict[str, Any]]:
        """Top-5 over the model's views and the timeline, of each model."""
        with self._one_at_a_time:
            return [_predict(name, predictor, video) for name, predictor in self.predictors.items()]

    def trace(self, video: PageVideo, asked: Asked) -> Comparison:
        """Where each model looks."""
        with self._one_at_a_time:
            return Comparison(tuple(_trace(name, model, video, asked) for name, model in self.models.items()))


def _open(video: PageVideo, model: Motionformer, around: int | None) -> Clip:
    clip = open_clip(video.path, model.config, around)
    truth = None if video.truth is None else video.truth[list(clip.numbers)]
    return replace(clip, name=video.name, truth=truth)


def _trace(name: str, model: Motionformer, video: PageVideo, asked: Asked) -> Trace:
    """As `trace` on the file, but the clip stays where it is: the point is in one of the frames that are shown."""
    clip = _open(video, model, asked.around)
    wanted = clip.numbers[clip.asked] if asked.frame is None else asked.frame
    place = min(range(len(clip.numbers)), key=lambda k: abs(clip.numbers[k] - wanted))
    try:
        found = trace(
            model,
            clip.frames,
            at=asked.at if asked.what in POINTED else None,
            frame=place,
            layer=asked.layer,
            head=asked.head,
            what=asked.what,
            label=asked.label,
            name=name,
            scale=asked.scale,
        )
    except TraceError as error:
        raise TraceError(f"{name}: {error}") from error
    return replace(found, clip=replace(clip, asked=place))


def _predict(name: str, predictor: Predictor, video: PageVideo) -> dict[str, Any]:
    whole = predictor(video.path).to_dict()
    usual = float(model_windows(predictor.spec, video.facts.fps).hop) / video.facts.fps
    longest = video.facts.duration / MAX_WINDOWS
    timeline = predictor.timeline(video.path, hop=longest if longest > usual else None).to_dict(THRESHOLD)
    for found in (whole, timeline):
        found["video"] = video.name  # not where it lies on the server
    return {"model": name, **whole, "timeline": timeline}
