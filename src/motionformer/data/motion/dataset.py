"""The motion benchmark as a data set: clips whose class is only in the motion, made on the fly from a seed."""

from typing import Literal, NamedTuple

import numpy as np
import torch
from jaxtyping import Float32, UInt8
from torch import Tensor
from torch.utils.data import Dataset

from motionformer.data.motion.level import Level, find_level
from motionformer.data.motion.render import disc_path, render
from motionformer.data.motion.scene import CLASSES, Scene, draw_scene

Split = Literal["train", "val", "test"]
SPLITS: tuple[Split, ...] = ("train", "val", "test")
MIN_SIZE = 16


class MotionClip(NamedTuple):
    """What a decoded video gives, and what only a made one knows: where the object was."""

    frames: UInt8[Tensor, "t H W 3"]
    label: int
    path: Float32[Tensor, "t 2"]
    """The centre of the disc, (x, y) in pixels from the upper left corner; it wraps around with the disc."""


class MotionBenchmark(Dataset[MotionClip]):
    """A disc that moves in one of eight directions: `benchmark[i]` is a `MotionClip`.

    Item i depends on seed, split and i only (and on the level, frames, stride and size it is drawn for): not on order,
    process or the number of clips. Classes take turns, so any eight neighbours hold each once. With a `stride` a clip
    holds every stride-th frame of a longer one, as a model with that stride sees a video.

    >>> MotionBenchmark("easy", "val", num_clips=64)[3].frames.shape
    torch.Size([8, 48, 48, 3])
    """

    classes = CLASSES

    def __init__(
        self,
        level: str | Level = "easy",
        split: Split = "train",
        num_clips: int = 4096,
        *,
        frames: int = 8,
        stride: int = 1,
        size: int = 48,
        seed: int = 0,
    ) -> None:
        if split not in SPLITS:
            raise ValueError(f"split is one of {', '.join(SPLITS)}; not {split!r}.")
        if num_clips < 0 or frames < 1 or stride < 1 or size < MIN_SIZE or seed < 0:
            raise ValueError(
                f"cannot make {num_clips} clips of {frames} frames ({stride} apart) of {size} px from seed {seed}: "
                f"counts and the seed are not negative, a clip has a frame or more, a frame {MIN_SIZE} px or more."
            )
        self.level = find_level(level)
        self.split = split
        self.num_clips = num_clips
        self.frames = frames
        self.stride = stride
        self.size = size
        self.seed = seed

    def __len__(self) -> int:
        return self.num_clips

    def __getitem__(self, index: int) -> MotionClip:
        scene, length = self.scene(index), (self.frames - 1) * self.stride + 1
        frames, path = (torch.from_numpy(of(scene, length, self.size)[:: self.stride]) for of in (render, disc_path))
        return MotionClip(frames, scene.label, path)

    def scene(self, index: int) -> Scene:
        """The numbers that clip `index` is painted from."""
        if not -self.num_clips <= index < self.num_clips:
            raise IndexError(f"clip {index} of {self.num_clips}.")
        index %= self.num_clips
        rng = np.random.default_rng((self.seed, SPLITS.index(self.split), index))
        return draw_scene(self.level, index % len(CLASSES), rng)

    def __repr__(self) -> str:
        return (
            f"MotionBenchmark({self.num_clips} {self.split} clips of {self.frames} frames, {self.stride} apart, of "
            f"{self.size} px, "
            f"seed {self.seed}, {self.level})"
        )
