"""The released reading of a video in loops nobody can misread: decode all, cut by time stamps, resize, crop."""

import math
from pathlib import Path

import av
import torch
import torch.nn.functional as F
from torch import Tensor


def read_view(path: Path, frames: int, stride: int, size: int, view: int, num_views: int, crop: int) -> Tensor:
    """One view in one crop, `[3 t size size]`, RGB from −1 to 1."""
    with av.open(str(path)) as container:
        stream = container.streams.video[0]
        fps, announced, duration = float(stream.average_rate), stream.frames, stream.duration
        decoded = {frame.pts: frame.to_ndarray(format="rgb24") for frame in container.decode(stream)}
    length = stride * frames / 30 * fps
    begin = max(announced - length, 0) * view / num_views
    first, last = int(begin * duration / announced), int((begin + length - 1) * duration / announced)
    kept = []
    for pts in sorted(decoded):
        if pts < first:
            continue
        kept.append(decoded[pts])
        if pts > last:
            break
    clip = []
    for k in range(frames):
        position = torch.linspace(0, length - 1, frames)[k]
        clip.append(kept[int(min(max(position, 0), len(kept) - 1))])
    pixels = (torch.stack([torch.from_numpy(frame) for frame in clip]).float() / 255 - 0.5) / 0.5
    pixels = pixels.permute(0, 3, 1, 2)
    height, width = pixels.shape[2:]
    if width < height and width != size:
        pixels = F.interpolate(pixels, (math.floor(height / width * size), size), mode="bilinear")
    elif height <= width and height != size:
        pixels = F.interpolate(pixels, (size, math.floor(width / height * size)), mode="bilinear")
    down, across = pixels.shape[2] - size, pixels.shape[3] - size
    top, left = math.ceil(down / 2), math.ceil(across / 2)
    if down > across:
        top = (0, top, down)[crop]
    else:
        left = (0, left, across)[crop]
    return pixels[:, :, top : top + size, left : left + size].permute(1, 0, 2, 3)
