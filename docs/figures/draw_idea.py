"""The idea in one picture: where one query looks under joint, divided and trajectory attention (idea.png)."""

from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.patches import Circle, FancyArrowPatch, Rectangle

FRAMES, SIDE, OWN = 5, 7, 2
INK, QUERY, PATH = "#1f2430", "#d1495b", "#2e6f95"


def ball(frame: float) -> tuple[float, float]:
    """Column and row of the ball's centre, in patches."""
    return 1.2 + 1.15 * frame, 5.4 - 1.75 * frame + 0.36 * frame**2


def near(centre: tuple[float, float], width: float) -> np.ndarray:
    y, x = np.mgrid[:SIDE, :SIDE] + 0.5
    return np.exp(-((x - centre[0]) ** 2 + (y - centre[1]) ** 2) / (2 * width**2))


def weights(scheme: str, frame: int) -> np.ndarray:
    """A sketch, not a measurement: which patches of a frame the query may weigh, and how strongly."""
    if scheme == "joint":
        return 0.55 * near(ball(frame), 1.7) + 0.08
    column, row = (int(c) for c in ball(OWN))
    same_patch = np.zeros((SIDE, SIDE))
    same_patch[row, column] = 0.9
    if scheme == "divided":
        return near(ball(frame), 1.0) if frame == OWN else same_patch
    return near(ball(frame), 0.85)


def draw_frame(ax: plt.Axes, scheme: str, frame: int) -> None:
    ax.imshow(weights(scheme, frame), cmap="Blues", vmin=0, vmax=1.5, extent=(0, SIDE, SIDE, 0))
    for line in range(SIDE + 1):
        ax.axhline(line, color="white", lw=0.8)
        ax.axvline(line, color="white", lw=0.8)
    ax.add_patch(Circle(ball(frame), 0.8, facecolor="none", edgecolor=INK, lw=1.6, zorder=3))
    if frame == OWN:
        column, row = (int(c) for c in ball(OWN))
        ax.add_patch(Rectangle((column, row), 1, 1, facecolor="none", edgecolor=QUERY, lw=2.4, zorder=4))
        if scheme == "joint":
            ax.annotate(
                "query",
                (column + 0.5, row + 1.1),
                (column + 0.5, 6.1),
                color=QUERY,
                fontsize=9,
                ha="center",
                arrowprops={"arrowstyle": "-", "color": QUERY, "lw": 1.0},
            )
    ax.set_xlim(0, SIDE)
    ax.set_ylim(SIDE, 0)
    ax.set_xticks([])
    ax.set_yticks([])
    for spine in ax.spines.values():
        spine.set_color("#9aa3b2")


def main() -> None:
    rows = {
        "joint": "Joint\none softmax over every patch\nof every frame",
        "divided": "Divided\nthe same patch in all frames,\nthen the query's own frame",
        "trajectory": "Trajectory\none softmax in each frame,\nthen attention along the path",
    }
    figure, axes = plt.subplots(3, FRAMES, figsize=(10.6, 5.6), gridspec_kw={"wspace": 0.06, "hspace": 0.12})
    figure.subplots_adjust(left=0.235, right=0.99, top=0.94, bottom=0.02)
    for row, (scheme, title) in enumerate(rows.items()):
        for frame in range(FRAMES):
            draw_frame(axes[row, frame], scheme, frame)
            if row == 0:
                axes[row, frame].set_title(f"frame {frame + 1}", fontsize=10, color=INK)
        name, *rest = title.split("\n")
        box = axes[row, 0].get_position()
        middle = (box.y0 + box.y1) / 2
        figure.text(0.01, middle + 0.045, name, fontsize=13, weight="bold", color=INK)
        figure.text(0.01, middle - 0.055, "\n".join(rest), fontsize=9.5, color=INK, linespacing=1.4)
    for frame in range(FRAMES - 1):
        start = figure.transFigure.inverted().transform(axes[2, frame].transData.transform(ball(frame)))
        end = figure.transFigure.inverted().transform(axes[2, frame + 1].transData.transform(ball(frame + 1)))
        figure.add_artist(
            FancyArrowPatch(
                start,
                end,
                transform=figure.transFigure,
                arrowstyle="-|>",
                mutation_scale=13,
                color=PATH,
                lw=1.8,
                shrinkA=7,
                shrinkB=7,
            )
        )
    figure.savefig(Path(__file__).with_name("idea.png"), dpi=130)


if __name__ == "__main__":
    main()
