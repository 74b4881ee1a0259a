"""START HERE: a model, a clip and a point become a `Trace`."""

import math
from pathlib import Path

from jaxtyping import Float, UInt8
from torch import Tensor

from motionformer.errors import TraceError
from motionformer.models import Motionformer
from motionformer.models.config import SamplingProtocol
from motionformer.models.motionformer import evaluating
from motionformer.trace.choice import Which
from motionformer.trace.clip import Clip, Source, open_clip
from motionformer.trace.kinds import KINDS, Question, Shown
from motionformer.trace.paths import MIN_PEAKEDNESS, expected_path, path_covariance, peak_path, peakedness
from motionformer.trace.query import Geometry, Point, Query, find_geometry
from motionformer.trace.result import SCALES, Trace, Track
from motionformer.video.transforms import eval_transform
from motionformer.weights.load import load_model, short_name


def trace(
    model: Motionformer | str | Path,
    clip: Source,
    *,
    at: Point | None = None,
    frame: int | None = None,
    layer: Which = "last",
    head: Which = "mean",
    what: str = "trajectory",
    label: Which | None = None,
    name: str | None = None,
    protocol: SamplingProtocol | None = None,
    scale: str = "relative",
) -> Trace:
    """Where `model` looks in `clip`.

    Args:
        model: a model, or anything `load_model` takes.
        clip: a video file, a folder of frames, bytes `[t H W 3]`, a `MotionClip`, or `motion:LEVEL/NUMBER`.
        at: the point (x, y) in pixels of the frame as it was decoded, for `trajectory` and `rollout`; on a motion clip,
            a trajectory is the disc's unless said.
        frame: of the video, or of the frames in memory, that the point lies in; the middle of the clip unless said.
        layer: `last`, `all` (a track each), `mean`, or a number from 0.
        head: `mean`, `all` (a track each), or a number from 0.
        what: `trajectory` (where the patch at the point looks), `class-token`, `rollout` or `gradcam`.
        label: the class that `gradcam` explains; the predicted one unless said.
        name: what the model is called in pictures.
        protocol: how the clip is cut, for a `model` that is loaded here; as in `load_model`.
        scale: of the heat in pictures: `relative` goes up to the largest weight of the frame (of the clip, for what is
            not a trajectory), `absolute` from a uniform map to 16 times that.

    Returns:
        The maps and their paths. Where a map is near uniform, it has no path: `Track.peak` is NaN and `Trace.note`
        says so.

    Raises:
        TraceError: a question that the model or the clip cannot answer.
    """
    if scale not in SCALES:
        raise TraceError(f"`scale` ({scale!r}) must be one of {', '.join(SCALES)}.")
    if what not in KINDS:
        raise TraceError(f"there is no {what!r} to show; there are {', '.join(KINDS)}.")
    kind = KINDS[what]
    _refuse_unread(what, at, label)
    if not isinstance(model, Motionformer):
        name, model = name or short_name(model), load_model(model, protocol=protocol)
    opened = open_clip(clip, model.config, frame)
    geometry = find_geometry(model.config, (opened.frames.shape[1], opened.frames.shape[2]))
    query = _find_query(opened, geometry, at, kind.needs_point)
    token = None if query is None else model.config.num_prefix_tokens + query.token
    question = Question(prepare(model, opened.frames), token, layer, head, label)
    with evaluating(model):
        shown, class_name = kind.look(model, question)
    return Trace(
        what=what,
        model=name or model.config.source or f"{model.config.attention} attention",
        scheme=model.config.attention,
        clip=opened,
        geometry=geometry,
        query=query,
        label=class_name,
        per_frame=kind.per_frame,
        tracks=tuple(_track(one, geometry) for one in shown),
        scale=scale,
    )


def prepare(model: Motionformer, frames: UInt8[Tensor, "t H W 3"]) -> Float[Tensor, "1 3 t h w"]:
    """Decoded frames as the model takes them: size, scale, device, precision."""
    return eval_transform(model.config.input)(frames)[None].to(model.prefix.device, model.prefix.dtype)


def _refuse_unread(what: str, at: Point | None, label: Which | None) -> None:
    """What would change nothing must not look as if it had."""
    if at is not None and not KINDS[what].takes_point:
        pointed = " or ".join(name for name, kind in KINDS.items() if kind.takes_point)
        raise TraceError(f"{what} is not of a point: leave --at (at=) out, or ask for {pointed}.")
    if label is not None and not KINDS[what].takes_label:
        labelled = " or ".join(name for name, kind in KINDS.items() if kind.takes_label)
        raise TraceError(f"{what} is not of a class: leave --label (label=) out, or ask for {labelled}.")


def _find_query(clip: Clip, geometry: Geometry, at: Point | None, needed: bool) -> Query | None:
    if at is None and clip.truth is not None and needed:
        x, y = clip.truth[clip.asked].tolist()
        at = x, y
    if at is None:
        if needed:
            raise TraceError(f"{clip.name}: say which point to follow: at=(x, y), or --at x,y; in pixels of the frame.")
        return None
    try:
        return geometry.query(at, clip.asked)
    except TraceError as error:
        raise TraceError(f"{clip.name}: {error}") from None


def _track(shown: Shown, geometry: Geometry) -> Track:
    maps, places = shown.map.space, geometry.places()
    share = peakedness(maps, places, geometry.patch_size)
    peak = peak_path(maps, places, geometry.patch_size)
    return Track(
        layer=shown.layer,
        head=shown.head,
        map=shown.map,
        path=expected_path(maps, places),
        covariance=path_covariance(maps, places),
        peak=peak.masked_fill((share < MIN_PEAKEDNESS)[:, None], math.nan),
        peakedness=share,
    )
