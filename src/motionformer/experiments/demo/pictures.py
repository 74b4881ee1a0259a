"""The pictures of the report, as text that goes into the page: SVG for curves, PNG and GIF as data addresses."""

import base64
import csv
import io
from pathlib import Path

import numpy as np
from jaxtyping import UInt8
from matplotlib.figure import Figure
from PIL import Image

INK, BLUE, ORANGE = "#33404d", "#2563a8", "#c2571a"


def draw_curves(metrics: Path) -> str:
    """Loss of every logged step, and accuracy on held-out clips, from a run's `metrics.csv`."""
    with metrics.open(newline="", encoding="utf-8") as stream:
        rows = list(csv.DictReader(stream))
    figure = Figure(figsize=(9.0, 3.0), layout="constrained")
    left, right = figure.subplots(1, 2)
    _curve(left, rows, "train/loss", BLUE, 1.0)
    left.set(xlabel="step", title="loss, training")
    _curve(right, rows, "val/top1", ORANGE, 100.0, marker="o")
    right.set(xlabel="step", title="top-1 on held-out clips, %", ylim=(0, 101))
    return svg(figure)


def _curve(axes: object, rows: list[dict[str, str]], name: str, colour: str, scale: float, marker: str = "") -> None:
    points = [(int(row["step"]), scale * float(row[name])) for row in rows if row.get(name)]
    axes.plot(*zip(*points, strict=True), color=colour, marker=marker)  # type: ignore[attr-defined]
    axes.grid(alpha=0.25)  # type: ignore[attr-defined]
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)  # type: ignore[attr-defined]


def svg(figure: Figure) -> str:
    """The drawing without the XML declaration, which has no place inside a page."""
    out = io.StringIO()
    figure.savefig(out, format="svg", metadata={"Date": None})
    text = out.getvalue()
    return text[text.index("<svg") :]


def gif(frames: UInt8[np.ndarray, "t H W 3"], scale: int = 3, milliseconds: int = 120) -> str:
    """The frames as a looping picture, enlarged without blur, as a data address."""
    out = io.BytesIO()
    first, *others = (Image.fromarray(f.repeat(scale, axis=0).repeat(scale, axis=1)) for f in frames)
    first.save(out, "GIF", save_all=True, append_images=others, duration=milliseconds, loop=0)
    return data_address(out.getvalue(), "image/gif")


def data_address(content: bytes, kind: str) -> str:
    return f"data:{kind};base64,{base64.b64encode(content).decode()}"
