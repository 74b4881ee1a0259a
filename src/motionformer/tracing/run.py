"""START HERE: a model, a video and a point become a `Trace`, and that pictures, clips, JSON."""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from motionformer.errors import TraceError
from motionformer.models import Motionformer
from motionformer.models.config import SamplingProtocol
from motionformer.models.motionformer import evaluating
from motionformer.runs import write_atomically
from motionformer.tracing.clip import Clip, Geometry, Point, Query, Source, find_geometry, open_clip, prepare_clip
from motionformer.tracing.maps import KINDS, Question, Shown, Which
from motionformer.tracing.paths import MIN_PEAKEDNESS, expected_path, path_covariance, peak_path, peakedness
from motionformer.weights.load import load_model, short_name

if TYPE_CHECKING:
    from motionformer.inference import Predictor
import json
from abc import ABC, abstractmethod
from dataclasses import asdict, dataclass
from typing import NamedTuple

from jaxtyping import Bool, Float64
from torch import Tensor

from motionformer.tracing.maps import SpaceTimeMap

SCALES = ("relative", "absolute")
"""Of the heat: up to the largest weight that is shown, or against a uniform map, the same in all pictures."""
FORMATS = ("png", "pdf", "svg", "gif", "mp4", "json")
"""Filmstrips (png, pdf, svg), clips (gif, mp4), and all numbers (json)."""


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
) -> "Trace":
    """Compute where a model looks in a clip of a video.

    Args:
        model: a model, a `Predictor`, or anything `load_model` takes.
        video: a video file, a folder of frames, frames in memory (uint8 `[t H W 3]`), a `MotionClip`, or
            `motion:LEVEL/NUMBER`.
        point: the query (x, y) in pixels of the frame as decoded, for `trajectory` and `rollout` [default for a
            trajectory on a motion clip: the disc].
        frame: the frame that the point lies in, an index into the video or into the frames in memory [default: the
            middle of the clip].
        layer: `last`, `all` (one track per layer), `mean`, a number from 0; `adapter` is the attention of the last
            adapter, `adapter:N` of that behind block N.
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


def compare(
    models: "Mapping[str, Motionformer | Predictor | str | Path]", video: Source, **options: Any
) -> "Comparison":
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


def _track(shown: Shown, geometry: Geometry) -> "Track":
    layer, head, found = shown
    maps, centres = found.space, geometry.patch_centres()
    share = peakedness(maps, centres, geometry.patch_size)
    peak = peak_path(maps, centres, geometry.patch_size)
    return Track(
        layer=layer,
        head=head,
        map=found,
        path=expected_path(maps, centres),
        covariance=path_covariance(maps, centres),
        peak=peak.masked_fill((share < MIN_PEAKEDNESS)[:, None], math.nan),
        peakedness=share,
    )


@dataclass(frozen=True)
class Track:
    """One map through the clip: of a layer and a head, or of the mean of several."""

    layer: str
    head: str
    map: SpaceTimeMap
    path: Float64[Tensor, "f 2"]
    """The mean position of each token frame's map, (x, y) in pixels of the frame as it was decoded."""
    covariance: Float64[Tensor, "f 2 2"]
    peak: Float64[Tensor, "f 2"]
    """The peak of each map (`peak_path`): the line that pictures show. NaN where the map is near uniform."""
    peakedness: Float64[Tensor, " f"]
    """How much of each token frame's map is in its peak, beyond a uniform map: 0 to 1 (`paths.peakedness`)."""

    @property
    def has_peak(self) -> Bool[Tensor, " f"]:
        """Where the map is not near uniform, so that there is a position to draw."""
        return self.peakedness >= MIN_PEAKEDNESS

    def __repr__(self) -> str:
        peaks = ", ".join(f"({x:.0f}, {y:.0f})" if x == x else "–" for x, y in self.peak.tolist())
        return f"Track(layer {self.layer}{f', head {self.head}' if self.head else ''}: {peaks})"


class _Saveable(ABC):
    """Something with rows to draw."""

    @property
    @abstractmethod
    def rows(self) -> "list[Row]":
        """What a picture shows, from top to bottom."""

    @abstractmethod
    def to_json(self) -> str:
        """Everything but the pixels."""

    def to_png(self) -> bytes:
        """The filmstrip, as the bytes of a PNG file."""
        return self.render("png")

    def render(self, kind: str) -> bytes:
        """The bytes of a file of a kind in `FORMATS`."""
        if kind == "json":
            return self.to_json().encode()
        from motionformer.tracing import draw  # matplotlib is an extra: only pictures need it

        return draw.draw(self.rows, kind)

    def save(self, path: str | Path) -> None:
        """Write a file; its suffix is the format: png, pdf or svg (filmstrip), gif or mp4 (clip), json.

        Raises:
            TraceError: another suffix, or a file that cannot be written.
        """
        check_suffix(path)
        content = self.render(Path(path).suffix.lower().removeprefix("."))
        try:
            write_atomically(Path(path), content)
        except OSError as error:
            raise TraceError(f"{path}: cannot be written ({error.strerror}).") from error


@dataclass(frozen=True, repr=False)
class Trace(_Saveable):
    """Where a model looked in one clip; made by `trace`.

    Attributes:
        what: what is shown (`KINDS`).
        model: name of the model.
        scheme: its attention.
        clip: the frames it was shown.
        geometry: pixels ↔ patches.
        query: the point that was asked about, and its token; None for what has no point.
        label: the class that is explained, if any.
        per_frame: whether the maps of different frames are drawn to scales of their own.
        tracks: a map through the clip for each layer and head.
        scale: of the heat in pictures, one of `SCALES`.
    """

    what: str
    model: str
    scheme: str
    clip: Clip
    geometry: Geometry
    query: Query | None
    label: str | None
    per_frame: bool
    tracks: tuple[Track, ...]
    scale: str = "relative"

    def __repr__(self) -> str:
        point = "" if self.query is None else f" of ({self.query.x:g}, {self.query.y:g})"
        label = "" if self.label is None else f" of {self.label!r}"
        count = f"{len(self.tracks)} track{'s' if len(self.tracks) > 1 else ''}"
        return f"Trace({self.what}{point}{label}, model {self.model!r}, clip {self.clip.name!r}, {count})"

    @property
    def rows(self) -> "list[Row]":
        return [Row(self, track) for track in self.tracks]

    @property
    def shown_frames(self) -> list[int]:
        """The frame of the clip that represents each token frame; the query's own is one of them."""
        tubelet = self.geometry.tubelet
        offset = tubelet // 2 if self.query is None else self.query.frame % tubelet
        return [first + offset for first in range(0, len(self.clip.frames), tubelet)]

    def note(self, track: Track) -> str | None:
        """What a picture of the track does not show, and why; None if every token frame has a peak."""
        flat, count = int((~track.has_peak).sum()), len(track.peakedness)
        if not flat:
            return None
        where = "" if flat == count else f" in {flat} of {count} token frames"
        return ("no path: " if self.query is not None else "") + f"near uniform{where}"

    def to_dict(self) -> dict[str, Any]:
        """Everything but the pixels, as plain numbers."""
        g, clip = self.geometry, self.clip
        return {
            "what": self.what,
            "model": self.model,
            "scheme": self.scheme,
            "clip": clip.name,
            "label": self.label,
            "frame_size": {"width": g.frame[1], "height": g.frame[0]},
            "visible": dict(zip(("left", "top", "right", "bottom"), g.visible, strict=True)),
            "grid": {"frames": len(clip.frames) // g.tubelet, "rows": g.rows, "columns": g.columns},
            "patch_size": {"width": g.patch_size[0], "height": g.patch_size[1]},
            "frames": list(clip.numbers),
            "distinct_frames": len(set(clip.numbers)),
            "damaged": clip.damaged,
            "query": None if self.query is None else {**asdict(self.query), "number": clip.numbers[self.query.frame]},
            "truth": None if clip.truth is None else clip.truth.tolist(),
            "scale": self.scale,
            "min_peakedness": MIN_PEAKEDNESS,
            "tracks": [self._track_dict(track) for track in self.tracks],
        }

    def to_json(self) -> str:
        return json.dumps(self.to_dict())

    def _track_dict(self, track: Track) -> dict[str, Any]:
        g, tubelet = self.geometry, self.geometry.tubelet
        frames = [
            {
                "frames": list(self.clip.numbers[f * tubelet : (f + 1) * tubelet]),
                "mass": float(track.map.mass[f]),
                "peakedness": float(track.peakedness[f]),
                "x": float(track.path[f, 0]),
                "y": float(track.path[f, 1]),
                "covariance": track.covariance[f].tolist(),
                "peak": dict(zip("xy", track.peak[f].tolist(), strict=True)) if track.has_peak[f] else None,
                "reason": _why_flat(track, f),
                "map": track.map.space[f].view(g.rows, g.columns).tolist(),
            }
            for f in range(len(track.path))
        ]
        return {
            "layer": track.layer,
            "head": track.head,
            "prefix": track.map.prefix,
            "note": self.note(track),
            "token_frames": frames,
        }


@dataclass(frozen=True)
class Comparison(_Saveable):
    """Several models on the same clip and query, one trace per model; JSON is a list with one object per model."""

    traces: tuple[Trace, ...]

    @property
    def rows(self) -> "list[Row]":
        return [row for one in self.traces for row in one.rows]

    def to_json(self) -> str:
        return json.dumps([one.to_dict() for one in self.traces])


class Row(NamedTuple):
    """One line of a picture."""

    trace: Trace
    track: Track


def check_suffix(path: str | Path) -> None:
    """Raise `TraceError` for a file name whose suffix is no format of a trace."""
    suffix = Path(path).suffix.lower()
    if suffix.removeprefix(".") not in FORMATS:
        raise TraceError(f"{path}: the suffix must be one of {', '.join(FORMATS)}; not {suffix or 'none'}.")


def _why_flat(track: Track, f: int) -> str | None:
    if track.has_peak[f]:
        return None
    return "the map is near uniform" if track.map.mass[f] > 0 else "the frame gets no weight"
