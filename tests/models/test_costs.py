"""Costs: the paper's figures, and that what is counted is what runs."""

from collections.abc import Callable

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from motionformer import create_model
from motionformer.models import KernelConfig, model_config
from motionformer.models.costs import measure, paper_macs, released_parameters

PAPER = [
    ("joint-base", {}, 180.6),
    ("divided-base", {}, 185.8),
    ("motionformer-base", {}, 369.5),
    ("motionformer-hr", {}, 958.8),
    ("motionformer-l", {}, 1185.2),
]


@pytest.mark.parametrize(("name", "changes", "figure"), PAPER)
def test_the_papers_multiply_adds(name: str, changes: dict, figure: float) -> None:
    assert round(paper_macs(model_config(name, **changes)) / 1e9, 1) == figure


@pytest.mark.parametrize(("name", "figure"), [("joint-base", 179.7), ("motionformer-base", 368.5)])
def test_the_papers_square_tokens_which_it_cuts_instead_of_rounding(name: str, figure: float) -> None:
    assert int(paper_macs(model_config(name, tubelet=1, frames=8)) / 1e8) / 10 == figure


@pytest.mark.parametrize(("name", "figure"), [("motionformer-base", 109.1), ("motionformer-h", 381.9)])
def test_the_papers_parameters(name: str, figure: float) -> None:
    config = model_config(name)
    with torch.device("meta"):
        ours = sum(p.numel() for p in create_model(name).parameters())
    assert round((ours + sum(released_parameters(config).values())) / 1e6, 1) == figure


def test_joint_and_divided_do_just_what_the_paper_counts() -> None:
    for name, changes in (
        ("joint-tiny", {}),
        ("divided-tiny", {}),
        ("divided-tiny", {"attention": "timesformer"}),
        ("divided-tiny", {"attention": "timesformer", "num_prefix_tokens": 3, "kernel": "performer"}),
    ):
        config = model_config(name, **changes)
        assert measure(config).macs == pytest.approx(paper_macs(config), rel=1e-6)


def test_data_free_count_equals_a_real_run() -> None:
    """Without fused attention, which torch's own counter does not see on a CPU: prototypes instead."""
    config = model_config("motionformer-tiny", kernel="performer")
    model = create_model("motionformer-tiny", kernel="performer").eval()
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        model(torch.zeros(3, 3, 8, 48, 48))
    norms = 5 * 9 * 145 * 96 * 3
    prefix = 2 * 4 * 145 * 96 * 3  # the class token's attention is fused
    assert measure(config, batch=3).macs == pytest.approx(counter.get_total_flops() / 2 + norms + prefix, rel=1e-9)


def test_memory_options_cost_less() -> None:
    sizes = {"frames": 16, "size": 48, "depth": 2, "num_heads": 8, "chunk_size": 1000}
    plain, recompute, checkpointing, finer = (
        measure(model_config("motionformer-tiny", **{**sizes, **change}))
        for change in ({}, {"recompute": True}, {"checkpointing": True}, {"chunk_size": 64})
    )
    assert plain.training_bytes > recompute.training_bytes > checkpointing.training_bytes
    assert plain.macs == recompute.macs == checkpointing.macs
    assert finer.inference_bytes < plain.inference_bytes
    assert plain.weight_bytes == 4 * plain.parameters
    optimiser = torch.optim.AdamW([weight := torch.nn.Parameter(torch.zeros(plain.parameters))])
    weight.grad = torch.zeros_like(weight)
    optimiser.step()
    moments = sum(part.nbytes for part in optimiser.state[weight].values() if part.shape == weight.shape)
    assert plain.training_total_bytes == weight.nbytes + moments + plain.training_bytes


def test_memory_is_what_the_allocator_sees() -> None:
    """Bytes of the tensors saved for the backward pass, from a real run, stand below the counted peak."""
    saved: dict[int, int] = {}

    def note(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        saved[storage.data_ptr()] = storage.nbytes()
        return tensor

    model = create_model("motionformer-small", depth=2)
    clip = torch.zeros(1, 3, 8, 112, 112)
    weights = {p.untyped_storage().data_ptr() for p in model.parameters()}
    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        logits = model(clip)
    activations = sum(size for pointer, size in saved.items() if pointer not in weights)
    assert logits.shape == (1, 400)
    counted = measure(model.config).training_bytes
    assert activations < counted < activations + 1.3 * 4 * sum(p.numel() for p in model.parameters())


@pytest.mark.parametrize("name", ["joint-tiny", "divided-tiny"])
@pytest.mark.parametrize(
    "kernel",
    [
        KernelConfig("performer"),
        KernelConfig("nystrom", 16),
        KernelConfig("nystrom", 1000),
        KernelConfig("orthoformer", 16),
        KernelConfig("orthoformer", 1000),  # more than there are tokens
        KernelConfig("orthoformer", 16, choice="random"),
        KernelConfig("orthoformer", 16, candidates="queries+keys"),
        KernelConfig("orthoformer", 8, subsample=2),
    ],
    ids=str,
)
def test_approximations_do_what_is_counted(name: str, kernel: KernelConfig) -> None:
    config = model_config(name, kernel=kernel)
    assert measure(config).macs == pytest.approx(paper_macs(config), rel=1e-6)


def test_a_search_that_is_not_made_costs_nothing() -> None:
    greedy, random, few = (
        paper_macs(model_config("motionformer-base", kernel=KernelConfig("orthoformer", 128, **changes)))
        for changes in ({}, {"choice": "random"}, {"subsample": 4})
    )
    tokens = 8 * 14 * 14
    assert greedy - random == pytest.approx(12 * tokens * 128 * 768)
    assert few - random == pytest.approx(12 * 4 * 128 * 128 * 768)


def test_the_improved_orthoformer_costs_more_than_the_plain_one() -> None:
    plain, refined, ridged = (
        paper_macs(model_config("joint-tiny", kernel=KernelConfig("orthoformer", 16, **changes)))
        for changes in ({}, {"refine": True}, {"ridge": 0.01})
    )
    n, r, c, heads = 145, 16, 96, 4
    assert refined - plain == pytest.approx(4 * 2 * n * r * c)
    assert ridged - plain == pytest.approx(4 * (2 * r * r * c + heads * r**3 / 3))


NEW = """
import sys
from dataclasses import replace
import torch
from torch import nn
from motionformer import Motionformer, JointAttention, OrthoformerAttention
from motionformer.attention import AttentionKernel, AttentionScheme, register_kernel, register_scheme
from motionformer.models.costs import measure, paper_macs
from motionformer.errors import MotionformerError, TraceError
from motionformer.models import model_config
from motionformer.tracing import trace

@register_scheme("mine")
class Mine(AttentionScheme):
    def __init__(self, dim):
        nn.Module.__init__(self)
        self.norm, self.layer = nn.LayerNorm(dim), nn.Linear(dim, dim)
    @classmethod
    def from_config(cls, config):
        return cls(config.dim)
    def forward(self, x, frames):
        return self.layer(self.norm(x)) + x.mean(dim=1, keepdim=True)

@register_kernel("mean")
class Kernel(AttentionKernel):
    def prepare(self, q, k, v, frames, bias=None, query_mask=None):
        return lambda q: v.mean(dim=2, keepdim=True).expand_as(q)[:, :, :, None]

@register_scheme("searching")
class Searching(JointAttention):
    @classmethod
    def from_config(cls, config):
        return super().from_config(config, kernel=OrthoformerAttention(16))
"""


def test_a_new_scheme_or_kernel_reports_no_others_cost(run_python: Callable[[str], str]) -> None:
    out = run_python(
        NEW
        + """
tiny = model_config("joint-tiny")
for config in (replace(tiny, attention="mine"), replace(tiny, kernel=replace(tiny.kernel, kind="mean"))):
    try:
        print("counted", paper_macs(config))
    except MotionformerError as error:
        print(error)
mine = measure(replace(tiny, attention="mine")).macs
n, c, p = 145, 96, 3 * 2 * 8 * 8
print(mine == 144 * p * c + 4 * (n * c * c + 8 * n * c * c + 3 * 5 * n * c) + 5 * n * c + c * 8)
print(measure(replace(tiny, attention="searching")).macs
      == measure(model_config("joint-tiny", kernel=replace(tiny.kernel, kind="orthoformer", num_prototypes=16))).macs)
Mine.macs = lambda self, frames, patches, prefix: (frames * patches + prefix) * (96 * 96 + 5 * 96)
print(paper_macs(replace(tiny, attention="mine")) == mine)
"""
    )
    assert out.splitlines() == [
        "the cost of attention 'mine' is not known: Mine does not state its multiply-adds: give it a method macs.",
        "the cost of attention 'joint' is not known: Kernel does not state its multiply-adds: give it a method macs.",
        "True",
        "True",
        "True",
    ]


def test_a_new_scheme_without_maps_is_said_by_trace(run_python: Callable[[str], str]) -> None:
    out = run_python(
        NEW
        + """
torch.manual_seed(0)
model = Motionformer(replace(model_config("joint-tiny"), attention="mine")).eval()
frames = torch.randint(0, 255, (8, 48, 48, 3), dtype=torch.uint8)
for what in ("trajectory", "rollout", "class-token"):
    try:
        trace(model, frames, point=None if what == "class-token" else (20, 20), what=what)
    except TraceError as error:
        print(error)
print(trace(model, frames, what="gradcam", layer=0).scheme)
"""
    )
    *refused, shown = out.splitlines()
    assert len(refused) == 3
    assert all(
        "'mine' defines no maps; trajectory, joint, divided, timesformer, space, searching attention does" in x
        for x in refused
    )
    assert shown == "mine"
