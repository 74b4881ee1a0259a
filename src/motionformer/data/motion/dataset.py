"""The motion benchmark as a data set made on the fly from a seed, or as real files with the true paths beside them."""

import json
from pathlib import Path
from typing import Literal, NamedTuple

import av
import numpy as np
import torch
from jaxtyping import Float32, UInt8
from torch import Tensor
from torch.utils.data import Dataset

from motionformer.data.motion.render import disc_path, render
from motionformer.data.motion.scene import CLASSES, Level, Scene, draw_scene, find_level

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


PATHS_FILE = "paths.json"
ENCODING = {"crf": "6", "preset": "fast", "threads": "1", "mbtree": "0"}


def write_videos(
    folder: str | Path,
    level: str | Level = "easy",
    num_clips: int = 64,
    *,
    split: Split = "train",
    frames: int = 8,
    size: int = 48,
    seed: int = 0,
    fps: int = 30,
) -> Path:
    """Write `<folder>/<class>/00000.mp4` … and `<folder>/paths.json`; return the path of the latter.

    That file holds, for every video by its path inside the folder, its class and the centre of the disc in every
    frame, (x, y) in pixels. `fps` is the rate at which models count their stride, so that a model which was trained
    on the benchmark sees every frame once. The folder must be new or empty: old clips would be taken for part of it.
    """
    if size % 2:
        raise ValueError(f"video frames have even sides; not {size}.")
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    if any(folder.iterdir()):
        raise FileExistsError(f"{folder} is not empty: write the videos into a new folder, or empty this one first.")
    benchmark = MotionBenchmark(level, split, num_clips, frames=frames, size=size, seed=seed)
    videos = {}
    for index in range(num_clips):
        clip = benchmark[index]
        name = benchmark.classes[clip.label]
        file = folder / name / f"{index:05d}.mp4"
        file.parent.mkdir(exist_ok=True)
        write_video(file, clip.frames.numpy(), fps)
        videos[file.relative_to(folder).as_posix()] = {"class": name, "path": clip.path.tolist()}
    paths = folder / PATHS_FILE
    paths.write_text(json.dumps({"size": size, "fps": fps, "videos": videos}, indent=1))
    return paths


def write_video(file: Path, frames: UInt8[np.ndarray, "t H W 3"], fps: int) -> None:
    """H.264 that every player shows (4:2:0), at a quality where only fine colour is lost.

    The same bytes every time: by one thread, and without the encoder's macroblock tree, which gave other bytes from
    process to process.
    """
    with av.open(str(file), "w") as container:
        stream = container.add_stream("libx264", rate=fps, options=ENCODING)
        stream.height, stream.width = frames.shape[1:3]
        stream.pix_fmt = "yuv420p"
        for frame in frames:
            container.mux(stream.encode(av.VideoFrame.from_ndarray(frame, format="rgb24")))
        container.mux(stream.encode())
