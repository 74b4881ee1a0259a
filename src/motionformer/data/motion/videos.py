"""The motion benchmark as real files: a folder of class folders of mp4, and the true paths beside them."""

import json
from pathlib import Path

import av
import numpy as np
from jaxtyping import UInt8

from motionformer.data.motion.dataset import MotionBenchmark, Split
from motionformer.data.motion.level import Level

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
