"""Clips per second from video files, beside other ways to read them: `python -m benchmarks.decoding`.

A clip is 16 frames at stride 4 from a random place in a 340 × 256 H.264 file, brought to short side 256 and normalised
to a float tensor `[3 t H W]`. (The files have that short side already, so no row resizes.) Every row reads the same
clips of the same files, one decoding thread per process, and finishes them with the same code; only the reading
differs. Processor time per clip is taken in this process, clips per second from a loader with 1 and 2 worker processes.
Rows take turns and the best round counts, so that a busy machine hurts none of them in particular.
"""

import argparse
import importlib.util
import json
import os
import platform
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import av
import numpy as np
import torch
import torch.nn.functional as F
from av.video.reformatter import VideoReformatter
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from motionformer.video import open_video
from motionformer.video.sample import ClipPlan, random_start, strided_clip

PLAN = ClipPlan(frames=16, stride=4)
SHORT_SIDE = 256
NUM_FRAMES, FPS, HEIGHT, WIDTH = 300, 30, 256, 340
Read = Callable[[Path, Sequence[int]], Tensor]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clips", type=int, default=40, help="clips per row, worker count and round")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--memory-clips", type=int, default=2000, help="clips to read while watching memory; 0: none")
    parser.add_argument("--output", type=Path, default=Path("build/decoding.json"))
    options = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        files = write_files(Path(folder))
        report = {
            "machine": {"cores": os.cpu_count(), "python": platform.python_version(), "torch": torch.__version__},
            "clip": "16 frames x stride 4, 340x256 H.264, short side 256, normalised",
            "readers": {kind: measure_all(paths, options.clips, options.rounds) for kind, paths in files.items()},
            "memory_mb": measure_memory([p for paths in files.values() for p in paths], options.memory_clips),
        }
    options.output.parent.mkdir(parents=True, exist_ok=True)
    options.output.write_text(json.dumps(report, indent=2) + "\n")
    print(as_markdown(report))


def read_ours(path: Path, indices: Sequence[int]) -> Tensor:
    with open_video(path) as video:
        return video.read(indices)


def read_whole_file(path: Path, indices: Sequence[int]) -> Tensor:
    """Decode everything with PyAV, pick, and convert only what was picked: the least that a whole file can cost."""
    with av.open(str(path)) as container:
        container.streams.video[0].thread_type = "SLICE"
        container.streams.video[0].thread_count = 1
        frames = list(container.decode(video=0))
    reformatter = VideoReformatter()
    rgb = [reformatter.reformat(frames[i], format="rgb24").to_ndarray() for i in indices]
    return torch.from_numpy(np.stack(rgb))


def read_whole_file_as_rgb(path: Path, indices: Sequence[int]) -> Tensor:
    """The usual few lines, as in torchvision's `read_video`: every frame becomes an array, then pick."""
    with av.open(str(path)) as container:
        container.streams.video[0].thread_type = "SLICE"
        container.streams.video[0].thread_count = 1
        frames = [frame.to_ndarray(format="rgb24") for frame in container.decode(video=0)]
    return torch.from_numpy(np.stack([frames[i] for i in indices]))


def read_opencv(path: Path, indices: Sequence[int]) -> Tensor:
    """Seek to the first frame, then step, converting only the frames wanted."""
    import cv2

    cv2.setNumThreads(1)
    video = cv2.VideoCapture(str(path), cv2.CAP_FFMPEG, [cv2.CAP_PROP_N_THREADS, 1])
    video.set(cv2.CAP_PROP_POS_FRAMES, indices[0])
    wanted, frames = set(indices), {}
    for i in range(indices[0], indices[-1] + 1):
        assert video.grab(), f"OpenCV cannot read frame {i}"
        if i in wanted:
            frames[i] = cv2.cvtColor(video.retrieve()[1], cv2.COLOR_BGR2RGB)
    video.release()
    return torch.from_numpy(np.stack([frames[i] for i in indices]))


def read_torchcodec(path: Path, indices: Sequence[int]) -> Tensor:
    from torchcodec.decoders import VideoDecoder

    return VideoDecoder(path, dimension_order="NHWC").get_frames_at(list(indices)).data


def read_torchcodec_unscanned(path: Path, indices: Sequence[int]) -> Tensor:
    """Without its scan of the file: frames are where a constant rate would put them."""
    from torchcodec.decoders import VideoDecoder

    return VideoDecoder(path, dimension_order="NHWC", seek_mode="approximate").get_frames_at(list(indices)).data


ROWS: dict[str, tuple[Read, str]] = {
    "ours": (read_ours, "av"),
    "whole file with PyAV, every frame to RGB, then pick": (read_whole_file_as_rgb, "av"),
    "whole file with PyAV, pick, then to RGB": (read_whole_file, "av"),
    "OpenCV": (read_opencv, "cv2"),
    "torchcodec": (read_torchcodec, "torchcodec"),
    "torchcodec, approximate seeking": (read_torchcodec_unscanned, "torchcodec"),
}
"""Ways to read a clip, each with the module it needs."""


class Clips(Dataset[Tensor]):
    """The same clips for every reader."""

    def __init__(self, read: Read, paths: Sequence[Path], num_clips: int) -> None:
        generator = torch.Generator().manual_seed(0)
        self.read = read
        self.clips = [
            (paths[k % len(paths)], strided_clip(PLAN, NUM_FRAMES, FPS, random_start(PLAN, NUM_FRAMES, FPS, generator)))
            for k in range(num_clips)
        ]

    def __len__(self) -> int:
        return len(self.clips)

    def __getitem__(self, k: int) -> Tensor:
        return finish(self.read(*self.clips[k]))


def finish(frames: Tensor) -> Tensor:
    """`[t H W 3]` bytes → `[3 t H W]` floats of mean and deviation 0.5, the short side 256."""
    pixels = frames.permute(3, 0, 1, 2).float().mul_(2 / 255).sub_(1)
    height, width = pixels.shape[2:]
    short = min(height, width)
    if short == SHORT_SIDE:
        return pixels
    size = (height * SHORT_SIDE // short, width * SHORT_SIDE // short)
    return F.interpolate(pixels, size=size, mode="bilinear", antialias=True)


def measure_all(paths: Sequence[Path], num_clips: int, rounds: int) -> dict[str, dict[str, float] | str]:
    """Processor time and clips per second by row, or why a row is missing."""
    results: dict[str, dict[str, float] | str] = {}
    rows = {name: read for name, (read, module) in ROWS.items() if importlib.util.find_spec(module)}
    clips = {name: Clips(read, paths, num_clips) for name, read in rows.items()}
    for name, cpu_ms in processor_ms(clips, rounds).items():
        results[name] = {"cpu_ms": cpu_ms, "1_worker": 0.0, "2_workers": 0.0}
    for _ in range(rounds):
        for workers, key in ((1, "1_worker"), (2, "2_workers")):
            for name in rows:
                best = results[name]
                assert isinstance(best, dict)
                best[key] = max(best[key], clips_per_second(clips[name], workers))
    missing = {name: f"skipped: {module} is not installed" for name, (_, module) in ROWS.items() if name not in rows}
    return {**results, **missing}


def processor_ms(readers: dict[str, Clips], rounds: int) -> dict[str, float]:
    """Milliseconds of processor time per clip in this process.

    Readers take turns at every clip, and each clip counts with its best round: what else the machine does then hits
    all of them alike.
    """
    for clips in readers.values():
        clips[0]  # imports
    best: dict[str, dict[int, float]] = {name: {} for name in readers}
    for _ in range(rounds):
        for k in range(len(next(iter(readers.values())))):
            for name, clips in readers.items():
                start = time.process_time()
                clips[k]
                best[name][k] = min(time.process_time() - start, best[name].get(k, float("inf")))
    return {name: 1000 * sum(times.values()) / len(times) for name, times in best.items()}


def clips_per_second(clips: Clips, workers: int) -> float:
    """Clips per second, from the first clip's arrival, so that starting the workers does not count."""
    loader = DataLoader(clips, batch_size=None, num_workers=workers, multiprocessing_context="fork")
    arrivals = [time.perf_counter() for _ in loader]
    return (len(arrivals) - 1) / (arrivals[-1] - arrivals[0])


def measure_memory(paths: Sequence[Path], num_clips: int) -> dict[str, float]:
    """Resident memory of this process after a tenth of the clips, and after all."""
    clips = Clips(read_ours, paths, num_clips)
    seen = {}
    for k in range(num_clips):
        clips[k]
        if k + 1 in (num_clips // 10, num_clips // 2, num_clips):
            seen[f"after {k + 1} clips"] = resident_mb()
    return seen


def resident_mb() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return round(pages * os.sysconf("SC_PAGE_SIZE") / 2**20, 1)


def write_files(folder: Path) -> dict[str, list[Path]]:
    """Ten-second files of things that move over a moving background, with key frames far apart and near."""
    groups = {"key frame every 250 frames": 250, "key frame every 32 frames": 32}
    return {
        kind: [write_file(folder / f"{group}_{seed}.mp4", group, seed) for seed in range(4)]
        for kind, group in groups.items()
    }


def write_file(path: Path, group: int, seed: int) -> Path:
    random = np.random.default_rng(seed)
    noise = torch.from_numpy(random.random((1, 3, 48, 60), dtype=np.float32) * 255)
    scene = F.interpolate(noise, size=(2 * HEIGHT, 2 * WIDTH), mode="bicubic").clamp(0, 255)[0]
    scene = (scene.permute(1, 2, 0).numpy() + random.normal(0, 6, (2 * HEIGHT, 2 * WIDTH, 3))).clip(0, 255)
    with av.open(str(path), "w") as container:
        stream = container.add_stream("libx264", rate=FPS, options={"crf": "23", "preset": "medium"})
        stream.height, stream.width, stream.pix_fmt = HEIGHT, WIDTH, "yuv420p"
        stream.codec_context.gop_size = group
        for number in range(NUM_FRAMES):
            y, x = (int(60 + 50 * f(number / 40 + seed)) for f in (np.sin, np.cos))
            frame = scene[y : y + HEIGHT, x : x + WIDTH].copy()
            y, x = (int(90 + 80 * f(number / 17 + seed)) for f in (np.cos, np.sin))
            frame[y : y + 64, x : x + 64] = scene[-64:, -64:]
            frame += random.normal(0, 3, (HEIGHT, WIDTH, 1))  # a camera's noise
            picture = av.VideoFrame.from_ndarray(frame.clip(0, 255).astype(np.uint8), format="rgb24")
            container.mux(stream.encode(picture))
        container.mux(stream.encode())
    return path


def as_markdown(report: dict) -> str:
    lines = []
    for kind, results in report["readers"].items():
        lines += ["", f"One {kind}:", "", "| reader | CPU ms per clip | clips/s, 1 worker | 2 workers |"]
        lines += ["|---|---|---|---|"]
        for name, rates in results.items():
            cells = [rates, "", ""] if isinstance(rates, str) else [f"{rate:.1f}" for rate in rates.values()]
            lines.append(f"| {name} | {' | '.join(cells)} |")
    memory = ", ".join(f"{megabytes} MB {moment}" for moment, megabytes in report["memory_mb"].items())
    return "\n".join([*lines, "", f"Resident memory: {memory or 'not measured'}"]).strip()


if __name__ == "__main__":
    main()
