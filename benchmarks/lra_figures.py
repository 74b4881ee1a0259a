"""Draws docs/figures/lra-*.png from what the other lra benchmarks wrote.

python -m benchmarks.lra_figures --results build
"""

import argparse
import json
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt

from motionformer.experiments.lra.pathfinder import Pathfinder

FIGURES = Path(__file__).parents[1] / "docs/figures"
COLOURS = {
    "mean of all values": "#777777",
    "exact": "#333333",
    "performer": "#d1495b",
    "performer, 4 r features": "#e79aa4",
    "nystrom": "#edae49",
    "orthoformer": "#00798c",
    "orthoformer-improved": "#30b56b",
    "orthoformer-random": "#7a9fb5",
    "orthoformer-segments": "#8d6fb0",
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", type=Path, default=Path("build"))
    folder = parser.parse_args().results
    plt.rcParams.update({"font.size": 8, "axes.spines.top": False, "axes.spines.right": False})
    draw_approximation(_load(folder / "lra-approximation.json"))
    draw_scaling(_load(folder / "lra-scaling.json"))
    draw_look_up(_load(folder / "lra-lookup.json"))
    draw_pathfinder()


def draw_approximation(errors: dict[str, Any]) -> None:
    figure, axes = plt.subplots(2, 3, figsize=(8.8, 5.2), sharex=True)
    for axis, (family, methods) in zip(axes.flat, errors.items(), strict=True):
        for method, row in methods.items():
            name = method.replace("-4#", ", 4 r features").replace("-#", "")
            style = ":" if name == "mean of all values" else "o-"
            axis.plot([int(r) for r in row], list(row.values()), style, ms=3, color=COLOURS[name], label=name)
        axis.set(title=family.replace("_", " "), xscale="log", yscale="log")
        axis.set_xticks([16, 32, 64, 128], labels=["16", "32", "64", "128"])
        lowest, highest = axis.get_ylim()
        ticks = [y for y in (0.01, 0.03, 0.1, 0.3, 0.5, 0.7, 1, 1.1, 1.5, 2, 3) if lowest <= y <= highest]
        ticks = [y for y in ticks if y not in (0.5, 0.7, 1.1, 1.5) or highest / lowest < 8]
        axis.set_yticks(ticks, labels=[f"{y:g}" for y in ticks])
        axis.minorticks_off()
    for axis in axes[1]:
        axis.set_xlabel("r")
    for axis in axes[:, 0]:
        axis.set_ylabel("error, relative to exact")
    handles, labels = axes[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="lower center", ncols=4, frameon=False)
    figure.tight_layout(rect=(0, 0.09, 1, 1))
    _save(figure, "lra-approximation")


def draw_scaling(report: dict[str, Any]) -> None:
    figure, (left, right) = plt.subplots(1, 2, figsize=(8.8, 3.4))
    for name, row in report.items():
        colour = COLOURS.get(_family(name), "#999999")
        style = "--" if name.startswith("selection") else "-"
        left.plot(row["lengths"], row["seconds"], style, marker="o", ms=3, color=colour, label=name)
        per_token = [s / n for s, n in zip(row["seconds"], row["lengths"], strict=True)]
        ratio = [value / per_token[1] for value in per_token[1:]]
        right.plot(row["lengths"][1:], ratio, style, marker="o", ms=3, color=colour)
    left.set(xscale="log", yscale="log", xlabel="tokens", ylabel="CPU seconds, one thread, two heads of 32")
    right.set(xscale="log", yscale="log", xlabel="tokens", ylabel="seconds a token, relative to n = 2,048")
    right.axhline(1.0, color="#bbbbbb", lw=0.8, ls=":")
    right.set_yticks([0.5, 1, 2, 4, 8], labels=["½", "1", "2", "4", "8"])
    right.text(9500, 1.06, "level is linear", color="#777777", fontsize=7)
    for axis, lengths in ((left, [1024, 4096, 16384]), (right, [2048, 4096, 8192, 16384])):
        axis.set_xticks(lengths, labels=[f"{n:,}" for n in lengths])
        axis.minorticks_off()
    left.legend(frameon=False, fontsize=7)
    figure.tight_layout()
    _save(figure, "lra-scaling")


def draw_look_up(report: dict[str, Any]) -> None:
    rows = {name: row["accuracy"] for name, row in report.items() if name != "options"}
    figure, axis = plt.subplots(figsize=(6.4, 2.6))
    for place, (name, found) in enumerate(rows.items()):
        axis.barh(place, sum(found) / len(found), color=COLOURS[_family(name)], height=0.65)
        axis.plot(found, [place] * len(found), "o", ms=4, color="white", mec="#333333", mew=0.8)
    axis.axvline(1 / 8, color="#777777", lw=0.8, ls=":")
    axis.text(1 / 8 + 0.008, -0.55, "guessing", color="#777777", fontsize=7)
    axis.set_yticks(range(len(rows)), labels=list(rows))
    axis.set(
        xlim=(0, 1.02), ylim=(len(rows) - 0.4, -0.9), xlabel="share of questions answered rightly; each dot is a seed"
    )
    figure.tight_layout()
    _save(figure, "lra-lookup")


def draw_pathfinder() -> None:
    figure, axes = plt.subplots(2, 6, figsize=(8.8, 3.1))
    for index, axis in enumerate(axes.T.flat):
        picture, label = Pathfinder("val", 12).picture(index)
        axis.imshow(picture, cmap="gray", interpolation="nearest")
        axis.set(xticks=[], yticks=[])
        if index < 2:
            axis.set_ylabel("one contour" if label else "two contours")
    figure.tight_layout(pad=0.4)
    _save(figure, "lra-pathfinder")


def _family(name: str) -> str:
    """`orthoformer-64-improved` → `orthoformer-improved`."""
    return "-".join(word for word in name.split("-") if not word.isdigit())


def _load(file: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return found


def _save(figure: Any, name: str) -> None:
    figure.savefig(FIGURES / f"{name}.png", dpi=110)
    plt.close(figure)


if __name__ == "__main__":
    main()
