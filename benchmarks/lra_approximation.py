"""How far each approximation is from exact attention, on several families of inputs, for r = 16 … 128.

python -m benchmarks.lra_approximation            # a few minutes on one core; writes build/lra-approximation.json

The error is |approximation − exact| / |exact| over all queries and heads: 0 is exact, 1 is as wrong as answering zero.
The mean of all values, which looks at no query, is the answer to beat.
"""

import argparse
import json
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

from motionformer.attention import AttentionKernel
from motionformer.experiments.lra.model import make_kernel

N, D, HEADS = 1024, 32, 4
RANKS = (16, 32, 64, 128)
MEAN = "mean of all values"
METHODS = (
    MEAN,
    "performer-#",
    "performer-4#",
    "nystrom-#",
    "orthoformer-#",
    "orthoformer-#-improved",
    "orthoformer-#-random",
    "orthoformer-#-segments",
)
QKV = tuple[Tensor, Tensor, Tensor]


def gaussian() -> QKV:
    """Independent normal queries and keys: attention is broad, nothing to exploit."""
    return _normal(), _normal(), _normal()


def sharp() -> QKV:
    """The same, three times as long: each query looks at a few keys."""
    return 3 * _normal(), 3 * _normal(), _normal()


def clustered() -> QKV:
    """32 kinds of tokens with small differences, queries and keys from the same kinds; values follow the kind."""
    centres, meanings = 2.5 * torch.randn(HEADS, 32, D), torch.randn(HEADS, 32, D)
    kind = torch.randint(32, (HEADS, N, 1)).expand(-1, -1, D)
    near = centres.gather(1, kind)
    return near + 0.3 * _normal(), near + 0.3 * _normal(), meanings.gather(1, kind) + 0.3 * _normal()


def smooth() -> QKV:
    """Tokens that change slowly along the sequence, as neighbouring patches do: made for means of segments."""

    def walk() -> Tensor:
        steps = torch.randn(HEADS, N, D).cumsum(dim=1)
        return 2 * (steps - steps.mean(dim=1, keepdim=True)) / steps.std(dim=1, keepdim=True)

    shared = walk()
    return shared, shared + 0.2 * _normal(), walk()


def low_rank() -> QKV:
    """Queries and keys in 4 of 32 dimensions."""
    basis = torch.linalg.qr(torch.randn(HEADS, D, 4)).Q.transpose(1, 2)
    return 3 * torch.randn(HEADS, N, 4) @ basis, 3 * torch.randn(HEADS, N, 4) @ basis, _normal()


def look_up() -> QKV:
    """Every query has exactly one right key, in random order: nothing is shared between queries."""
    keys = 3.5 * torch.nn.functional.normalize(_normal(), dim=-1) * D**0.25
    order = torch.randperm(N)
    return keys[:, order], keys, _normal()


FAMILIES: dict[str, Callable[[], QKV]] = {
    family.__name__: family for family in (gaussian, sharp, clustered, smooth, low_rank, look_up)
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--out", type=Path, default=Path("build"))
    options = parser.parse_args()
    torch.set_num_threads(1)
    errors = {
        family: {method: {r: measure(family, method, r, options.seeds) for r in RANKS} for method in METHODS}
        for family in FAMILIES
    }
    for family, methods in errors.items():
        print(f"\n| {family} | {' | '.join(f'r = {r}' for r in RANKS)} |\n|---{'|---' * len(RANKS)}|")
        for method, row in methods.items():
            name = method.replace("-4#", ", 4 r features").replace("-#", "")
            print(f"| {name} | {' | '.join(f'{value:.3f}' for value in row.values())} |")
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "lra-approximation.json").write_text(json.dumps(errors, indent=2), encoding="utf-8")


@torch.no_grad()
def measure(family: str, method: str, r: int, seeds: int) -> float:
    """The mean error over seeds."""
    found = []
    for seed in range(seeds):
        torch.manual_seed(seed)
        q, k, v = (x[None] for x in FAMILIES[family]())
        exact = make_kernel("exact", D)(q, k, v)
        near = mean_of_values(v) if method == MEAN else approximation(method, r)(q, k, v)
        found.append(((near - exact).norm() / exact.norm()).item())
    return sum(found) / seeds


def approximation(method: str, r: int) -> AttentionKernel:
    return make_kernel(method.replace("4#", str(4 * r)).replace("#", str(r)), D).eval()


def mean_of_values(v: Tensor) -> Tensor:
    """The answer that looks at no query: what an approximation has to beat."""
    return v.mean(dim=2, keepdim=True)[:, :, :, None]


def _normal() -> Tensor:
    return torch.randn(HEADS, N, D)


if __name__ == "__main__":
    main()
