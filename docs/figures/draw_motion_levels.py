"""Draws motion-levels.png: some clips of every level of the motion benchmark, frame by frame.

python docs/figures/draw_motion_levels.py
"""

from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt

from motionformer.data.motion import CLASSES, LEVELS, MotionBenchmark

CLIPS = (3, 6)


def main() -> None:
    rows = [(level, index) for level in LEVELS for index in CLIPS]
    figure, axes = plt.subplots(len(rows), 8, figsize=(8.8, 7.0))
    for (level, index), line in zip(rows, axes, strict=True):
        clip = MotionBenchmark(level, "val", 64, size=96)[index]
        for frame, centre, axis in zip(clip.frames, clip.path, line, strict=True):
            axis.imshow(frame.numpy(), extent=(0, 96, 96, 0), interpolation="nearest")
            for colour, width in (("black", 2.6), ("#ffd400", 1.2)):  # an edge, so that it shows on any ground
                axis.plot(*centre.tolist(), "+", color=colour, markersize=7, markeredgewidth=width)
            axis.set(xticks=[], yticks=[], xlim=(0, 96), ylim=(96, 0))
        line[0].set_ylabel(f"{level}\n{CLASSES[clip.label]}", fontsize=10)
    figure.subplots_adjust(left=0.07, right=0.995, bottom=0.005, top=0.995, wspace=0.04, hspace=0.06)
    figure.savefig(Path(__file__).with_name("motion-levels.png"), dpi=130)


if __name__ == "__main__":
    main()
