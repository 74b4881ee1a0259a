"""What predicting a clip costs beside the forward passes it needs: seconds, processor seconds, memory.

    python -m benchmarks.prediction --views 3 --crops 1

Ten seconds of video are made, then two kinds of processes take turns: one that only runs the model on as many random
clips as there are views, one that predicts the file, from opening it to the names of the classes. The best of each
counts. Processor seconds are the figure to trust where other work runs on the machine.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import av
import numpy as np

CODE = """
import json, sys, time
import torch
from motionformer import Predictor, create_model
what, name, file, views, crops, batch, threads = sys.argv[1:4] + [int(word) for word in sys.argv[4:]]
torch.set_num_threads(threads)
torch.manual_seed(0)
predictor = Predictor(create_model(name), views=views, crops=crops, batch_size=batch)
spec = predictor.spec
def bare():
    with torch.inference_mode():
        for first in range(0, views * crops, batch):
            size = min(batch, views * crops - first)
            predictor.model(torch.randn(size, 3, spec.frames, spec.height, spec.width))
def status(key):
    return 1024 * int(next(line for line in open("/proc/self/status") if line.startswith(key)).split()[1])
with torch.inference_mode():
    predictor.model(torch.randn(1, 3, spec.frames, spec.height, spec.width))  # warm
wall, processor = time.perf_counter(), time.process_time()
bare() if what == "bare" else predictor(file)
print(json.dumps({
    "seconds": time.perf_counter() - wall,
    "processor": time.process_time() - processor,
    "peak_bytes": status("VmHWM:"),
}))
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="motionformer-base")
    parser.add_argument("--views", type=int, default=3)
    parser.add_argument("--crops", type=int, default=1)
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--out", type=Path, default=Path("build"))
    words = parser.parse_args()
    best: dict[str, dict[str, float]] = {}
    with tempfile.TemporaryDirectory() as folder:
        file = write_clip(Path(folder) / "clip.mp4")
        for _ in range(words.rounds):
            for what in ("bare", "predict"):
                measured = measure(what, words.model, file, words.views, words.crops, words.batch, words.threads)
                kept = best.setdefault(what, measured)
                best[what] = {key: min(kept[key], measured[key]) for key in kept}
                print(what, measured, flush=True)
    ratios = {key: best["predict"][key] / best["bare"][key] for key in best["bare"]}
    report = {**vars(words), "out": str(words.out), **best, "ratio": ratios}
    words.out.mkdir(parents=True, exist_ok=True)
    (words.out / "prediction.json").write_text(json.dumps(report, indent=2), encoding="utf-8")
    print("| | wall | processor | peak memory |\n|---|---|---|---|")
    for what, found in best.items():
        memory = f"{found['peak_bytes'] / 1e6:,.0f} MB"
        print(f"| {what} | {found['seconds']:.2f} s | {found['processor']:.2f} s | {memory} |")
    print(f"| ratio | {ratios['seconds']:.3f} | {ratios['processor']:.3f} | {ratios['peak_bytes']:.3f} |")


def measure(what: str, model: str, file: Path, views: int, crops: int, batch: int, threads: int) -> dict[str, float]:
    numbers = [str(number) for number in (views, crops, batch, threads)]
    done = subprocess.run(
        [sys.executable, "-c", CODE, what, model, str(file), *numbers],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        env={**os.environ, "OMP_NUM_THREADS": str(threads)},
    )
    found: dict[str, float] = json.loads(done.stdout)
    return found


def write_clip(file: Path, seconds: int = 10, fps: int = 30, height: int = 256, width: int = 340) -> Path:
    """H.264 at the size that data sets are stored in; a moving pattern with noise, as heavy as a real one."""
    noise = np.random.default_rng(0).integers(0, 40, (height, width, 3))
    rows, columns = np.mgrid[:height, :width]
    with av.open(str(file), "w") as container:
        stream = container.add_stream("libx264", rate=fps)
        stream.height, stream.width, stream.pix_fmt = height, width, "yuv420p"
        for number in range(seconds * fps):
            wave = (rows * 2 + columns + 5 * number) % 200
            picture = (wave[..., None] + np.roll(noise, number, axis=1)).astype(np.uint8)
            container.mux(stream.encode(av.VideoFrame.from_ndarray(picture, format="rgb24")))
        container.mux(stream.encode())
    return file


if __name__ == "__main__":
    main()
