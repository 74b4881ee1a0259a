"""The models of a page: clips, predictions and traces of a video, one request at a time. Knows no HTTP."""

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from motionformer.errors import TraceError
from motionformer.inference import Predictor
from motionformer.inference.timeline import Windows
from motionformer.models import Motionformer
from motionformer.serve.sessions import PageVideo
from motionformer.tracing import KINDS, Clip, Comparison, Trace, open_clip, trace
from motionformer.tracing.clip import Point

_Shown = TypeVar("_Shown")
_MAX_WINDOWS = 60  # of a timeline: more than a screen shows, and each takes time
_THRESHOLD = 0.5


@dataclass(frozen=True)
class Question:
    """What to trace: of the clip around frame `around`, the point `point` in frame `frame`."""

    what: str = "trajectory"
    around: int | None = None
    frame: int | None = None
    point: Point | None = None
    layer: str = "last"
    head: str = "mean"
    label: str | None = None
    scale: str = "relative"


class Models:
    """Models by the name they have on the page."""

    def __init__(self, models: Mapping[str, Motionformer]) -> None:
        self.models = dict(models)
        # the middle crop only: three crops take three times as long (`motionformer predict` uses the tested ones)
        self.predictors = {name: Predictor(model, crops=1) for name, model in self.models.items()}
        self._clip_lock = threading.Lock()
        self._model_lock = threading.Lock()  # attention is recorded by wrapping a model's modules

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

    def clips(self, video: PageVideo, around: int | None, show: Callable[[str, Clip], _Shown]) -> list[_Shown]:
        """`show` of the clip that each model sees around a frame [default: the middle]. Clips are large: one is in
        memory at a time."""
        with self._clip_lock:
            return [show(name, _open_clip(video, model, around)) for name, model in self.models.items()]

    def predict(self, video: PageVideo) -> list[dict[str, Any]]:
        """Top-5 over the model's views and the timeline, per model."""
        with self._model_lock:
            return [_predict(name, predictor, video) for name, predictor in self.predictors.items()]

    def trace(self, video: PageVideo, question: Question) -> Comparison:
        """The trace of each model."""
        with self._model_lock:
            return Comparison(tuple(_trace(name, model, video, question) for name, model in self.models.items()))


def _open_clip(video: PageVideo, model: Motionformer, around: int | None) -> Clip:
    clip = open_clip(video.path, model.config, around)
    truth = None if video.truth is None else video.truth[list(clip.numbers)]
    return replace(clip, name=video.name, truth=truth)


def _trace(name: str, model: Motionformer, video: PageVideo, question: Question) -> Trace:
    """As `trace` of the file, but the clip is not moved: the point is in one of the frames on the page."""
    clip = _open_clip(video, model, question.around)
    wanted = clip.numbers[clip.query_index] if question.frame is None else question.frame
    index = min(range(len(clip.numbers)), key=lambda k: abs(clip.numbers[k] - wanted))
    takes_point = question.what in KINDS and KINDS[question.what].takes_point
    try:
        found = trace(
            model,
            clip.frames,
            question.point if takes_point else None,
            frame=index,
            layer=question.layer,
            head=question.head,
            what=question.what,
            label=question.label,
            name=name,
            scale=question.scale,
        )
    except TraceError as error:
        raise TraceError(f"{name}: {error}") from error
    return replace(found, clip=replace(clip, query_index=index))


def _predict(name: str, predictor: Predictor, video: PageVideo) -> dict[str, Any]:
    whole = predictor(video.path).to_dict()
    usual = float(Windows.of_model(predictor.spec, video.metadata.fps).hop) / video.metadata.fps
    longest = video.metadata.duration / _MAX_WINDOWS
    timeline = predictor.timeline(video.path, hop=longest if longest > usual else None).to_dict(_THRESHOLD)
    for found in (whole, timeline):
        found["video"] = video.name  # not its path on the server
    return {"model": name, **whole, "timeline": timeline}
