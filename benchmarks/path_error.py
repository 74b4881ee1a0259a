"""How far from the disc attention looks: path errors of trained and untrained tiny models, three schemes.

python -m benchmarks.path_error --level easy --steps 300 --seed 0 --save build/trace-models

Each model learns to tell the direction of the disc, never where it is. Layers and heads are chosen on training clips;
the figures are of held-out ones.
"""

import argparse
from pathlib import Path

import torch

from benchmarks.motion_learning import judge, learn
from motionformer.data.motion import MotionBenchmark
from motionformer.models import Motionformer, create_model
from motionformer.trace import PathError, path_error
from motionformer.weights import load_model

MODELS = ("motionformer-tiny", "joint-tiny", "divided-tiny")


def main() -> None:
    options = parse_options()
    torch.set_num_threads(options.threads)
    print(
        "| model | path | frames | best layer, mean of heads | best head | all layers and heads | uniform map | stay |"
    )
    print("|---|---|---|---|---|---|---|---|", flush=True)
    for name in MODELS:
        torch.manual_seed(options.seed)
        model = create_model(name)
        report(f"{name}, untrained", model, options)
        model = trained(model, options.save / f"{options.level}-{name}-seed{options.seed}", options)
        accuracy = judge(model, MotionBenchmark(options.level, "val", 256))
        report(f"{name}, trained ({accuracy:.1%} of directions)", model, options)


def trained(model: Motionformer, folder: Path, options: argparse.Namespace) -> Motionformer:
    """The model after training, which is done once and kept."""
    if folder.is_dir():
        return load_model(folder)
    learn(model, options)
    model.save_pretrained(folder)
    return model


def report(name: str, model: Motionformer, options: argparse.Namespace) -> None:
    chosen_on = path_error(model, MotionBenchmark(options.level, "train", options.clips, seed=options.seed + 1000))
    errors = path_error(model, MotionBenchmark(options.level, "test", options.clips))
    for path, frames, choice, error in (
        ("strongest", "all", chosen_on.peak_everywhere, errors.peak_everywhere),
        ("strongest", "disc whole", chosen_on.peak_whole, errors.peak_whole),
        ("mean", "all", chosen_on.everywhere, errors.everywhere),
        ("mean", "disc whole", chosen_on.whole, errors.whole),
    ):
        print(f"| {name} | {path} | {frames} ({error.num_places}) | {figures(choice, error)} |", flush=True)


def figures(choice: PathError, error: PathError) -> str:
    layer, (head_layer, head) = choice.best_layer, choice.best_head
    return (
        f"{error.by_layer[layer]:.2f} (layer {layer}) | {error.by_head[head_layer, head]:.2f} ({head_layer}.{head}) | "
        f"{error.overall:.2f} | {error.uniform:.2f} | {error.stay:.2f}"
    )


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--level", default="easy")
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--lr", type=float, default=2e-3)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--clips", type=int, default=128, help="clips to choose on, and clips to report on")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--every", type=int, default=0)
    parser.add_argument("--save", type=Path, default=Path("build/trace-models"), help="folder of trained models")
    parser.set_defaults(speed=None)  # the level's own
    return parser.parse_args()


if __name__ == "__main__":
    main()
