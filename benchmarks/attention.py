"""One attention layer, whole models and prototype selection against the paper's equations done literally.

Same weights, same run. A contestant's `gmacs` are the multiply-adds it really does; `peak` is the machine's own matrix
product of the base model's MLP shape.
"""

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass

import torch
from tests.literal.selection import literal_selection
from tests.literal.trajectory import LiteralTrajectoryAttention, literal_model
from torch import nn

from benchmarks.timing import compare
from motionformer import create_model, select_prototypes
from motionformer.models import ModelConfig, model_config
from motionformer.models.costs import measure, paper_macs


@dataclass(frozen=True)
class Row:
    """One comparison: seconds of both, how many times faster, and what was asked of it."""

    what: str
    threads: int
    ours: float
    other: float
    ratio: float
    target: str
    gmacs_ours: float | None = None
    gmacs_other: float | None = None

    def as_dict(self) -> dict[str, object]:
        return asdict(self)


def forward(model: nn.Module, *inputs: object) -> Callable[[], object]:
    def run() -> None:
        with torch.no_grad():
            model(*inputs)

    return run


def training_step(model: nn.Module, *inputs: object, optimise: bool = False) -> Callable[[], object]:
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5) if optimise else None

    def run() -> None:
        model.zero_grad()
        model(*inputs).square().mean().backward()
        if optimizer is not None:
            optimizer.step()

    return run


def layer(threads: int, rounds: int) -> Iterator[Row]:
    """The base model's attention layer: 1,569 tokens of width 768, 12 heads, 8 frames."""
    x = torch.randn(1, 1569, 768)
    for name, project_values in (("with value projection", True), ("as released", False)):
        config = model_config("motionformer-base", project_values=project_values)
        ours = create_model("motionformer-base", depth=1, project_values=project_values).blocks[0].attn
        literal = LiteralTrajectoryAttention(ours)
        done, asked = _layer_gmacs(config)
        best = compare({"ours": forward(ours, x, 8), "other": forward(literal, x, 8)}, rounds)
        yield _row(f"attention layer, forward, {name}", threads, best, "≥ 3×", done, asked)
        inputs = x.clone().requires_grad_()
        best = compare({"ours": training_step(ours, inputs, 8), "other": training_step(literal, inputs, 8)}, rounds)
        yield _row(f"attention layer, forward + backward, {name}", threads, best, "≥ 2.5×")


def models(threads: int, rounds: int) -> Iterator[Row]:
    """The whole base model, its joint twin, and the 32-frame model."""
    config = model_config("motionformer-base")
    clip = torch.randn(1, 3, 16, 224, 224)
    ours = create_model("motionformer-base", drop_path=0.0)
    joint = create_model("joint-base", drop_path=0.0)
    literal = literal_model(ours)
    done, asked, plain = measure(config).macs / 1e9, paper_macs(config) / 1e9, paper_macs(joint.config) / 1e9
    peak = matmul_peak()
    best = compare(
        {name: forward(m, clip) for name, m in (("ours", ours), ("other", literal), ("joint", joint))}, rounds
    )
    yield _row("base model, forward", threads, best, "≥ 2.2×", done, asked)
    yield _against_joint("forward", threads, best, done, plain)
    reached = 2 * done / best["ours"] / peak
    yield Row(
        "base forward, share of the machine's matrix-multiply peak", threads, best["ours"], peak, reached, "reported"
    )
    contestants = (("ours", ours), ("other", literal), ("joint", joint))
    best = compare({name: training_step(m, clip, optimise=True) for name, m in contestants}, rounds)
    yield _row("base model, training step", threads, best, "≥ 2×")
    yield _against_joint("training step", threads, best, None, None)
    del ours, literal, joint
    config = model_config("motionformer-l")
    ours = create_model("motionformer-l")
    clip = torch.randn(1, 3, 32, 224, 224)
    best = compare({"ours": forward(ours, clip), "other": forward(literal_model(ours), clip)}, max(1, rounds - 1))
    yield _row("32-frame model, forward", threads, best, "≥ 2.5×", measure(config).macs / 1e9, paper_macs(config) / 1e9)


def selection(threads: int, rounds: int) -> Iterator[Row]:
    """128 prototypes among 1,568 candidates, 12 heads."""
    candidates = torch.randn(12, 1568, 64)
    start = torch.zeros(12, dtype=torch.long)
    found, expected = select_prototypes(candidates, 128, start=start), literal_selection(candidates, 128, start)
    same = "identical indices" if torch.equal(found, expected) else "DIFFERENT INDICES"
    best = compare(
        {
            "ours": lambda: select_prototypes(candidates, 128, start=start),
            "other": lambda: literal_selection(candidates, 128, start),
        },
        rounds,
    )
    yield _row(f"selection, r = 128, n = 1568 ({same})", threads, best, "≥ 20×")


def matmul_peak() -> float:
    """Billions of floating-point operations a second in the largest matrix product of the base model."""
    a, b = torch.randn(1569, 768), torch.randn(768, 3072)
    best = compare({"product": lambda: a @ b}, 20)["product"]
    return 2 * a.shape[0] * a.shape[1] * b.shape[1] / best / 1e9


def _layer_gmacs(config: ModelConfig) -> tuple[float, float]:
    """One layer of attention: the difference between a model of two blocks and one, without the MLP and norms."""
    c, tokens = config.dim, 1569
    rest = 2 * tokens * c * 4 * c + 2 * 5 * tokens * c
    from dataclasses import replace

    one, two = replace(config, depth=1), replace(config, depth=2)
    done = measure(two).macs - measure(one).macs - rest
    asked = paper_macs(two) - paper_macs(one) - rest
    return done / 1e9, asked / 1e9


def _row(
    what: str,
    threads: int,
    best: dict[str, float],
    target: str,
    ours: float | None = None,
    other: float | None = None,
) -> Row:
    return Row(what, threads, best["ours"], best["other"], best["other"] / best["ours"], target, ours, other)


def _against_joint(what: str, threads: int, best: dict[str, float], ours: float | None, joint: float | None) -> Row:
    name = f"trajectory beside joint attention, base model, {what}"
    return Row(name, threads, best["ours"], best["joint"], best["ours"] / best["joint"], "≤ 1.5×", ours, joint)
