"""Traces as a filmstrip: a row for each track, a column for each token frame. Lines are vectors in PDF and SVG.

Drawn without pyplot: no global state, so pictures can be made from several threads.
"""

import io
import textwrap
from collections.abc import Sequence

import numpy as np
from jaxtyping import Float, UInt8
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Ellipse, Rectangle

from motionformer.errors import TraceError
from motionformer.inference.pictures import plain
from motionformer.trace.paths import ellipse
from motionformer.trace.result import Row, Trace, Track

TOP = 4.0
"""Doublings of a uniform map at which the absolute scale ends: 16 times."""
INK, QUERY, PATH, TRUTH = "#1f2430", "#e4003a", "#ffffff", "#00d68f"
HEAT = colormaps["inferno"]
PANEL, GAP, HEADER, BAR, FOOTER = 1.35, 0.06, 0.24, 0.17, 0.56  # inches
LETTER, NAME_LENGTH = 0.086, 20  # inches of a bold letter; longer names are broken
MAX_ROWS = 64
FLAT = "near uniform"
WHAT = {"trajectory": "query", "class-token": "class token", "rollout": "rollout", "gradcam": "Grad-CAM"}


def filmstrip(rows: Sequence[Row], kind: str, dpi: int = 160) -> bytes:
    """The picture, as the bytes of a PNG, PDF or SVG file."""
    if len(rows) > MAX_ROWS:
        raise TraceError(
            f"{len(rows)} rows do not fit into a picture ({MAX_ROWS} do): choose a layer or a head, or write JSON."
        )
    out = io.BytesIO()
    draw_filmstrip(rows).savefig(out, format=kind, dpi=dpi)
    return out.getvalue()


def draw_filmstrip(rows: Sequence[Row]) -> Figure:
    """The picture as a matplotlib figure, for those who want to go on from there."""
    columns = max(len(row.track.path) for row in rows)
    tall = [PANEL * row.trace.geometry.frame[0] / row.trace.geometry.frame[1] for row in rows]
    shown = [[row.trace.clip.numbers[i] for i in row.trace.shown_frames] for row in rows]
    headed = [i == 0 or shown[i] != shown[i - 1] for i in range(len(rows))]
    label_width = 0.16 + LETTER * max(len(line) for row in rows for part in _all_lines(row) for line in part)
    width = label_width + columns * (PANEL + GAP) + GAP
    height = sum(tall) + len(rows) * (BAR + GAP) + HEADER * sum(headed) + FOOTER
    figure = Figure(figsize=(width, height), facecolor="white")
    top = height
    for row, panel_height, has_header in zip(rows, tall, headed, strict=True):
        top -= HEADER if has_header else 0
        bottom = top - panel_height
        _write_label(figure, row, bottom + panel_height / 2, (width, height))
        for f, frame in enumerate(row.trace.shown_frames):
            left = label_width + f * (PANEL + GAP)
            ax = figure.add_axes((left / width, bottom / height, PANEL / width, panel_height / height))
            draw_panel(ax, row.trace, row.track, f, frame)
            if has_header:
                ax.set_title(f"frame {row.trace.clip.numbers[frame]}", fontsize=8, color=INK, pad=3)
            _draw_share(figure, row.track, f, (left / width, (bottom - BAR * 0.72) / height), (width, height))
        top = bottom - BAR - GAP
    _write_legend(figure, rows)
    _draw_colour_bar(figure, " / ".join(dict.fromkeys(heat_caption(row.trace) for row in rows)), (width, height))
    return figure


def draw_panel(ax: Axes, trace: Trace, track: Track, f: int, shown: int, upto: int | None = None) -> None:
    """Frame `shown` of the clip with the map of token frame f, and the path (up to token frame `upto`)."""
    height, width = trace.geometry.frame
    ax.imshow(_wash(trace.clip.frames[shown].numpy()), extent=(0, width, height, 0), interpolation="antialiased")
    left, up, right, down = trace.geometry.visible
    ax.imshow(_colour(heat(trace, track, f)), extent=(left, right, down, up), interpolation="bilinear")
    _veil(ax, trace)
    _draw_truth(ax, trace, shown)
    if trace.query is not None:  # without one, the mean place is that of everything the model looks at
        _draw_path(ax, track, f, len(track.path) if upto is None else upto + 1)
        if trace.query.token_frame == f:
            _draw_query(ax, trace)
    if not track.has_peak[f]:
        ax.text(width / 2, height * 0.97, FLAT, fontsize=6.5, color=INK, ha="center", va="bottom", zorder=7).set_bbox(
            {"facecolor": "white", "alpha": 0.75, "linewidth": 0, "pad": 1.2}
        )
    ax.set(xlim=(0, width), ylim=(height, 0), xticks=[], yticks=[])
    for spine in ax.spines.values():
        spine.set(color="#9aa3b2", linewidth=0.6)


def _wash(frame: UInt8[np.ndarray, "H W 3"]) -> Float[np.ndarray, "H W 3"]:
    """Half of the colour taken out, so that the heat is what is coloured."""
    pixels = frame / 255.0
    grey = pixels @ np.array([0.299, 0.587, 0.114])
    washed: Float[np.ndarray, "H W 3"] = 0.5 * pixels + 0.5 * grey[..., None]
    return washed


def heat(trace: Trace, track: Track, f: int) -> Float[np.ndarray, "rows columns"]:
    """From 0 to 1. Relative: from nothing to the largest weight of the frame (or of the clip), and nothing at all where
    the map is near uniform, which would be hot everywhere. Absolute: doublings of a uniform map, 0 below it."""
    weights = track.map.space if trace.per_frame else track.map.weights
    if trace.scale == "absolute":
        uniform = 1 / (weights.shape[1] if trace.per_frame else weights.numel())
        level = (weights[f] / uniform).clamp(min=1.0).log2().clamp(max=TOP) / TOP
    else:
        largest = weights[f].max() if trace.per_frame else weights.max()
        level = weights[f] / largest * track.has_peak[f]
    levels: Float[np.ndarray, "rows columns"] = level.view(trace.geometry.rows, trace.geometry.columns).numpy()
    return levels


def heat_caption(trace: Trace) -> str:
    """What the colours of a picture mean."""
    which = "frame" if trace.per_frame else "clip"
    if trace.scale == "absolute":
        return f"heat, absolute: 1 to {2**TOP:.0f} × uniform over the {which}"
    return f"heat, relative: 0 to the {which}'s largest weight"


def _colour(level: Float[np.ndarray, "rows columns"]) -> Float[np.ndarray, "rows columns 4"]:
    """Colour and opacity grow with the level."""
    colour: Float[np.ndarray, "rows columns 4"] = HEAT(0.25 + 0.7 * level)
    colour[..., 3] = 0.8 * level
    return colour


def _veil(ax: Axes, trace: Trace) -> None:
    """What the crop cuts off is pale."""
    height, width = trace.geometry.frame
    left, top, right, bottom = trace.geometry.visible
    for x, y, w, h in (
        (0, 0, left, height),
        (right, 0, width - right, height),
        (left, 0, right - left, top),
        (left, bottom, right - left, height - bottom),
    ):
        if w > 0 and h > 0:
            ax.add_patch(Rectangle((x, y), w, h, facecolor="white", alpha=0.65, linewidth=0))


def _draw_path(ax: Axes, track: Track, f: int, count: int) -> None:
    """The line goes where the map is strongest; the ellipse is the mean of the whole map and its spread. Nothing of it
    where the map is near uniform: the line has a gap there."""
    if not track.has_peak[:count].any():
        return
    xs, ys = track.peak[:count].T.numpy()
    ax.plot(xs, ys, "-", color=INK, linewidth=2.4, alpha=0.6, solid_capstyle="round")
    ax.plot(xs, ys, "-", color=PATH, linewidth=1.2, marker="o", markersize=2.2, markeredgewidth=0)
    if not track.has_peak[f]:
        return
    x, y = track.path[f].tolist()
    long, short, angle = ellipse(track.covariance[f])
    spread = Ellipse(
        (x, y), long, short, angle=angle, facecolor="none", edgecolor=PATH, linewidth=0.9, linestyle=(0, (3, 2))
    )
    ax.add_patch(spread)
    ax.plot(x, y, "+", color=PATH, markersize=4, markeredgewidth=0.9)
    ax.plot(*track.peak[f].tolist(), "o", color=PATH, markersize=5, markeredgecolor=INK, markeredgewidth=0.9)


def _draw_truth(ax: Axes, trace: Trace, shown: int) -> None:
    if trace.clip.truth is None:
        return
    place = trace.clip.truth
    x, y = place.T.numpy().copy()
    jumps = np.flatnonzero(np.hypot(np.diff(x), np.diff(y)) > min(trace.geometry.frame) / 2) + 1
    ax.plot(np.insert(x, jumps, np.nan), np.insert(y, jumps, np.nan), "-", color=TRUTH, linewidth=1.3)
    ax.plot(*place[shown].tolist(), "P", color=TRUTH, markersize=5.5, markeredgecolor=INK, markeredgewidth=0.6)


def _draw_query(ax: Axes, trace: Trace) -> None:
    query, (width, height) = trace.query, trace.geometry.patch_size
    assert query is not None
    left, top, _, _ = trace.geometry.visible
    corner = left + query.column * width, top + query.row * height
    ax.add_patch(Rectangle(corner, width, height, facecolor="none", edgecolor=QUERY, linewidth=1.8, zorder=5))
    ax.plot(query.x, query.y, "x", color=QUERY, markersize=4, markeredgewidth=1.3, zorder=6)


def _draw_share(figure: Figure, track: Track, f: int, place: tuple[float, float], size: tuple[float, float]) -> None:
    """Under a panel: the share of the frame, as a bar and as a number."""
    share = float(track.map.mass[f])
    (x, y), (width, height) = place, size
    bar, thick, room = PANEL * 0.72 / width, 0.05 / height, 0.05 / height
    for length, colour in ((1.0, "#e6e9ef"), (share, "#6b7386")):
        figure.add_artist(Rectangle((x, y + room / 2), bar * length, thick, facecolor=colour, linewidth=0))
    figure.text(
        x + PANEL / width, y + room / 2 + thick / 2, f"{share:.0%}", fontsize=7, color=INK, ha="right", va="center"
    )


def label_lines(row: Row) -> tuple[list[str], list[str]]:
    """The lines at the left of a row: the model, and what of it is shown."""
    trace, track = row
    shown = {"mean": "mean of layers"}.get(track.layer, f"layer {track.layer}")
    lines = [WHAT[trace.what], shown]
    if track.head:
        lines.append({"mean": "mean of heads"}.get(track.head, f"head {track.head}"))
    if trace.label is not None:
        lines.append(f"class {trace.label}")
    return textwrap.wrap(trace.model, NAME_LENGTH), lines


def _all_lines(row: Row) -> tuple[list[str], list[str]]:
    """`label_lines`, and what the row does not show."""
    name, lines = label_lines(row)
    return name, lines + textwrap.wrap(row.trace.note(row.track) or "", NAME_LENGTH)


def _write_label(figure: Figure, row: Row, middle: float, size: tuple[float, float]) -> None:
    name, lines = _all_lines(row)
    x, (width, height) = 0.08, size
    y = middle + 0.14 * (len(name) + len(lines)) / 2
    figure.text(x / width, y / height, plain("\n".join(name)), fontsize=8.5, weight="bold", color=INK, va="top")
    y -= 0.15 * len(name) + 0.02
    figure.text(x / width, y / height, plain("\n".join(lines)), fontsize=7.5, color=INK, va="top", linespacing=1.35)


def _write_legend(figure: Figure, rows: Sequence[Row]) -> None:
    handles = []
    if any(row.trace.query for row in rows):
        patch = Line2D([], [], linestyle="", marker="s", markerfacecolor="none", markeredgecolor=QUERY, label="query")
        path = Line2D([], [], color="#7b8494", marker="o", markerfacecolor=PATH, markeredgecolor=INK, markersize=5)
        path.set_label("where it looks most")
        mean = Line2D([], [], linestyle=(0, (3, 2)), color="#7b8494", linewidth=0.9, marker="+", markersize=4)
        mean.set_label("mean, one standard deviation")
        drawn = any(row.trace.query and row.track.has_peak.any() for row in rows)
        handles += [patch, path, mean] if drawn else [patch]
    if any(row.trace.clip.truth is not None for row in rows):
        handles.append(Line2D([], [], color=TRUTH, marker="P", markeredgecolor=INK, label="true path"))
    handles.append(Line2D([], [], color="#6b7386", linewidth=3, label="share of the frame"))
    figure.legend(handles=handles, loc="lower right", ncols=len(handles), fontsize=7, frameon=False, borderaxespad=0.3)


def _draw_colour_bar(figure: Figure, caption: str, size: tuple[float, float]) -> None:
    """Above the legend, at the left: the colours from 0 to 1, on grey, and what they mean."""
    width, height = size
    left, bottom, long, thick = 0.12, FOOTER - 0.26, 0.9, 0.1  # inches
    ax = figure.add_axes((left / width, bottom / height, long / width, thick / height))
    ax.set(xticks=[], yticks=[], facecolor="#8a8f98")
    ax.imshow(_colour(np.linspace(0, 1, 64)[None]), extent=(0, 1, 0, 1), aspect="auto")
    figure.text(
        (left + long + 0.08) / width, (bottom + thick / 2) / height, caption, fontsize=7, color=INK, va="center"
    )
