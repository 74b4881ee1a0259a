"""Costs: the paper's figures, and that what is counted is what runs."""

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from motionformer import create_model
from motionformer.costs import measure, paper_macs, released_parameters
from motionformer.models import AttendConfig, model_config

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


@pytest.mark.parametrize(("changes", "figure"), [({}, 217), ({"project_values": False}, 204)])
def test_folded_multiply_adds_of_the_base_model(changes: dict, figure: int) -> None:
    assert round(measure(model_config("motionformer-base", **changes)).macs / 1e9) == figure


def test_joint_and_divided_do_just_what_the_paper_counts() -> None:
    for name in ("joint-tiny", "divided-tiny"):
        config = model_config(name)
        assert measure(config).macs == pytest.approx(paper_macs(config), rel=1e-6)


def test_data_free_count_equals_a_real_run() -> None:
    """Without fused attention, which torch's own counter does not see on a CPU: prototypes instead."""
    config = model_config("motionformer-tiny", attend="performer")
    model = create_model("motionformer-tiny", attend="performer").eval()
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
    "attend",
    [
        AttendConfig("performer"),
        AttendConfig("orthoformer", 16),
        AttendConfig("orthoformer", 1000),  # more than there are tokens
        AttendConfig("orthoformer", 16, choice="random"),
        AttendConfig("orthoformer", 16, candidates="queries+keys"),
        AttendConfig("orthoformer", 8, subsample=2),
    ],
    ids=str,
)
def test_approximations_do_what_is_counted(name: str, attend: AttendConfig) -> None:
    config = model_config(name, attend=attend)
    assert measure(config).macs == pytest.approx(paper_macs(config), rel=1e-6)


def test_nystrom_counts_all_but_the_means_which_are_products_here() -> None:
    config = model_config("joint-tiny", attend=AttendConfig("nystrom", 16))
    means = 4 * 2 * 145 * 16 * 96
    assert measure(config).macs == pytest.approx(paper_macs(config) + means, rel=1e-6)


def test_a_search_that_is_not_made_costs_nothing() -> None:
    greedy, random, few = (
        paper_macs(model_config("motionformer-base", attend=AttendConfig("orthoformer", 128, **changes)))
        for changes in ({}, {"choice": "random"}, {"subsample": 4})
    )
    tokens = 8 * 14 * 14
    assert greedy - random == pytest.approx(12 * tokens * 128 * 768)
    assert few - random == pytest.approx(12 * 4 * 128 * 128 * 768)
