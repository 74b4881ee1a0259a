"""How fast a model learns the motion benchmark: a plain AdamW loop, then accuracy on held-out clips.

python -m benchmarks.motion_learning --level easy --model motionformer-tiny --steps 150 --seed 0
"""

import argparse
import time
from dataclasses import replace

import torch
import torch.nn.functional as F
from jaxtyping import Float, UInt8
from torch import Tensor, nn
from torch.utils.data import DataLoader

from motionformer.data.motion import LEVELS, Level, MotionBenchmark
from motionformer.models import create_model


def main() -> None:
    options = parse_options()
    torch.set_num_threads(options.threads)
    torch.manual_seed(options.seed)
    model = create_model(options.model)
    started, cpu_started = time.perf_counter(), time.process_time()
    learn(model, options)
    accuracy = judge(model, MotionBenchmark(level_of(options), "val", options.val_clips))
    seconds, cpu_seconds = time.perf_counter() - started, time.process_time() - cpu_started
    print(
        f"{options.level} {options.model} seed {options.seed}: {accuracy:.1%} of {options.val_clips} held-out clips "
        f"after {options.steps} steps, {seconds:.0f} s ({cpu_seconds:.0f} s of CPU time)"
    )


def learn(model: nn.Module, options: argparse.Namespace) -> None:
    """One pass over fresh clips: warm-up, then the learning rate falls to zero along a cosine."""
    clips = MotionBenchmark(level_of(options), "train", options.steps * options.batch, seed=options.seed)
    optimiser = torch.optim.AdamW(model.parameters(), lr=options.lr, weight_decay=0.05)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, options.lr, total_steps=options.steps, pct_start=0.15)
    model.train()
    for step, (frames, label, _) in enumerate(DataLoader(clips, options.batch)):
        loss = F.cross_entropy(model(normalise(frames)), label)
        optimiser.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        schedule.step()
        if options.every and (step + 1) % options.every == 0:
            print(f"  step {step + 1}: loss {loss.item():.3f}", flush=True)


def level_of(options: argparse.Namespace) -> Level:
    level = LEVELS[options.level]
    return replace(level, speed=tuple(options.speed)) if options.speed else level


@torch.no_grad()
def judge(model: nn.Module, clips: MotionBenchmark) -> float:
    """The share of clips whose class the model gives."""
    model.eval()
    right = [model(normalise(frames)).argmax(dim=-1) == label for frames, label, _ in DataLoader(clips, 64)]
    return torch.cat(right).float().mean().item()


def normalise(frames: UInt8[Tensor, "b t H W 3"]) -> Float[Tensor, "b 3 t H W"]:
    """Bytes to −1 … 1, as mean = std = 0.5 does."""
    return frames.permute(0, 4, 1, 2, 3).float() / 127.5 - 1.0


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--level", default="easy", choices=LEVELS)
    parser.add_argument("--speed", type=float, nargs=2, metavar=("FROM", "TO"), help="of the disc")
    parser.add_argument("--model", default="motionformer-tiny")
    parser.add_argument("--steps", type=int, default=150)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--lr", type=float, default=2e-3)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--val-clips", type=int, default=512)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--every", type=int, default=0, help="print the loss every so many steps")
    return parser.parse_args()


if __name__ == "__main__":
    main()
