"""The effective token-to-token weights of a layer: they sum to one, and they are what the layer mixes."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import torch
from einops import rearrange
from torch import Tensor, nn

from motionformer.errors import TraceError
from motionformer.models import KernelConfig, Motionformer, create_model
from motionformer.tracing.maps import _LayerAttention, _rollout_rows, _with_residual, split_row, walk_layers

TINY = {
    "trajectory": "motionformer-tiny",
    "joint": "joint-tiny",
    "divided": "divided-tiny",
    "timesformer": "divided-tiny",
}


def make(scheme: str, **changes: object) -> Motionformer:
    """A model whose attention is far from uniform."""
    model = create_model(TINY[scheme], attention=scheme, depth=2, dim=24, num_heads=3, size=24, **changes).eval()
    for parameter in model.parameters():
        parameter.data.add_(0.3 * torch.randn_like(parameter))
    return model


def clip(frames: int = 8) -> Tensor:
    return torch.randn(1, 3, frames, 24, 24)


@contextmanager
def inputs_of(*modules: nn.Module) -> Iterator[list[Tensor]]:
    """What is passed to the modules, in the order in which it happens."""
    seen: list[Tensor] = []
    handles = [m.register_forward_pre_hook(lambda _, given: seen.append(given[0])) for m in modules]
    yield seen
    for handle in handles:
        handle.remove()


def layer_of(model: Motionformer, x: Tensor, number: int = 1) -> _LayerAttention:
    return dict(walk_layers(model, x, (number,)))[number]


@pytest.mark.parametrize("prefix", [0, 1, 3])
@pytest.mark.parametrize("scheme", TINY)
class TestAllSchemes:
    def test_rows_sum_to_one(self, scheme: str, prefix: int) -> None:
        model = make(scheme, num_prefix_tokens=prefix)
        for _, layer in walk_layers(model, clip(), (0, 1)):
            for step in layer.steps:
                assert step.shape == (3, prefix + 36, prefix + 36)
                assert torch.allclose(step.sum(dim=-1), torch.ones(3, prefix + 36), atol=1e-5)
                assert (step >= 0).all()

    def test_times_the_values_it_is_what_the_layer_mixes(self, scheme: str, prefix: int) -> None:
        """Without a value projection along time, values reach the output projection through these weights alone."""
        model = make(scheme, num_prefix_tokens=prefix, project_values=False)
        block, x = model.blocks[1], clip()
        parts = [block.time_attn, block.attn] if hasattr(block, "time_attn") else [block.attn]
        with inputs_of(*parts) as tokens, inputs_of(*(part.proj for part in parts)) as mixed, torch.no_grad():
            steps = layer_of(model, x).steps
        for part, step, given, wanted in zip(parts, steps, tokens, mixed, strict=True):
            values = rearrange(part.qkv(given), "1 n (three h d) -> three h n d", three=3, h=3)[2]
            got = rearrange(step @ values, "h n d -> 1 n (h d)")
            assert torch.allclose(got[:, -wanted.shape[1] :], wanted, atol=1e-4)  # TimeSformer: no prefix along time

    def test_a_row_is_a_row_of_all_steps_together(self, scheme: str, prefix: int) -> None:
        layer = layer_of(make(scheme, num_prefix_tokens=prefix), clip())
        whole = layer.steps[-1]
        if len(layer.steps) == 2:
            whole = whole @ layer.steps[0].mean(dim=0)
        for token in (0, prefix, prefix + 17, prefix + 35):
            assert torch.allclose(layer.row(token), whole[:, token], atol=1e-6)


class TestSchemes:
    def test_patches_of_trajectory_attention_take_nothing_from_the_class_token(self) -> None:
        [step] = layer_of(make("trajectory"), clip()).steps
        assert (step[:, 1:, 0] == 0).all()
        assert (step[:, 0, 0] > 0).all()

    def test_divided_steps_look_along_time_and_along_space_only(self) -> None:
        time, space = layer_of(make("divided"), clip()).steps
        token = torch.arange(36)
        frame, place = token // 9, token % 9
        same_place, same_frame = place[:, None] == place, frame[:, None] == frame
        assert ((time[:, 1:, 1:] > 0) == same_place).all()
        assert ((space[:, 1:, 1:] > 0) == same_frame).all()

    def test_timesformers_class_token_sees_one_frame_at_a_time_and_rests_along_time(self) -> None:
        model, x = make("timesformer"), clip()
        time, space = layer_of(model, x).steps
        assert torch.equal(time[:, 0], torch.eye(37)[0].expand(3, -1))
        assert (time[:, 1:, 0] == 0).all()
        shares = space[:, 0, 1:].view(3, 4, 9).sum(dim=-1)
        to_itself = space[:, 0, 0]
        assert (shares < 0.25).all()  # of each frame's copy a quarter, less what it keeps
        assert torch.allclose(shares.sum(dim=-1) + to_itself, torch.ones(3))
        block, tokens = model.blocks[1], model.blocks[0](model.embed(x), 4)
        assert (block.time_attn(block.norm_time(tokens), 4)[:, 0] == 0).all()

    def test_averaged_trajectories_weigh_every_frame_alike(self) -> None:
        row = layer_of(make("trajectory", time="average"), clip()).row(5)
        assert torch.allclose(row[:, 1:].view(3, 4, 9).sum(dim=-1), torch.full((3, 4), 0.25))

    @pytest.mark.parametrize("kind", ["norm_st", "orthoformer", "nystrom", "performer"])
    @pytest.mark.parametrize("scheme", TINY)
    def test_any_attend_can_be_looked_at(self, scheme: str, kind: str) -> None:
        model = make(scheme, kernel=KernelConfig(kind, choice="segments", num_prototypes=4, num_features=16))
        row = layer_of(model, clip()).row(7)
        assert row.shape == (3, 37)
        assert row.isfinite().all()

    def test_walking_changes_nothing(self) -> None:
        model, x = make("trajectory"), clip()
        before = model(x)
        assert sum(1 for _ in walk_layers(model, x, (0, 1))) == 2
        assert torch.is_grad_enabled()
        assert torch.equal(before, model(x))


class TestRollout:
    def test_equals_a_loop_over_tokens(self) -> None:
        """One sum at a time, for divided attention: half of what a token holds stays, half is taken from others."""
        model, x = make("divided"), clip(4)
        held = [[float(i == j) for j in range(19)] for i in range(19)]
        for _, layer in walk_layers(model, x, (0, 1)):
            for step in layer.steps:
                weight = step.mean(dim=0).tolist()
                held = [
                    [0.5 * held[i][j] + 0.5 * sum(weight[i][k] * held[k][j] for k in range(19)) for j in range(19)]
                    for i in range(19)
                ]
        [row] = _rollout_rows(model, x, [4], (1,))
        assert torch.allclose(row, torch.tensor(held[4]), atol=1e-5)

    @pytest.mark.parametrize("scheme", TINY)
    def test_sums_to_one_after_every_layer(self, scheme: str) -> None:
        rows = _rollout_rows(make(scheme), clip(), [0], (0, 1))
        assert torch.allclose(torch.stack(rows).sum(dim=1), torch.ones(2), atol=1e-5)
        assert not torch.allclose(rows[0], rows[1], atol=1e-3)

    def test_of_approximations_too(self) -> None:
        weights = torch.tensor([[0.5, -0.1], [0.2, 0.2]])
        assert torch.allclose(_with_residual(weights), torch.tensor([[1.0, 0.0], [0.25, 0.75]]))


class TestMaps:
    def test_shares_and_maps_make_the_weights_again(self) -> None:
        row = torch.rand(2 + 12)
        found = split_row(row, 3, 2)
        assert torch.allclose(found.space.sum(dim=1), torch.ones(3, dtype=torch.float64))
        assert found.mass.sum().item() == pytest.approx(1.0)
        assert torch.allclose(found.weights.flatten(), (row[2:] / row[2:].sum()).double(), atol=1e-6)
        assert found.prefix == pytest.approx(float(row[:2].sum() / row.sum()))

    def test_a_frame_of_hardly_any_weight_keeps_its_map(self) -> None:
        row = torch.tensor([1e-42, 3e-42, 0.5, 0.5])
        assert split_row(row, 2, 0).space[0].tolist() == pytest.approx([0.25, 0.75], rel=1e-3)

    def test_a_frame_without_weight_is_unknown(self) -> None:
        found = split_row(torch.tensor([0.0, 0.0, 1.0, 3.0]), 2, 0)
        assert found.space.tolist() == [[0.5, 0.5], [0.25, 0.75]]
        assert found.mass.tolist() == [0.0, 1.0]

    def test_negative_weights_of_approximations_count_as_none(self) -> None:
        assert split_row(torch.tensor([-1.0, 1.0, 1.0, 2.0]), 2, 0).mass.tolist() == [0.25, 0.75]

    def test_nothing_at_all_is_an_error(self) -> None:
        with pytest.raises(TraceError, match="all patches are zero"):
            split_row(torch.tensor([1.0, 0.0, 0.0]), 1, 1)
