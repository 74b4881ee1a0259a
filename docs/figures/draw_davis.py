"""Draws davis-disc.png: a disc of the motion benchmark, followed from the mask of its first frame.

python docs/figures/draw_davis.py
"""

from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import torch

from motionformer.data.motion import MotionBenchmark
from motionformer.experiments.davis import jaccard
from motionformer.tracking import Affinity, ClipFeatures, CopyFirst, LabelPropagation, TokenReadout, open_backbone
from motionformer.tracking.masks import paint

SIZE, INDEX = 192, 5


def main() -> None:
    clips = MotionBenchmark("medium", "val", 64, size=SIZE)
    clip, radius = clips[INDEX], clips.scene(INDEX).disc.radius * SIZE
    centres = torch.arange(SIZE) + 0.5
    x, y = ((centres - clip.path[:, axis, None] + SIZE / 2) % SIZE - SIZE / 2 for axis in (0, 1))
    truth = (x[:, None, :] ** 2 + y[:, :, None] ** 2 <= radius**2).to(torch.uint8)
    features = ClipFeatures(open_backbone("joint-tiny"), TokenReadout(0), clip=1, height=2 * SIZE)
    rows = {
        "the disc": truth,
        "first mask,\ncopied": CopyFirst().track(clip.frames, truth[0]),
        "first mask,\npropagated": LabelPropagation(features, Affinity()).track(clip.frames, truth[0]),
    }
    figure, axes = plt.subplots(len(rows), len(truth), figsize=(8.8, 3.7))
    for (name, masks), line in zip(rows.items(), axes, strict=True):
        for index, (mask, axis) in enumerate(zip(masks, line, strict=True)):
            axis.imshow(paint(clip.frames[index], mask).numpy(), interpolation="nearest")
            axis.set(xticks=[], yticks=[])
            axis.set_xlabel(f"J {jaccard(mask == 1, truth[index] == 1):.2f}", fontsize=9, labelpad=2)
        line[0].set_ylabel(name, fontsize=10)
    figure.subplots_adjust(left=0.07, right=0.995, bottom=0.05, top=0.995, wspace=0.05, hspace=0.16)
    figure.savefig(Path(__file__).with_name("davis-disc.png"), dpi=130)


if __name__ == "__main__":
    main()
