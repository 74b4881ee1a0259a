"""The model of the comparison: two pre-norm layers of width 64, the mean over real tokens, a small classifier.

The attention kernel is given; everything else is the same for all. Padding is hidden from all of them alike: as keys by
a mask, as candidates for prototypes and landmarks by the same mask, and in the mean.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass

import torch
from einops import rearrange
from jaxtyping import Bool, Float, Int64
from torch import Tensor, nn

from motionformer.attention import (
    AttentionKernel,
    ExactAttention,
    JointAttention,
    NystromAttention,
    OrthoformerAttention,
    PerformerAttention,
    SpaceTimeNormAttention,
)
from motionformer.experiments.lra.examples import Task
from motionformer.models.block import MLP
from motionformer.models.costs import step_peak

DIM, _NUM_HEADS, _HIDDEN, _DEPTH = 64, 2, 128, 2
_DROPOUT = 0.1


class _Layer(nn.Module):
    """Pre-norm attention and MLP; masked."""

    def __init__(
        self, kernel: AttentionKernel, dim: int = DIM, num_heads: int = _NUM_HEADS, hidden: int = _HIDDEN
    ) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(dim)
        self.attn = JointAttention(dim, num_heads, kernel=kernel)
        self.norm2 = nn.LayerNorm(dim)
        self.mlp = MLP(dim, hidden, _DROPOUT)
        self.dropout = nn.Dropout(_DROPOUT)

    def forward(self, x: Float[Tensor, "b n c"], mask: Bool[Tensor, "b n"] | None) -> Float[Tensor, "b n c"]:
        x = x + self.dropout(self.attn(self.norm1(x), key_mask=mask))
        return x + self.mlp(self.norm2(x))  # type: ignore[no-any-return]


class Encoder(nn.Module):
    """Embedded tokens through the layers and a last norm."""

    def __init__(self, kernel: str, dim: int = DIM, num_heads: int = _NUM_HEADS, depth: int = _DEPTH) -> None:
        super().__init__()
        hidden = dim * _HIDDEN // DIM
        kernels = [make_kernel(kernel, dim // num_heads) for _ in range(depth)]
        self.layers = nn.ModuleList(_Layer(one, dim, num_heads, hidden) for one in kernels)
        self.norm = nn.LayerNorm(dim)

    def forward(self, x: Float[Tensor, "b n c"], mask: Bool[Tensor, "b n"] | None = None) -> Float[Tensor, "b n c"]:
        for layer in self.layers:
            x = layer(x, mask)
        return self.norm(x)  # type: ignore[no-any-return]


class SequenceClassifier(nn.Module):
    """Token numbers → logits. With two texts per example, both go through one encoder and meet in the head."""

    def __init__(self, task: Task, kernel: str) -> None:
        super().__init__()
        self.words = nn.Embedding(task.vocabulary, DIM, padding_idx=0)
        self.places = nn.Parameter(torch.empty(task.length, DIM))
        nn.init.normal_(self.words.weight, std=0.02)
        nn.init.normal_(self.places, std=0.02)
        self.dropout = nn.Dropout(_DROPOUT)
        self.encoder = Encoder(kernel)
        self.head = _PairHead(task.num_classes) if task.num_texts == 2 else _SingleHead(task.num_classes)

    def forward(self, tokens: Int64[Tensor, "b w n"], mask: Bool[Tensor, "b w n"]) -> Float[Tensor, "b classes"]:
        b = tokens.shape[0]
        tokens, mask = (rearrange(x, "b w n -> (b w) n") for x in (tokens, mask))
        x = self.dropout(self.words(tokens) + self.places[: tokens.shape[1]])
        pooled = _mean_of_real(self.encoder(x, mask), mask)
        return self.head(rearrange(pooled, "(b w) c -> b w c", b=b))  # type: ignore[no-any-return]


class _SingleHead(nn.Module):
    """The classifier of one text."""

    def __init__(self, num_classes: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(DIM, _HIDDEN), nn.ReLU(), nn.Linear(_HIDDEN, num_classes))

    def forward(self, texts: Float[Tensor, "b 1 c"]) -> Float[Tensor, "b classes"]:
        return self.layers(texts[:, 0])  # type: ignore[no-any-return]


class _PairHead(nn.Module):
    """The classifier of two texts: each, their product and their difference."""

    def __init__(self, num_classes: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(4 * DIM, _HIDDEN), nn.ReLU(), nn.Linear(_HIDDEN, num_classes))

    def forward(self, texts: Float[Tensor, "b 2 c"]) -> Float[Tensor, "b classes"]:
        one, other = texts.unbind(dim=1)
        return self.layers(torch.cat((one, other, one * other, one - other), dim=-1))  # type: ignore[no-any-return]


def _mean_of_real(x: Float[Tensor, "b n c"], mask: Bool[Tensor, "b n"]) -> Float[Tensor, "b c"]:
    """The mean over real tokens: padding counts neither above nor below."""
    weights = mask.to(x.dtype)[..., None]
    return (x * weights).sum(dim=1) / weights.sum(dim=1).clamp(min=1)


COMPARED = ("exact", "performer-256", "nystrom-128", "orthoformer-64", "orthoformer-64-improved")
"""The rows of the comparison; `-improved` is our addition."""

_KINDS: dict[str, Callable[[int, int], AttentionKernel]] = {
    "performer-#": lambda r, d: PerformerAttention(d, r),
    "nystrom-#": lambda r, d: NystromAttention(r),
    "orthoformer-#": lambda r, d: OrthoformerAttention(r),
    "orthoformer-#-improved": lambda r, d: OrthoformerAttention.improved(r),
    "orthoformer-#-random": lambda r, d: OrthoformerAttention(r, choice="random"),
    "orthoformer-#-segments": lambda r, d: OrthoformerAttention(r, choice="segments"),
}


def make_kernel(name: str, head_dim: int) -> AttentionKernel:
    """A fresh attention kernel for heads of this width.

    `exact-stored` is exact attention that keeps the n × n matrix: the same function without the fused kernel, for cost
    comparisons. The Performer draws its features from PyTorch's global generator, which a run seeds.
    """
    if name == "exact":
        return ExactAttention()
    if name == "exact-stored":
        return SpaceTimeNormAttention()
    number = re.search(r"[1-9][0-9]*", name)
    kind = name.replace(number[0], "#", 1) if number else name
    if number is None or kind not in _KINDS:
        known = ", ".join(("exact", "exact-stored", *_KINDS)).replace("#", "R")
        raise ValueError(f"kernel is one of {known} with a number for R; not {name!r}.")
    return _KINDS[kind](int(number[0]), head_dim)


_LENGTH = 2048
_INVERSE_STEPS = 6
_CONVOLUTION = 35
PUBLISHED = {"exact": 1.21, "performer-256": 0.49, "nystrom-128": 0.62, "orthoformer-64": 0.24}
"""GFLOPs of the paper's table for the ListOps encoder."""


@dataclass(frozen=True)
class Cost:
    """One contestant: billions of multiply-adds here, in the paper (if it is there), and bytes of a training step."""

    kernel: str
    gmacs: float
    published: float | None
    training_bytes: int | None


def encoder_macs(kernel: str, n: int = _LENGTH) -> int:
    """Multiply-adds of one sequence of n tokens through the encoder."""
    projections = 4 * n * DIM * DIM
    mlp = 2 * n * DIM * _HIDDEN
    norm = 5 * n * DIM
    return _DEPTH * (projections + mlp + 2 * norm + _attention_macs(kernel, n)) + norm


def _attention_macs(kernel: str, n: int) -> int:
    """Multiply-adds between the projections, all heads together."""
    kind, _, rest = kernel.partition("-")
    if kind == "exact":
        return 2 * n * n * DIM
    r = int(rest.partition("-")[0])
    if kind == "performer":  # features of queries and keys; what features read and give; the normaliser
        return 4 * n * r * DIM + n * r * _NUM_HEADS
    between = r * r * DIM  # landmarks with landmarks
    ends = 4 * n * r * DIM  # queries with prototypes, prototypes with keys, and values through both
    if kind == "nystrom":
        inverse = _INVERSE_STEPS * 4 * _NUM_HEADS * r**3
        return ends + between + inverse + n * r * r * _NUM_HEADS + _CONVOLUTION * n * DIM
    search = 2 * n * r * DIM
    if rest.endswith("-improved"):  # one Lloyd step (nearest, then mean), the overlap, and its solution
        return ends + search + 2 * n * r * DIM + between + _NUM_HEADS * r**3 // 3 + between
    return ends + search


def compare_costs(kernels: tuple[str, ...], *, memory_batch: int | None = 4) -> list[Cost]:
    """A cost for each contestant; memory is left out when `memory_batch` is None (it takes seconds each)."""
    return [
        Cost(
            kernel,
            encoder_macs(kernel) / 1e9,
            PUBLISHED.get(kernel),
            None if memory_batch is None else _training_bytes(kernel, memory_batch),
        )
        for kernel in kernels
    ]


def _training_bytes(kernel: str, batch: int = 4, n: int = _LENGTH) -> int:
    """Peak resident memory of one training step of the encoder beyond its weights, in a process of its own (Linux)."""
    return step_peak(_STEP, kernel, str(batch), str(n), str(DIM))


_STEP = """
import sys, torch
from motionformer.experiments.lra.model import Encoder
torch.set_num_threads(1)
kernel, batch, n, dim = sys.argv[1], *map(int, sys.argv[2:5])
torch.manual_seed(0)
encoder = Encoder(kernel)
def step(n=n):
    encoder(torch.randn(batch, n, dim), torch.ones(batch, n, dtype=torch.bool)).square().mean().backward()
step(256)  # libraries load their code on first use
"""
