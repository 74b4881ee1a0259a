"""Clips whose masks are known: discs of the motion benchmark, and a DAVIS folder made of them."""

from pathlib import Path

import torch
from av import VideoFrame
from torch import Tensor

from motionformer.data.motion import MotionBenchmark
from motionformer.tracking.masks import write_mask, write_png


def disc_clip(index: int = 0, *, frames: int = 8, size: int = 96) -> tuple[Tensor, Tensor]:
    """Frames `[t H W 3]`, and masks `[t H W]` that are 1 on the disc; it wraps around the sides as the disc does."""
    clips = MotionBenchmark("easy", "val", 64, frames=frames, size=size)
    clip = clips[index]
    radius = clips.scene(index).disc.radius * size
    place = torch.arange(size) + 0.5
    x, y = ((place - clip.path[:, axis, None] + size / 2) % size - size / 2 for axis in (0, 1))
    masks = (x[:, None, :] ** 2 + y[:, :, None] ** 2 <= radius**2).to(torch.uint8)
    return clip.frames, masks


def write_davis(root: Path, names: dict[str, int], **options: int) -> Path:
    """Sequences in the layout of DAVIS: each name shows the clip of its number."""
    for name, index in names.items():
        frames, masks = disc_clip(index, **options)
        images, annotations = root / "JPEGImages" / "480p" / name, root / "Annotations" / "480p" / name
        images.mkdir(parents=True)
        annotations.mkdir(parents=True)
        for i, (frame, mask) in enumerate(zip(frames, masks, strict=True)):
            write_png(images / f"{i:05d}.png", VideoFrame.from_ndarray(frame.numpy(), format="rgb24"))
            write_mask(annotations / f"{i:05d}.png", mask)
    return root
