"""Reads damaged copies of a video and judges the outcome: `python fuzz_cases.py FIRST COUNT FILE…`.

A program of its own, because what it looks for (a crash, a hang) would take the tests down with it. It prints each seed
before it tries it, so that the last line names the one that killed it.
"""

import json
import sys
import tempfile
from pathlib import Path

import numpy as np

from motionformer.errors import VideoError
from motionformer.video import open_video

TIME_LIMIT = 20.0


def main() -> None:
    first, count = int(sys.argv[1]), int(sys.argv[2])
    sources = [Path(name) for name in sys.argv[3:]]
    outcomes = {"read": 0, "refused": 0}
    with tempfile.TemporaryDirectory() as folder:
        for seed in range(first, first + count):
            source = sources[seed % len(sources)]
            print(f"seed {seed} of {source.name}", flush=True)
            outcomes[try_one(seed, source, Path(folder))] += 1
    print(json.dumps(outcomes))


def try_one(seed: int, source: Path, folder: Path) -> str:
    """`read` or `refused`; anything else is an exception that ends the program."""
    random = np.random.default_rng(seed)
    data = damage(bytearray(source.read_bytes()), random)
    path = folder / source.name
    if source.suffix in {".jpg", ".png"}:
        path = folder / "frames"
        path.mkdir(exist_ok=True)
        for file in path.iterdir():
            file.unlink()
        (path / f"1{source.suffix}").write_bytes(data)
    else:
        path.write_bytes(data)
    try:
        with open_video(path, time_limit=TIME_LIMIT) as video:
            count = video.metadata.num_frames
            indices = [count - 1, 0, *random.integers(count, size=4).tolist()]
            frames = video.read(indices)
            assert frames.shape == (6, video.metadata.height, video.metadata.width, 3)
            if seed % 4 == 0:
                video.check()
    except VideoError as error:
        if error.path is None or not error.reason:
            raise
        return "refused"
    return "read"


def damage(data: bytearray, random: np.random.Generator) -> bytearray:
    """Flip single bits, overwrite a stretch, drop a stretch, cut the end, or flip and cut."""
    kind = int(random.integers(5))
    if kind in (0, 4):
        for _ in range(int(random.integers(1, 30))):
            data[place(data, random)] ^= 1 << int(random.integers(8))
    if kind == 1:
        start, length = place(data, random), int(random.integers(1, 200))
        data[start : start + length] = random.bytes(len(data[start : start + length]))
    if kind == 2:
        start = place(data, random)
        del data[start : start + int(random.integers(1, 200))]
    if kind in (3, 4):
        del data[place(data, random) :]
    return data


def place(data: bytearray, random: np.random.Generator) -> int:
    """Half of the blows fall anywhere, half near the ends, where containers keep their tables."""
    near = int(random.integers(min(len(data), 2000)))
    return [int(random.integers(len(data))), int(random.integers(len(data))), near, len(data) - 1 - near][
        int(random.integers(4))
    ]


if __name__ == "__main__":
    main()
