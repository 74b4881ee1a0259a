"""What a trace found, and the ways to take it away: pictures, clips, JSON."""

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

from jaxtyping import Bool, Float64
from torch import Tensor

from motionformer.errors import TraceError
from motionformer.trace.clip import Clip
from motionformer.trace.maps import SpaceTimeMap
from motionformer.trace.paths import MIN_PEAKEDNESS
from motionformer.trace.query import Geometry, Query

SCALES = ("relative", "absolute")
"""Of the heat: up to the largest weight that is shown, or against a uniform map, the same in all pictures."""


@dataclass(frozen=True)
class Track:
    """One map through the clip: of a layer and a head, or of the mean of several."""

    layer: str
    head: str
    map: SpaceTimeMap
    path: Float64[Tensor, "f 2"]
    """The mean place of each token frame's map, (x, y) in pixels of the frame as it was decoded."""
    covariance: Float64[Tensor, "f 2 2"]
    peak: Float64[Tensor, "f 2"]
    """Where the map is strongest (`peak_path`): the line that pictures show. NaN where the map is near uniform."""
    peakedness: Float64[Tensor, " f"]
    """How much of each token frame's map is in its peak, beyond a uniform map: 0 to 1 (`paths.peakedness`)."""

    @property
    def has_peak(self) -> Bool[Tensor, " f"]:
        """Where the map is not near uniform: there is a place to draw."""
        return self.peakedness >= MIN_PEAKEDNESS


@dataclass(frozen=True)
class Trace:
    """Where a model looked in one clip; made by `trace`."""

    what: str
    model: str
    scheme: str
    clip: Clip
    geometry: Geometry
    query: Query | None
    label: str | None
    per_frame: bool
    """Whether the maps of different frames are drawn to scales of their own."""
    tracks: tuple[Track, ...]
    scale: str = "relative"
    """Of the heat in pictures, one of `SCALES`."""

    @property
    def rows(self) -> "list[Row]":
        """What a picture shows, from top to bottom."""
        return [Row(self, track) for track in self.tracks]

    @property
    def shown_frames(self) -> list[int]:
        """The frame of the clip that stands for each token frame; the query's own is one of them."""
        tubelet = self.geometry.tubelet
        offset = tubelet // 2 if self.query is None else self.query.frame % tubelet
        return [first + offset for first in range(0, len(self.clip.frames), tubelet)]

    def note(self, track: Track) -> str | None:
        """What a picture of the track does not show, and why; None where every token frame has a peak."""
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

    def to_png(self) -> bytes:
        """The filmstrip, as the bytes of a PNG file."""
        return _filmstrip(self.rows, "png")

    def save_png(self, path: str | Path) -> None:
        """The filmstrip: a row for each track, a column for each token frame."""
        save_rows(self.rows, path, ".png")

    def save_gif(self, path: str | Path) -> None:
        save_rows(self.rows, path, ".gif")

    def save_mp4(self, path: str | Path) -> None:
        save_rows(self.rows, path, ".mp4")

    def save(self, path: str | Path) -> None:
        """By suffix: png, pdf or svg (filmstrip), gif or mp4 (clip), json."""
        if Path(path).suffix.lower() == ".json":
            write_bytes(path, self.to_json().encode())
        else:
            save_rows(self.rows, path)

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


class Row(NamedTuple):
    """One line of a picture."""

    trace: Trace
    track: Track


def save_rows(rows: Sequence[Row], path: str | Path, suffix: str | None = None) -> None:
    """A picture or a clip of several tracks; what kind is said by `suffix`, or by that of the file."""
    if suffix is None:
        check_suffix(path)
    write_bytes(path, render_rows(rows, suffix or Path(path).suffix.lower()))


def render_rows(rows: Sequence[Row], suffix: str) -> bytes:
    """The bytes of a file of kind `suffix`."""
    return RENDERERS[suffix](rows, suffix.removeprefix("."))


def check_suffix(path: str | Path) -> None:
    """Refuses a file that no trace can be written as."""
    suffix = Path(path).suffix.lower()
    if suffix not in (*RENDERERS, ".json"):
        kinds = ", ".join(kind.removeprefix(".") for kind in (*RENDERERS, ".json"))
        raise TraceError(f"{path}: what to write is told by the suffix, one of {kinds}; not {suffix or 'none'}.")


def write_bytes(path: str | Path, content: bytes) -> None:
    try:
        Path(path).write_bytes(content)
    except OSError as error:
        raise TraceError(f"{path}: cannot be written ({error.strerror}).") from error


def _why_flat(track: Track, f: int) -> str | None:
    """Why a token frame has no peak."""
    if track.has_peak[f]:
        return None
    return "the map is near uniform" if track.map.mass[f] > 0 else "the frame gets no weight"


def _filmstrip(rows: Sequence[Row], kind: str) -> bytes:
    from motionformer.trace.draw import filmstrip  # matplotlib is an extra: only pictures need it

    return filmstrip(rows, kind)


def _animation(rows: Sequence[Row], kind: str) -> bytes:
    from motionformer.trace.animate import animation

    return animation(rows, kind)


RENDERERS: dict[str, Callable[[Sequence[Row], str], bytes]] = {
    ".png": _filmstrip,
    ".pdf": _filmstrip,
    ".svg": _filmstrip,
    ".gif": _animation,
    ".mp4": _animation,
}
