"""A task that cannot be done without attention: look a key up in a list of keys and values.

python -m benchmarks.lra_lookup                   # 7 methods × 3 seeds; writes build/lra-lookup.json

A sequence is `items` tokens (key, value), then as many questions (a key each, all keys once, in random order); the
answer to a question is the value that stands beside its key, one of 8. Keys are paired with values anew in each
sequence, so nothing can be learnt by heart: a model without attention answers 1 in 8. Every question needs a key of its
own, which is hard on approximations with fewer prototypes than keys: by default half as many. Features, landmarks and
prototypes are 4 : 2 : 1, as in the paper's comparison.
"""

import argparse
import json
import time
from pathlib import Path

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int64
from torch import Tensor, nn

from motionformer.experiments.lra.model import DIM, Encoder

VALUES = 8
METHODS = (
    "exact",
    "performer-64",
    "nystrom-32",
    "orthoformer-16",
    "orthoformer-16-improved",
    "orthoformer-16-random",
    "orthoformer-16-segments",
)


class LookUp(nn.Module):
    """Keys and values are embedded and added; a question has the value "none"."""

    def __init__(self, kernel: str, items: int) -> None:
        super().__init__()
        self.keys = nn.Embedding(items, DIM)
        self.values = nn.Embedding(VALUES + 1, DIM)
        self.encoder = Encoder(kernel)
        self.head = nn.Linear(DIM, VALUES)
        for module in self.modules():
            if isinstance(module, nn.Dropout):
                module.p = 0.0  # endless data: there is nothing to overfit

    def forward(self, keys: Int64[Tensor, "b n"], values: Int64[Tensor, "b n"]) -> Float[Tensor, "b questions v"]:
        x = self.encoder(self.keys(keys) + self.values(values))
        return self.head(x[:, keys.shape[1] // 2 :])  # type: ignore[no-any-return]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--items", type=int, default=32)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--lr", type=float, default=2e-3)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--methods", nargs="+", default=METHODS)
    parser.add_argument("--out", type=Path, default=Path("build"))
    options = parser.parse_args()
    torch.set_num_threads(1)
    report: dict[str, object] = {"options": {**vars(options), "out": str(options.out)}}
    print("| method | accuracy, each seed | mean | seconds a run |\n|---|---|---|---|")
    for method in options.methods:
        started = time.process_time()
        found = [learn(method, seed, options) for seed in range(options.seeds)]
        seconds = (time.process_time() - started) / options.seeds
        each = ", ".join(f"{value:.1%}" for value in found)
        print(f"| {method} | {each} | {sum(found) / len(found):.1%} | {seconds:.0f} |", flush=True)
        report[method] = {"accuracy": found, "cpu_seconds": seconds}
        options.out.mkdir(parents=True, exist_ok=True)
        (options.out / "lra-lookup.json").write_text(json.dumps(report, indent=2), encoding="utf-8")


def learn(method: str, seed: int, options: argparse.Namespace) -> float:
    """Accuracy on fresh sequences after training on fresh sequences."""
    torch.manual_seed(seed)
    model = LookUp(method, options.items)
    optimiser = torch.optim.AdamW(model.parameters(), options.lr, weight_decay=0.0)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, options.lr, total_steps=options.steps, pct_start=0.1)
    generator = torch.Generator().manual_seed(1000 + seed)
    for _ in range(options.steps):
        keys, values, answers = draw(options.batch, options.items, generator)
        loss = F.cross_entropy(model(keys, values).flatten(0, 1), answers.flatten())
        optimiser.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        schedule.step()
    model.eval()
    with torch.no_grad():
        keys, values, answers = draw(64, options.items, torch.Generator().manual_seed(7))
        return (model(keys, values).argmax(dim=-1) == answers).float().mean().item()


def draw(
    batch: int, items: int, generator: torch.Generator
) -> tuple[Int64[Tensor, "b n"], Int64[Tensor, "b n"], Int64[Tensor, "b items"]]:
    """Keys and values of the tokens, and the answers to the questions, which are the second half."""
    order, asked = (torch.rand(batch, items, generator=generator).argsort(dim=1) for _ in range(2))
    by_key = torch.randint(VALUES, (batch, items), generator=generator)
    keys = torch.cat((order, asked), dim=1)
    values = torch.cat((by_key.gather(1, order), torch.full_like(asked, VALUES)), dim=1)
    return keys, values, by_key.gather(1, asked)


if __name__ == "__main__":
    main()
