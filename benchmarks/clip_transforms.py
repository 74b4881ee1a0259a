"""Milliseconds of CPU time per clip of the train and evaluation pipelines, on one thread.

python -m benchmarks.clip_transforms
"""

import statistics
import time
from collections.abc import Callable

import kornia
import torch

from motionformer.models import InputSpec
from motionformer.video.transforms import ColourJitter, RandAugment, eval_transform, train_transform

REPEATS = 41


def main() -> None:
    torch.set_num_threads(1)
    generator = torch.Generator().manual_seed(0)
    frames = torch.randint(0, 256, (16, 256, 340, 3), dtype=torch.uint8, generator=generator)
    spec = InputSpec()
    pipelines = {
        "evaluation, centre crop": eval_transform(spec),
        "training, jitter + crop + flip": train_transform(spec),
        "training, colour jitter (Kinetics)": train_transform(spec, colour=ColourJitter()),
        "training, RandAugment (SSv2, EPIC)": train_transform(spec, flip=0.0, rand_augment=RandAugment()),
    }
    print("16 frames of 340 × 256 bytes → 224 × 224 floats, median, ms of CPU time per clip")
    for name, pipeline in pipelines.items():
        print(f"{median_ms(lambda step=pipeline: step(frames, generator)):8.1f}  {name}")
    print("one step alone, on 16 frames of 224 × 224; kornia's beside ours")
    clip = torch.rand(3, 16, 224, 224, generator=generator)
    pictures = clip.transpose(0, 1).contiguous()
    as_bytes = (clip * 255).to(torch.uint8)
    their_jitter = kornia.augmentation.ColorJitter(0.4, 0.4, 0.4, 0.1, p=1.0, same_on_batch=True)
    their_randaugment = kornia.augmentation.auto.RandAugment(n=2, m=20)
    print(f"{median_ms(lambda: ColourJitter()(as_bytes, generator)):8.1f}  colour jitter")
    print(f"{median_ms(lambda: their_jitter(pictures)):8.1f}  kornia.ColorJitter")
    print(f"{median_ms(lambda: RandAugment()(as_bytes, generator)):8.1f}  RandAugment")
    print(f"{median_ms(lambda: their_randaugment(pictures)):8.1f}  kornia.RandAugment (a draw per frame)")


def median_ms(work: Callable[[], object]) -> float:
    """CPU time: other processes on the machine do not count."""
    work()
    times = []
    for _ in range(REPEATS):
        started = time.process_time()
        work()
        times.append(time.process_time() - started)
    return statistics.median(times) * 1e3


if __name__ == "__main__":
    main()
