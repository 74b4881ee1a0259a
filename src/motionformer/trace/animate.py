"""Traces as a moving picture, GIF or MP4: one panel a track, the path growing with the frames."""

import io
import tempfile
import textwrap
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from jaxtyping import UInt8
from matplotlib.figure import Figure
from PIL import Image

from motionformer.data.motion import write_video
from motionformer.inference.pictures import plain
from motionformer.trace.draw import INK, draw_panel, heat_caption, label_lines
from motionformer.trace.result import Row

PANEL, LINE, GAP, MAX_COLUMNS = 2.6, 0.15, 0.08, 4  # inches
DPI = 120
SLOWEST, FASTEST = 2.0, 25.0  # frames a second: a clip of eight frames at its own speed is over before one looks


def animation(rows: Sequence[Row], kind: str) -> bytes:
    """The clip, as the bytes of a GIF or an MP4 file; slowed down where it would be over in a moment."""
    frames = draw_frames(rows)
    fps = min(max(rows[0].trace.clip.fps / 2, SLOWEST), FASTEST)
    return {"gif": _gif, "mp4": _mp4}[kind](frames, fps)


def draw_frames(rows: Sequence[Row]) -> UInt8[np.ndarray, "t H W 3"]:
    """All frames of the clip, one after the other; clips of several lengths are shown at the same pace."""
    steps = max(len(row.trace.clip.frames) for row in rows)
    return np.stack([_draw_frame(rows, step / steps) for step in range(steps)])


def _draw_frame(rows: Sequence[Row], progress: float) -> UInt8[np.ndarray, "H W 3"]:
    columns = min(len(rows), MAX_COLUMNS)
    lines = -(-len(rows) // columns)
    notes = [trace.note(track) for trace, track in rows]
    title = 0.12 + LINE * (4 if any(notes) else 3)
    tall = max(PANEL * row.trace.geometry.frame[0] / row.trace.geometry.frame[1] for row in rows)
    width, height = columns * (PANEL + GAP) + GAP, lines * (tall + title + GAP)
    # even sides in pixels, which is what players of H.264 want
    figure = Figure(figsize=(_even(width * DPI) / DPI, _even(height * DPI) / DPI), dpi=DPI, facecolor="white")
    for i, (trace, track) in enumerate(rows):
        shown = int(progress * len(trace.clip.frames))
        left, bottom = GAP + (i % columns) * (PANEL + GAP), height - (i // columns + 1) * (tall + title + GAP) + GAP
        ax = figure.add_axes((left / width, bottom / height, PANEL / width, tall / height))
        f = shown // trace.geometry.tubelet
        draw_panel(ax, trace, track, f, shown, upto=f)
        details = ", ".join(label_lines(Row(trace, track))[1])
        caption = [
            textwrap.shorten(trace.model, 40),
            f"{details} · frame {trace.clip.numbers[shown]}",
            heat_caption(trace),
            notes[i],
        ]
        ax.set_title(
            plain("\n".join(filter(None, caption))),
            fontsize=7.0,
            color=INK,
            linespacing=1.4,
            pad=4,
        )
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
