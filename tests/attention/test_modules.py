"""Joint, divided and trajectory attention: against loops and the release, and everything strangers ask of a block."""

import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import load_file
from torch import Tensor, nn

from motionformer import (
    DividedAttention,
    JointAttention,
    OrthoformerAttention,
    TrajectoryAttention,
    create_model,
    record_attention,
)
from motionformer.attention import NystromAttention, TemporalAverage, TimesformerAttention, temporal
from tests.literal.loops import loop_trajectory
from tests.literal.trajectory import LiteralTrajectoryAttention
from tests.parity_files import PARITY, close

C, H = 24, 3


def module(**options: object) -> TrajectoryAttention:
    return TrajectoryAttention(C, H, **options).double()  # type: ignore[arg-type]


def clip(frames: int = 4, s: int = 5, prefix: int = 1, b: int = 2) -> Tensor:
    return torch.randn(b, prefix + frames * s, C, dtype=torch.float64)


ALL = {
    "joint": lambda p, **o: JointAttention(C, H, **o),
    "time": lambda p, **o: DividedAttention(C, H, along="time", num_prefix_tokens=p, **o),
    "space": lambda p, **o: DividedAttention(C, H, along="space", num_prefix_tokens=p, **o),
    "timesformer-time": lambda p, **o: TimesformerAttention(C, H, along="time", num_prefix_tokens=p, **o),
    "timesformer-space": lambda p, **o: TimesformerAttention(C, H, along="space", num_prefix_tokens=p, **o),
    "trajectory": lambda p, **o: TrajectoryAttention(C, H, num_prefix_tokens=p, **o),
    "trajectory-avg-t": lambda p, **o: TrajectoryAttention(C, H, num_prefix_tokens=p, time=TemporalAverage(), **o),
}
every = pytest.mark.parametrize("make", [pytest.param(make, id=name) for name, make in ALL.items()])


class TestTrajectory:
    @pytest.mark.parametrize("prefix", [0, 1, 3])
    @pytest.mark.parametrize("project_values", [True, False])
    def test_equals_the_loop(self, prefix: int, project_values: bool) -> None:
        ours = module(num_prefix_tokens=prefix, project_values=project_values)
        x = clip(prefix=prefix)
        torch.testing.assert_close(ours(x, 4), loop_trajectory(ours, x, 4, prefix))

    def test_equals_the_literal_equations(self) -> None:
        ours = module()
        x = clip(frames=3, s=7)
        torch.testing.assert_close(LiteralTrajectoryAttention(ours).double()(x, 3), ours(x, 3))

    @pytest.mark.parametrize("chunk", [1, 3, 7, 20, 1000])
    @pytest.mark.parametrize("recompute", [True, False])
    def test_chunks_and_recomputation_change_nothing(self, chunk: int, recompute: bool) -> None:
        whole, chunked = module(chunk_size=1000), module(chunk_size=chunk, recompute=recompute)
        chunked.load_state_dict(whole.state_dict())
        x = clip()
        gradients = []
        for one in (whole, chunked):
            one.zero_grad()
            inputs = x.clone().requires_grad_()
            out = one(inputs, 4)
            out.square().sum().backward()
            gradients.append((out, inputs.grad, *(p.grad for p in one.parameters())))
        for expected, found in zip(*gradients, strict=True):
            torch.testing.assert_close(found, expected)

    def test_one_frame_is_plain_attention_then_a_value_projection(self) -> None:
        """With one frame the softmax over time is one: pooled, value-projected, output-projected."""
        ours = module(num_prefix_tokens=0)
        x = clip(frames=1, prefix=0)
        q, k, v = (part.unflatten(-1, (H, -1)).transpose(1, 2) for part in ours.qkv(x).chunk(3, dim=-1))
        pooled = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)
        torch.testing.assert_close(ours(x, 1), ours.proj(ours.time.to_value(pooled)))

    def test_avg_t_is_the_mean_of_the_trajectory(self) -> None:
        ours = module(time=TemporalAverage(), num_prefix_tokens=0)
        x = clip(prefix=0)
        q, k, v = (part.unflatten(-1, (H, -1)).transpose(1, 2) for part in ours.qkv(x).chunk(3, dim=-1))
        mean = ours.kernel(q, k, v, 4).mean(dim=3).transpose(1, 2).flatten(2)
        torch.testing.assert_close(ours(x, 4), ours.proj(mean))
        assert not list(ours.time.parameters())

    @pytest.mark.parametrize("project_values", [True, False])
    def test_gradients(self, project_values: bool) -> None:
        """Every entry of every Jacobian. The module is tiny: a `gradcheck` that fails takes the long way round."""
        ours = TrajectoryAttention(4, 2, project_values=project_values, chunk_size=3).double()
        x = torch.randn(1, 1 + 2 * 2, 4, dtype=torch.float64, requires_grad=True)
        assert torch.autograd.gradcheck(lambda x, *_: ours(x, 2), (x, *ours.parameters()))

    def test_gradients_through_prototypes(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Prototypes are constants for the gradient: with fixed ones, it is that of finite differences."""
        kernel = OrthoformerAttention(3)
        fixed = torch.randn(1, 2, 1, 3, 2, dtype=torch.float64)
        monkeypatch.setattr(kernel, "_choose", lambda *inputs: fixed)
        ours = TrajectoryAttention(4, 2, kernel=kernel).double().eval()
        x = torch.randn(1, 1 + 2 * 3, 4, dtype=torch.float64, requires_grad=True)
        assert torch.autograd.gradcheck(lambda x: ours(x, 2), (x,))

    def test_a_hidden_own_frame_is_not_seen(self) -> None:
        """Queries of frame 3 look into a context whose frame 3 is padding: what that holds changes nothing."""
        ours, x, context = module(), clip(), clip()
        mask = torch.ones(2, 21, dtype=torch.bool)
        mask[:, -5:] = False
        found = ours(x, 4, context=context, key_mask=mask)
        context[:, -5:] = 7.0
        torch.testing.assert_close(ours(x, 4, context=context, key_mask=mask), found)

    def test_torch_func_gives_gradients_of_each_clip(self) -> None:
        ours, x = module(), clip()
        weights = dict(ours.named_parameters())

        def loss(weights: dict[str, Tensor], one: Tensor) -> Tensor:
            return torch.func.functional_call(ours, weights, (one[None], 4)).square().sum()

        each = torch.func.vmap(torch.func.grad(loss), in_dims=(None, 0), randomness="error")(weights, x)
        ours(x, 4).square().sum().backward()
        for name, parameter in ours.named_parameters():
            torch.testing.assert_close(each[name].sum(dim=0), parameter.grad)

    def test_tensors_without_data_will_do(self) -> None:
        with torch.device("meta"):
            assert TrajectoryAttention(C, H)(torch.empty(2, 21, C), 4).shape == (2, 21, C)

    @pytest.mark.parametrize("block_elements", [1 << 20, 2 * 2 * H * C])  # one block, and blocks of two queries
    def test_written_out_backward_equals_autograd(self, block_elements: int, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(temporal, "_BLOCK_ELEMENTS", block_elements)
        tokens = torch.randn(2, 3, 5, C, dtype=torch.float64)
        weights = [torch.randn(C, C), torch.randn(C), torch.randn(H, C // H, C), torch.randn(H, C // H, C)]
        own = torch.tensor([0, 1, 2, 0, 1])
        bias = torch.tensor([[0.0, -1.0, 0.3], [0.0, 0.0, -1e30]], dtype=torch.float64)
        for with_value in (True, False):
            results = []
            for fast in (True, False):
                inputs = [x.double().clone().requires_grad_() for x in (tokens, *weights)]
                x, to_query, query_bias, to_key, to_value = inputs
                value = to_value if with_value else None
                projections = temporal._Projections(to_query, query_bias, to_key, value)
                attend = temporal._memory_efficient_temporal_attention if fast else temporal._temporal_attention
                out = attend(x, own, projections, bias)
                out.square().sum().backward()
                results.append([out, *(i.grad for i in inputs[: 5 if with_value else 4])])
            for found, expected in zip(*results, strict=True):
                torch.testing.assert_close(found, expected)

    def test_queries_may_sit_elsewhere(self) -> None:
        """Separate queries with their own frames: a subset of the tokens gets what it got among all."""
        ours = module()
        x = clip()
        picked = torch.tensor([0, 3, 9, 17])  # the class token, and patches of frames 0, 1, 3
        found = ours(x[:, picked], 4, context=x, query_frames=(picked[1:] - 1) // 5)
        torch.testing.assert_close(found, ours(x, 4)[:, picked])
        with pytest.raises(ValueError, match="query_frames has 2 entries for 3 patch queries"):
            ours(x[:, picked], 4, context=x, query_frames=torch.tensor([0, 1]))

    @pytest.mark.parametrize("variant", ["orig", "fixedv"])
    def test_release(self, variant: str) -> None:
        file = load_file(PARITY / f"mod_trajattn_{variant}.safetensors")
        ours = TrajectoryAttention(C, H, project_values=variant == "fixedv")
        state = {name.removeprefix("weights."): value for name, value in file.items() if name.startswith("weights.")}
        key_value, key_value_bias = state.pop("proj_kv.weight"), state.pop("proj_kv.bias")
        state = {name.replace("proj_q", "time.to_query"): value for name, value in state.items()}
        state["time.to_key.weight"] = key_value[:C]
        if variant == "fixedv":
            state |= {"time.to_value.weight": key_value[C:], "time.to_value.bias": key_value_bias[C:]}
        ours.load_state_dict(state)
        with record_attention(ours) as records:
            close(ours(file["input"], 4), file["output"])
        close(records[""].time, file["temporal_weights"])


class TestEvery:
    """What holds for all modules alike."""

    @every
    def test_permuting_patches_permutes_the_output(self, make) -> None:  # type: ignore[no-untyped-def]
        one = make(1).double()
        x = clip()
        order = torch.randperm(5)
        shuffled = torch.cat((x[:, :1], x[:, 1:].unflatten(1, (4, 5))[:, :, order].flatten(1, 2)), dim=1)
        out = one(x, 4)
        expected = torch.cat((out[:, :1], out[:, 1:].unflatten(1, (4, 5))[:, :, order].flatten(1, 2)), dim=1)
        torch.testing.assert_close(one(shuffled, 4), expected)

    @every
    @pytest.mark.parametrize("prefix", [0, 1, 4])
    def test_any_number_of_prefix_tokens_and_any_grid(self, make, prefix: int) -> None:  # type: ignore[no-untyped-def]
        one = make(prefix).double()
        for frames, s in ((1, 6), (5, 1), (3, 4)):
            assert one(clip(frames, s, prefix), frames).shape == (2, prefix + frames * s, C)

    @every
    def test_padded_tokens_change_nothing(self, make) -> None:  # type: ignore[no-untyped-def]
        one = make(1).double()
        x = clip()
        padded = torch.cat((x[:, 1:].unflatten(1, (4, 5)), 50 * torch.randn(2, 4, 2, C)), dim=2).flatten(1, 2)
        padded = torch.cat((x[:, :1], padded), dim=1)
        mask = torch.cat((torch.tensor([True]), torch.tensor([True] * 5 + [False] * 2).repeat(4))).expand(2, -1)
        found = one(padded, 4, key_mask=mask)[mask].reshape(2, -1, C)
        torch.testing.assert_close(found, one(x, 4))

    @every
    def test_whole_padded_frames_change_nothing(self, make) -> None:  # type: ignore[no-untyped-def]
        one = make(1).double()
        x = clip()
        padded = torch.cat((x, 50 * torch.randn(2, 10, C)), dim=1)
        mask = torch.tensor([True] * 21 + [False] * 10).expand(2, -1)
        found = one(padded, 6, key_mask=mask)[:, :21]
        torch.testing.assert_close(found, one(x, 4))

    @every
    def test_a_bias_of_minus_infinity_is_a_mask(self, make) -> None:  # type: ignore[no-untyped-def]
        one = make(1).double()
        x = clip()
        mask = torch.rand(2, 21) > 0.4
        bias = torch.zeros(2, 21, dtype=torch.float64).masked_fill(~mask, -float("inf"))
        torch.testing.assert_close(one(x, 4, key_bias=bias), one(x, 4, key_mask=mask))
        soft = torch.randn(2, 21, dtype=torch.float64, requires_grad=True)
        out = one(x, 4, key_bias=soft)
        assert not torch.allclose(out, one(x, 4))
        out.sum().backward()
        assert bool(soft.grad.isfinite().all())

    @every
    def test_nothing_visible_is_finite(self, make) -> None:  # type: ignore[no-untyped-def]
        one = make(1).double()
        x = clip().requires_grad_()
        out = one(x, 4, key_mask=torch.zeros(2, 21, dtype=torch.bool))
        out.sum().backward()
        assert bool(out.isfinite().all())
        assert bool(x.grad.isfinite().all())

    @every
    def test_context_equal_to_the_input_is_self_attention(self, make) -> None:  # type: ignore[no-untyped-def]
        one = make(1).double()
        x = clip()
        torch.testing.assert_close(one(x, 4, context=x), one(x, 4))
        assert not torch.allclose(one(x, 4, context=clip()), one(x, 4))

    @every
    def test_dropout_only_in_training(self, make) -> None:  # type: ignore[no-untyped-def]
        one = make(1, dropout=0.5).double()
        x = clip()
        assert not torch.equal(one(x, 4), one(x, 4))
        assert torch.equal(one.eval()(x, 4), one(x, 4))

    @every
    def test_bf16_autocast_is_close(self, make) -> None:  # type: ignore[no-untyped-def]
        one = make(1)
        x = clip().float().requires_grad_()
        expected = one(x, 4)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            found = one(x, 4)
        assert found.dtype == torch.bfloat16
        torch.testing.assert_close(found.float(), expected, atol=2e-2, rtol=2e-2)
        found.float().sum().backward()
        assert all(bool(p.grad.isfinite().all()) for p in one.parameters())

    @every
    def test_no_bias_and_wrong_sizes(self, make) -> None:  # type: ignore[no-untyped-def]
        assert make(1, bias=False).qkv.bias is None
        if not isinstance(make(1), JointAttention):
            with pytest.raises(ValueError, match="leave 21 patch tokens, which do not divide into 4 frames"):
                make(1)(torch.zeros(1, 22, C), 4)

    @every
    @pytest.mark.parametrize("kernel", [NystromAttention, OrthoformerAttention])
    def test_more_prototypes_than_tokens_of_a_group(self, make, kernel) -> None:  # type: ignore[no-untyped-def]
        """The groups of divided attention are small, and have one key more than queries: the class token."""
        one = make(1, kernel=kernel(128)).double().eval()
        x = clip()
        out = one(x, 4)
        assert out.shape == x.shape
        mask = torch.ones(2, 21, dtype=torch.bool)
        torch.testing.assert_close(one(x, 4, key_mask=mask), out)

    def test_heads_must_divide(self) -> None:
        with pytest.raises(ValueError, match=r"`dim` \(10\) must be divisible by `num_heads` \(4\)"):
            JointAttention(10, 4)


@every
def test_an_empty_batch_stays_empty(make) -> None:  # type: ignore[no-untyped-def]
    mask = torch.ones(0, 21, dtype=torch.bool)
    assert make(1).double()(clip(b=0), 4, key_mask=mask).shape == (0, 21, C)


class TestRecord:
    @every
    def test_recording_changes_nothing_and_leaves_nothing(self, make) -> None:  # type: ignore[no-untyped-def]
        net = nn.ModuleDict({"layer": make(1)}).double()
        before = {name: type(m) for name, m in net.named_modules()}
        x = clip()
        with record_attention(net) as records:
            out = net["layer"](x, 4)
        assert torch.equal(out, net["layer"](x, 4))
        assert before == {name: type(m) for name, m in net.named_modules()}
        space = records["layer"].space
        torch.testing.assert_close(space.sum(dim=-1), torch.ones_like(space.sum(dim=-1)))

    def test_maps_and_weights_give_the_output(self) -> None:
        """The layer's output from its recorded maps: what is recorded is what was done."""
        ours = module(project_values=False, chunk_size=6)
        x = clip()
        with record_attention(ours) as records:
            out = ours(x, 4)
        record = records[""]
        assert record.space.shape == (2, H, 20, 4, 5)
        assert record.time.shape == (2, H, 20, 4)
        assert record.prefix.shape == (2, H, 1, 1, 21)
        value = ours.qkv(x).chunk(3, dim=-1)[2].unflatten(-1, (H, -1)).transpose(1, 2)
        patches = value[:, :, 1:].unflatten(2, (4, 5))
        pooled = torch.einsum("bhnfs,bhnf,bhfsd->bnhd", record.space, record.time, patches).flatten(2)
        first = torch.einsum("bhpm,bhmd->bphd", record.prefix[:, :, :, 0], value).flatten(2)
        torch.testing.assert_close(ours.proj(torch.cat((first, pooled), dim=1)), out)

    @pytest.mark.parametrize("generator", [None, 3])
    def test_random_draws_and_dropout_are_those_of_the_pass(self, generator: int | None) -> None:
        """In training too, the output follows from the recorded maps; and a second pass replaces the first."""
        own = None if generator is None else torch.Generator().manual_seed(generator)
        kernel = OrthoformerAttention(4, choice="random", dropout=0.3, generator=own)
        ours = JointAttention(C, H, kernel=kernel).double().train()
        with record_attention(ours) as records:
            ours(clip(), 4)
            x = clip()
            out = ours(x, 4)
        value = ours.qkv(x).chunk(3, dim=-1)[2].unflatten(-1, (H, -1)).transpose(1, 2)
        pooled = torch.einsum("bhnfs,bhsd->bnhd", records[""].space, value).flatten(2)
        torch.testing.assert_close(ours.proj(pooled), out)

    def test_what_is_computed_twice_is_recorded_without_gradients_only(self) -> None:
        ours, x = module(recompute=True), clip()
        with record_attention(ours) as records:
            with pytest.raises(ValueError, match="nothing is recorded yet"):
                _ = records[""].space
            with pytest.raises(ValueError, match=r"record it in no_grad\(\)"):
                ours(x, 4)
            with torch.no_grad():
                ours(x, 4)
            assert records[""].space.shape == (2, H, 20, 4, 5)
        model = create_model("motionformer-tiny", checkpointing=True)
        with record_attention(model), pytest.raises(ValueError, match="checkpointing"):
            model(torch.randn(1, 3, 8, 48, 48))

    def test_nothing_to_record(self) -> None:
        with pytest.raises(ValueError, match="Linear has no attention layer"), record_attention(nn.Linear(2, 2)):
            pass


class TestDividedRelease:
    @pytest.mark.parametrize("along", ["time", "space"])
    def test_release(self, along: str) -> None:
        file = load_file(PARITY / "mod_dividedattn.safetensors")
        ours = DividedAttention(C, H, along=along)  # type: ignore[arg-type]
        ours.load_state_dict({n.removeprefix("weights."): v for n, v in file.items() if n.startswith("weights.")})
        close(ours(file["input"], 4), file[f"output_{along}"])
