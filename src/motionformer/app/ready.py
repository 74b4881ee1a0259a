"""Clips that are there when the page opens: the motion benchmark's, made from a seed as real files."""

from dataclasses import replace
from pathlib import Path

import torch

from motionformer.app.video import PageVideo
from motionformer.data.motion import CLASSES, MotionBenchmark, MotionClip, write_video
from motionformer.models import InputSpec
from motionformer.video import open_video

CLIPS = (("easy", (15,)), ("easy", (57,)), ("medium", (17,)), ("hard", (55,)), ("easy", (8, 14, 19)))
"""Level, and the clips of the test split that are shown one after the other. The single ones are those of the first 64
whose centre stays 14 pixels of 96 away from the border: beyond it the disc comes back on the other side."""
FRAMES = 12  # of each: more than a tiny model's clip, so that there is something to slide over
SMALLEST = 96  # pixels: smaller frames look coarse on a screen


def make_ready_clips(folder: Path, spec: InputSpec) -> dict[str, PageVideo]:
    """By identity. They move one step of the level in one step of the model's clip."""
    size = max(SMALLEST, min(spec.height, spec.width) // 2 * 2)
    fps = max(1, round((spec.fps or 30.0) / spec.stride)) if spec.sampling == "stride" else 8
    made = {}
    for place, (level, numbers) in enumerate(CLIPS):
        benchmark = MotionBenchmark(level, "test", max(numbers) + 1, frames=FRAMES, size=size)
        parts = [benchmark[number] for number in numbers]
        path = folder / f"ready-{place}.mp4"
        write_video(path, torch.cat([part.frames for part in parts]).numpy(), fps)
        with open_video(path) as video:
            opened = PageVideo(_name(level, parts), path, video.metadata)
        made[f"ready-{place}"] = replace(opened, truth=torch.cat([part.path for part in parts]))
    return made


def _name(level: str, parts: list[MotionClip]) -> str:
    return f"{level}: {', '.join(CLASSES[part.label] for part in parts)}"
