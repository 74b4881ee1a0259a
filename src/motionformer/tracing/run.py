"""START HERE: a model, a video and a point become a `Trace`."""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from motionformer.errors import TraceError
from motionformer.models import Motionformer
from motionformer.models.config import SamplingProtocol
from motionformer.models.motionformer import evaluating
from motionformer.tracing.clip import Clip, Geometry, Point, Query, Source, find_geometry, open_clip, prepare_clip
from motionformer.tracing.kinds import KINDS, Question, Shown, Which
from motionformer.tracing.paths import MIN_PEAKEDNESS, expected_path, path_covariance, peak_path, peakedness
from motionformer.tracing.result import SCALES, Comparison, Trace, Track
from motionformer.weights.load import load_model, short_name

if TYPE_CHECKING:
    from motionformer.inference import Predictor


def trace(
    model: "Motionformer | Predictor | str | Path",
    video: Source,
    point: Point | None = None,
    *,
    frame: int | None = None,
    layer: Which = "last",
    head: Which = "mean",
    what: str = "trajectory",
    label: Which | None = None,
    name: str | None = None,
    protocol: SamplingProtocol | None = None,
    scale: str = "relative",
    device: str | torch.device | None = None,
) -> Trace:
    """Compute where a model looks in a clip of a video.

    Args:
        model: a model, a `Predictor`, or anything `load_model` takes.
        video: a video file, a folder of frames, frames in memory (uint8 `[t H W 3]`), a `MotionClip`, or
            `motion:LEVEL/NUMBER`.
        point: the query (x, y) in pixels of the frame as decoded, for `trajectory` and `rollout` [default for a
            trajectory on a motion clip: the disc].
        frame: the frame that the point lies in, an index into the video or into the frames in memory [default: the
            middle of the clip].
        layer: `last`, `all` (one track per layer), `mean`, or a number from 0.
        head: `mean`, `all` (one track per head), or a number from 0.
        what: `trajectory` (attention of the patch at the point), `class-token`, `rollout` or `gradcam`.
        label: the class that `gradcam` explains, by name or number [default: the predicted one].
        name: of the model, in pictures.
        protocol: how clips are cut, for a model that is loaded here; as in `load_model`.
        scale: of the heat in pictures: `relative` goes up to the largest weight of the frame (of the clip, if it is not
            a trajectory), `absolute` from a uniform map to 16 times that.
        device: to compute on; the model is moved there [default: where the model is].

    Returns:
        The maps and their paths. A map that is near uniform has no path: `Track.peak` is NaN and `Trace.note` explains.

    Raises:
        TraceError: the model or the clip cannot answer the question.
        VideoError: the video cannot be read.

    Example:
        ```python
        from motionformer.tracing import trace

        found = trace("motion-tiny", "motion:easy/3", layer="all")
        print(found.tracks[-1].peak)  # [token frames, 2], in pixels
        found.save("trace.png")
        ```
    """
    if scale not in SCALES:
        raise TraceError(f"`scale` ({scale!r}) must be one of {', '.join(SCALES)}.")
    if what not in KINDS:
        raise TraceError(f"`what` ({what!r}) must be one of {', '.join(KINDS)}.")
    kind = KINDS[what]
    _check_unused(what, point, label)
    if isinstance(model, (str, Path)):
        name, model = name or short_name(model), load_model(model, protocol=protocol)
    elif not isinstance(model, Motionformer):
        model = model.model
    if device is not None:
        model.to(device)
    clip = open_clip(video, model.config, frame)
    geometry = find_geometry(model.config, (clip.frames.shape[1], clip.frames.shape[2]))
    query = _find_query(clip, geometry, point, kind.needs_point)
    token = None if query is None else model.config.num_prefix_tokens + query.token
    question = Question(prepare_clip(model, clip.frames), token, layer, head, label)
    with evaluating(model):
        shown, class_name = kind.look(model, question)
    return Trace(
        what=what,
        model=name or model.config.source or f"{model.config.attention} attention",
        scheme=model.config.attention,
        clip=clip,
        geometry=geometry,
        query=query,
        label=class_name,
        per_frame=kind.per_frame,
        tracks=tuple(_track(one, geometry) for one in shown),
        scale=scale,
    )


def compare(models: "Mapping[str, Motionformer | Predictor | str | Path]", video: Source, **options: Any) -> Comparison:
    """Trace several models on the same clip and query.

    Args:
        models: by the name they have in pictures.
        video: as in `trace`.
        **options: of `trace`.

    Returns:
        One trace per model; `save` draws them below each other.

    Example:
        ```python
        from motionformer.tracing import compare

        compare({"trajectory": "runs/trajectory/model", "joint": "runs/joint/model"}, "motion:hard/12").save("two.png")
        ```
    """
    return Comparison(tuple(trace(model, video, name=name, **options) for name, model in models.items()))


def _check_unused(what: str, point: Point | None, label: Which | None) -> None:
    """An argument that would change nothing is an error."""
    if point is not None and not KINDS[what].takes_point:
        pointed = " or ".join(name for name, kind in KINDS.items() if kind.takes_point)
        raise TraceError(f"{what} takes no point: leave --point (point=) out, or use {pointed}.")
    if label is not None and not KINDS[what].takes_label:
        labelled = " or ".join(name for name, kind in KINDS.items() if kind.takes_label)
        raise TraceError(f"{what} takes no class: leave --label (label=) out, or use {labelled}.")


def _find_query(clip: Clip, geometry: Geometry, point: Point | None, needed: bool) -> Query | None:
    if point is None and clip.truth is not None and needed:
        x, y = clip.truth[clip.query_index].tolist()
        point = x, y
    if point is None:
        if needed:
            raise TraceError(f"{clip.name}: give the point to trace, in pixels: point=(x, y), or --point x,y.")
        return None
    try:
        return geometry.query(point, clip.query_index)
    except TraceError as error:
        raise TraceError(f"{clip.name}: {error}") from None


def _track(shown: Shown, geometry: Geometry) -> Track:
    maps, centres = shown.map.space, geometry.patch_centres()
    share = peakedness(maps, centres, geometry.patch_size)
    peak = peak_path(maps, centres, geometry.patch_size)
    return Track(
        layer=shown.layer,
        head=shown.head,
        map=shown.map,
        path=expected_path(maps, centres),
        covariance=path_covariance(maps, centres),
        peak=peak.masked_fill((share < MIN_PEAKEDNESS)[:, None], math.nan),
        peakedness=share,
    )
