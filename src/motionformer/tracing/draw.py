"""Pictures of traces: a filmstrip has a row per track and a column per token frame (lines are vectors in PDF and SVG),
an animation (GIF, MP4) a panel per track, the path growing with the frames.

Drawn without pyplot: no global state, so pictures can be made from several threads.
"""

import io
import tempfile
import textwrap
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from jaxtyping import Float, UInt8
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Ellipse, Rectangle
from PIL import Image

from motionformer.data.motion import write_video
from motionformer.errors import TraceError
from motionformer.inference.pictures import plain
from motionformer.tracing.paths import ellipse
from motionformer.tracing.run import Row, Trace, Track

_TOP = 4.0
"""Doublings of a uniform map at which the absolute scale ends: 16 times."""
_INK, _QUERY, _PATH, _TRUTH = "#1f2430", "#e4003a", "#ffffff", "#00d68f"
_HEAT = colormaps["inferno"]
_PANEL, _GAP, _HEADER, _BAR, _FOOTER = 1.35, 0.06, 0.24, 0.17, 0.56  # inches
_LETTER, _NAME_LENGTH = 0.086, 20  # inches of a bold letter; longer names are broken
_MAX_ROWS = 64
_FLAT = "near uniform"
_WHAT = {"trajectory": "query", "class-token": "class token", "rollout": "rollout", "gradcam": "Grad-CAM"}


def draw(rows: Sequence[Row], kind: str) -> bytes:
    """A filmstrip as the bytes of a PNG, PDF or SVG file; an animation as those of a GIF or an MP4, slowed down if it
    is short."""
    if kind in ("gif", "mp4"):
        fps = min(max(rows[0].trace.clip.fps / 2, _SLOWEST), _FASTEST)
        return {"gif": _gif, "mp4": _mp4}[kind](_draw_frames(rows), fps)
    if len(rows) > _MAX_ROWS:
        raise TraceError(
            f"{len(rows)} rows do not fit into a picture ({_MAX_ROWS} do): choose a layer or a head, or write JSON."
        )
    out = io.BytesIO()
    _draw_filmstrip(rows).savefig(out, format=kind, dpi=160)
    return out.getvalue()


def _draw_filmstrip(rows: Sequence[Row]) -> Figure:
    """The picture as a matplotlib figure, to be changed or placed in another."""
    columns = max(len(row.track.path) for row in rows)
    tall = [_PANEL * row.trace.geometry.frame[0] / row.trace.geometry.frame[1] for row in rows]
    shown = [[row.trace.clip.numbers[i] for i in row.trace.shown_frames] for row in rows]
    headed = [i == 0 or shown[i] != shown[i - 1] for i in range(len(rows))]
    label_width = 0.16 + _LETTER * max(len(line) for row in rows for part in _all_lines(row) for line in part)
    width = label_width + columns * (_PANEL + _GAP) + _GAP
    height = sum(tall) + len(rows) * (_BAR + _GAP) + _HEADER * sum(headed) + _FOOTER
    figure = Figure(figsize=(width, height), facecolor="white")
    top = height
    for row, panel_height, has_header in zip(rows, tall, headed, strict=True):
        top -= _HEADER if has_header else 0
        bottom = top - panel_height
        _write_label(figure, row, bottom + panel_height / 2, (width, height))
        for f, frame in enumerate(row.trace.shown_frames):
            left = label_width + f * (_PANEL + _GAP)
            ax = figure.add_axes((left / width, bottom / height, _PANEL / width, panel_height / height))
            _draw_panel(ax, row.trace, row.track, f, frame)
            if has_header:
                ax.set_title(f"frame {row.trace.clip.numbers[frame]}", fontsize=8, color=_INK, pad=3)
            _draw_share(figure, row.track, f, (left / width, (bottom - _BAR * 0.72) / height), (width, height))
        top = bottom - _BAR - _GAP
    _write_legend(figure, rows)
    _draw_colour_bar(figure, " / ".join(dict.fromkeys(_heat_caption(row.trace) for row in rows)), (width, height))
    return figure


def _draw_panel(ax: Axes, trace: Trace, track: Track, f: int, shown: int, upto: int | None = None) -> None:
    """Frame `shown` of the clip with the map of token frame f, and the path (up to token frame `upto`)."""
    height, width = trace.geometry.frame
    ax.imshow(_wash(trace.clip.frames[shown].numpy()), extent=(0, width, height, 0), interpolation="antialiased")
    left, up, right, down = trace.geometry.visible
    ax.imshow(_colour(_heat(trace, track, f)), extent=(left, right, down, up), interpolation="bilinear")
    _veil(ax, trace)
    _draw_truth(ax, trace, shown)
    if trace.query is not None:  # without one, the mean is that of everything the model looks at
        _draw_path(ax, track, f, len(track.path) if upto is None else upto + 1)
        if trace.query.token_frame == f:
            _draw_query(ax, trace)
    if not track.has_peak[f]:
        ax.text(width / 2, height * 0.97, _FLAT, fontsize=6.5, color=_INK, ha="center", va="bottom", zorder=7).set_bbox(
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


def _heat(trace: Trace, track: Track, f: int) -> Float[np.ndarray, "rows columns"]:
    """From 0 to 1. Relative: from nothing to the largest weight of the frame (or of the clip), and nothing at all where
    the map is near uniform, which would be hot everywhere. Absolute: doublings of a uniform map, 0 below it."""
    weights = track.map.space if trace.per_frame else track.map.weights
    if trace.scale == "absolute":
        uniform = 1 / (weights.shape[1] if trace.per_frame else weights.numel())
        level = (weights[f] / uniform).clamp(min=1.0).log2().clamp(max=_TOP) / _TOP
    else:
        largest = weights[f].max() if trace.per_frame else weights.max()
        level = weights[f] / largest * track.has_peak[f]
    levels: Float[np.ndarray, "rows columns"] = level.view(trace.geometry.rows, trace.geometry.columns).numpy()
    return levels


def _heat_caption(trace: Trace) -> str:
    """What the colours of a picture mean."""
    which = "frame" if trace.per_frame else "clip"
    if trace.scale == "absolute":
        return f"heat, absolute: 1 to {2**_TOP:.0f} × uniform over the {which}"
    return f"heat, relative: 0 to the {which}'s largest weight"


def _colour(level: Float[np.ndarray, "rows columns"]) -> Float[np.ndarray, "rows columns 4"]:
    """Colour and opacity grow with the level."""
    colour: Float[np.ndarray, "rows columns 4"] = _HEAT(0.25 + 0.7 * level)
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
    """The line goes where the map is strongest; the ellipse is the mean of the whole map and its spread. Nothing is
    drawn where the map is near uniform: the line has a gap there."""
    if not track.has_peak[:count].any():
        return
    xs, ys = track.peak[:count].T.numpy()
    ax.plot(xs, ys, "-", color=_INK, linewidth=2.4, alpha=0.6, solid_capstyle="round")
    ax.plot(xs, ys, "-", color=_PATH, linewidth=1.2, marker="o", markersize=2.2, markeredgewidth=0)
    if not track.has_peak[f]:
        return
    x, y = track.path[f].tolist()
    long, short, angle = ellipse(track.covariance[f])
    spread = Ellipse(
        (x, y), long, short, angle=angle, facecolor="none", edgecolor=_PATH, linewidth=0.9, linestyle=(0, (3, 2))
    )
    ax.add_patch(spread)
    ax.plot(x, y, "+", color=_PATH, markersize=4, markeredgewidth=0.9)
    ax.plot(*track.peak[f].tolist(), "o", color=_PATH, markersize=5, markeredgecolor=_INK, markeredgewidth=0.9)


def _draw_truth(ax: Axes, trace: Trace, shown: int) -> None:
    if trace.clip.truth is None:
        return
    truth = trace.clip.truth
    x, y = truth.T.numpy().copy()
    jumps = np.flatnonzero(np.hypot(np.diff(x), np.diff(y)) > min(trace.geometry.frame) / 2) + 1
    ax.plot(np.insert(x, jumps, np.nan), np.insert(y, jumps, np.nan), "-", color=_TRUTH, linewidth=1.3)
    ax.plot(*truth[shown].tolist(), "P", color=_TRUTH, markersize=5.5, markeredgecolor=_INK, markeredgewidth=0.6)


def _draw_query(ax: Axes, trace: Trace) -> None:
    query, (width, height) = trace.query, trace.geometry.patch_size
    assert query is not None
    left, top, _, _ = trace.geometry.visible
    corner = left + query.column * width, top + query.row * height
    ax.add_patch(Rectangle(corner, width, height, facecolor="none", edgecolor=_QUERY, linewidth=1.8, zorder=5))
    ax.plot(query.x, query.y, "x", color=_QUERY, markersize=4, markeredgewidth=1.3, zorder=6)


def _draw_share(figure: Figure, track: Track, f: int, corner: tuple[float, float], size: tuple[float, float]) -> None:
    """Under a panel: the share of the frame, as a bar and as a number."""
    share = float(track.map.mass[f])
    (x, y), (width, height) = corner, size
    bar, thick, room = _PANEL * 0.72 / width, 0.05 / height, 0.05 / height
    for length, colour in ((1.0, "#e6e9ef"), (share, "#6b7386")):
        figure.add_artist(Rectangle((x, y + room / 2), bar * length, thick, facecolor=colour, linewidth=0))
    figure.text(
        x + _PANEL / width, y + room / 2 + thick / 2, f"{share:.0%}", fontsize=7, color=_INK, ha="right", va="center"
    )


def _label_lines(row: Row) -> tuple[list[str], list[str]]:
    """The lines at the left of a row: the model, and what of it is shown."""
    trace, track = row
    shown = {"mean": "mean of layers"}.get(track.layer, f"layer {track.layer}")
    lines = [_WHAT[trace.what], shown]
    if track.head:
        lines.append({"mean": "mean of heads"}.get(track.head, f"head {track.head}"))
    if trace.label is not None:
        lines.append(f"class {trace.label}")
    return textwrap.wrap(trace.model, _NAME_LENGTH), lines


def _all_lines(row: Row) -> tuple[list[str], list[str]]:
    """`_label_lines`, and what the row does not show."""
    name, lines = _label_lines(row)
    return name, lines + textwrap.wrap(row.trace.note(row.track) or "", _NAME_LENGTH)


def _write_label(figure: Figure, row: Row, middle: float, size: tuple[float, float]) -> None:
    name, lines = _all_lines(row)
    x, (width, height) = 0.08, size
    y = middle + 0.14 * (len(name) + len(lines)) / 2
    figure.text(x / width, y / height, plain("\n".join(name)), fontsize=8.5, weight="bold", color=_INK, va="top")
    y -= 0.15 * len(name) + 0.02
    figure.text(x / width, y / height, plain("\n".join(lines)), fontsize=7.5, color=_INK, va="top", linespacing=1.35)


def _write_legend(figure: Figure, rows: Sequence[Row]) -> None:
    handles = []
    if any(row.trace.query for row in rows):
        patch = Line2D([], [], linestyle="", marker="s", markerfacecolor="none", markeredgecolor=_QUERY, label="query")
        path = Line2D([], [], color="#7b8494", marker="o", markerfacecolor=_PATH, markeredgecolor=_INK, markersize=5)
        path.set_label("where it looks most")
        mean = Line2D([], [], linestyle=(0, (3, 2)), color="#7b8494", linewidth=0.9, marker="+", markersize=4)
        mean.set_label("mean, one standard deviation")
        drawn = any(row.trace.query and row.track.has_peak.any() for row in rows)
        handles += [patch, path, mean] if drawn else [patch]
    if any(row.trace.clip.truth is not None for row in rows):
        handles.append(Line2D([], [], color=_TRUTH, marker="P", markeredgecolor=_INK, label="true path"))
    handles.append(Line2D([], [], color="#6b7386", linewidth=3, label="share of the frame"))
    figure.legend(handles=handles, loc="lower right", ncols=len(handles), fontsize=7, frameon=False, borderaxespad=0.3)


def _draw_colour_bar(figure: Figure, caption: str, size: tuple[float, float]) -> None:
    """Above the legend, at the left: the colours from 0 to 1, on grey, and what they mean."""
    width, height = size
    left, bottom, long, thick = 0.12, _FOOTER - 0.26, 0.9, 0.1  # inches
    ax = figure.add_axes((left / width, bottom / height, long / width, thick / height))
    ax.set(xticks=[], yticks=[], facecolor="#8a8f98")
    ax.imshow(_colour(np.linspace(0, 1, 64)[None]), extent=(0, 1, 0, 1), aspect="auto")
    figure.text(
        (left + long + 0.08) / width, (bottom + thick / 2) / height, caption, fontsize=7, color=_INK, va="center"
    )


# Animations

_BIG_PANEL, _LINE, _WIDE_GAP, _MAX_COLUMNS = 2.6, 0.15, 0.08, 4  # inches; panels per line
_DPI = 120
_SLOWEST, _FASTEST = 2.0, 25.0  # frames per second: eight frames at their own speed would be too short to watch


def _draw_frames(rows: Sequence[Row]) -> UInt8[np.ndarray, "t H W 3"]:
    """All frames of the animation; clips of several lengths take the same time."""
    steps = max(len(row.trace.clip.frames) for row in rows)
    return np.stack([_draw_animation_frame(rows, step / steps) for step in range(steps)])


def _draw_animation_frame(rows: Sequence[Row], progress: float) -> UInt8[np.ndarray, "H W 3"]:
    columns = min(len(rows), _MAX_COLUMNS)
    lines = -(-len(rows) // columns)
    notes = [trace.note(track) for trace, track in rows]
    title = 0.12 + _LINE * (4 if any(notes) else 3)
    tall = max(_BIG_PANEL * row.trace.geometry.frame[0] / row.trace.geometry.frame[1] for row in rows)
    width, height = columns * (_BIG_PANEL + _WIDE_GAP) + _WIDE_GAP, lines * (tall + title + _WIDE_GAP)
    # even sides in pixels, which is what players of H.264 want
    figure = Figure(figsize=(_even(width * _DPI) / _DPI, _even(height * _DPI) / _DPI), dpi=_DPI, facecolor="white")
    for i, (trace, track) in enumerate(rows):
        shown = int(progress * len(trace.clip.frames))
        left = _WIDE_GAP + (i % columns) * (_BIG_PANEL + _WIDE_GAP)
        bottom = height - (i // columns + 1) * (tall + title + _WIDE_GAP) + _WIDE_GAP
        ax = figure.add_axes((left / width, bottom / height, _BIG_PANEL / width, tall / height))
        f = shown // trace.geometry.tubelet
        _draw_panel(ax, trace, track, f, shown, upto=f)
        details = ", ".join(_label_lines(Row(trace, track))[1])
        caption = [
            textwrap.shorten(trace.model, 40),
            f"{details} · frame {trace.clip.numbers[shown]}",
            _heat_caption(trace),
            notes[i],
        ]
        text = plain("\n".join(filter(None, caption)))
        ax.set_title(text, fontsize=7.0, color=_INK, linespacing=1.4, pad=4)
    out = io.BytesIO()
    figure.savefig(out, format="png")
    pixels: UInt8[np.ndarray, "H W 3"] = np.asarray(Image.open(out).convert("RGB"))
    return pixels


def _even(pixels: float) -> int:
    return 2 * round(pixels / 2)


def _gif(frames: UInt8[np.ndarray, "t H W 3"], fps: float) -> bytes:
    out = io.BytesIO()
    # one palette for all frames: with one each, still parts would flicker
    palette = Image.fromarray(np.concatenate(frames[:: max(1, len(frames) // 4)])).quantize(255)
    first, *others = (Image.fromarray(frame).quantize(palette=palette) for frame in frames)
    first.save(out, "GIF", save_all=True, append_images=others, duration=round(1000 / fps), loop=0)
    return out.getvalue()


def _mp4(frames: UInt8[np.ndarray, "t H W 3"], fps: float) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "trace.mp4"
        write_video(file, frames, round(fps))
        return file.read_bytes()
