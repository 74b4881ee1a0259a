"""Every way to compute softmax attention: against loops, and the invariants that all of them share."""

import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import load_file
from torch import Tensor

from motionformer import create_model
from motionformer.attention import (
    AttentionKernel,
    ExactAttention,
    NystromAttention,
    OrthoformerAttention,
    PerformerAttention,
    SpaceTimeNormAttention,
    segment_means,
    select_prototypes,
)
from motionformer.attention.nystrom import _iterative_inverse
from motionformer.attention.orthoformer import _lloyd_step
from tests.literal.loops import loop_attend
from tests.parity_files import PARITY, close

D = 8


def qkv(n: int = 24, m: int = 24, b: int = 2, h: int = 3, dtype: torch.dtype = torch.float64) -> tuple[Tensor, ...]:
    return tuple(torch.randn(b, h, size, D, dtype=dtype) for size in (n, m, m))


ALL = {
    "exact": lambda: ExactAttention(),
    "norm_st": lambda: SpaceTimeNormAttention(),
    "orthoformer": lambda: OrthoformerAttention(6),
    "orthoformer-improved": lambda: OrthoformerAttention.improved(6),
    "orthoformer-random": lambda: OrthoformerAttention(6, choice="random"),
    "orthoformer-segments": lambda: OrthoformerAttention(6, choice="segments"),
    "orthoformer-per-frame": lambda: OrthoformerAttention(3, shared=False),
    "orthoformer-both": lambda: OrthoformerAttention(6, candidates="queries+keys", subsample=2),
    "nystrom": lambda: NystromAttention(6),
    "performer": lambda: PerformerAttention(D, 64).double(),
}
every = pytest.mark.parametrize("kernel", [pytest.param(make, id=name) for name, make in ALL.items()])


def made(make: object) -> AttentionKernel:
    return make().eval()  # type: ignore[operator]


@pytest.mark.parametrize("frames", [1, 2, 4])
def test_exact_equals_the_loop(frames: int) -> None:
    q, k, v = qkv()
    torch.testing.assert_close(ExactAttention()(q, k, v, frames), loop_attend(q, k, v, frames))


def test_exact_with_mask_and_bias_equals_the_loop() -> None:
    q, k, v = qkv(n=10)
    mask = torch.rand(2, 24) > 0.3
    mask[0, 6:12] = False  # a whole frame is hidden
    bias = torch.randn(2, 24, dtype=torch.float64)
    found = ExactAttention()(q, k, v, 4, key_mask=mask, key_bias=bias)
    expected = loop_attend(q, k, v, 4, bias.masked_fill(~mask, -float("inf")))
    torch.testing.assert_close(found, expected)
    assert bool((found[0, :, :, 1] == 0).all())


def test_one_frame_is_scaled_dot_product_attention() -> None:
    q, k, v = qkv(dtype=torch.float32)
    torch.testing.assert_close(ExactAttention()(q, k, v, 1)[:, :, :, 0], F.scaled_dot_product_attention(q, k, v))


def test_norm_st_sums_to_joint_attention_over_frames() -> None:
    q, k, v = qkv()
    pooled = SpaceTimeNormAttention()(q, k, v, 4)
    torch.testing.assert_close(pooled.sum(dim=3), F.scaled_dot_product_attention(q, k, v))
    assert not torch.allclose(pooled[:, :, :, 0], pooled[:, :, :, 1])


@every
def test_shape_and_repeatable_evaluation(kernel: object) -> None:
    q, k, v = qkv()
    one = made(kernel)
    first = one(q, k, v, 4)
    torch.manual_seed(99)
    assert first.shape == (2, 3, 24, 4, D)
    assert torch.equal(first, one(q, k, v, 4))


@every
def test_weights_of_each_query_sum_to_one(kernel: object) -> None:
    q, k, v = qkv()
    one = made(kernel)
    maps = one.maps(q, k, 4)(q)
    assert maps.shape == (2, 3, 24, 4, 6)
    total = maps.sum(dim=(3, 4)) if isinstance(one, SpaceTimeNormAttention) else maps.sum(dim=4)
    # a ridge shrinks the weights a little, an iterated inverse is not quite the inverse
    inexact = isinstance(one, NystromAttention) or (isinstance(one, OrthoformerAttention) and one.ridge > 0)
    tolerance = 0.15 if inexact else 1e-6
    torch.testing.assert_close(total, torch.ones_like(total), atol=tolerance, rtol=0)
    pooled = torch.einsum("bhnfs,bhfsd->bhnfd", maps, v.unflatten(2, (4, 6)))
    torch.testing.assert_close(pooled, one(q, k, v, 4), atol=1e-6, rtol=1e-5)


@every
def test_chunks_of_queries_give_the_same(kernel: object) -> None:
    q, k, v = qkv()
    pool = made(kernel).prepare(q, k, v, 4)
    whole = pool(q)
    parts = torch.cat([pool(part) for part in q.split(5, dim=2)], dim=2)
    torch.testing.assert_close(parts, whole)


@every
def test_padding_changes_nothing(kernel: object) -> None:
    """Tokens appended to each frame and masked out leave the real queries' values as they were."""
    q, k, v = qkv()
    one = made(kernel)
    if isinstance(one, OrthoformerAttention) and (one.subsample or one.choice == "random"):
        pytest.skip("which candidates are drawn depends on their number")
    expected = one(q, k, v, 4)

    def pad(x: Tensor) -> Tensor:
        junk = 100 * torch.randn(2, 3, 4, 2, D, dtype=x.dtype)
        return torch.cat((x.unflatten(2, (4, 6)), junk), dim=3).flatten(2, 3)

    mask = torch.tensor([True] * 6 + [False] * 2).repeat(4).expand(2, -1)
    found = one(pad(q), pad(k), pad(v), 4, key_mask=mask, query_mask=mask)
    found = found.unflatten(2, (4, 8))[:, :, :, :6].flatten(2, 3)
    torch.testing.assert_close(found, expected)


@every
def test_a_hidden_frame_is_seen_by_nobody(kernel: object) -> None:
    """What stands in a wholly masked frame changes no query that is not masked, and its own pooled values are zero."""
    q, k, v = qkv()
    one = made(kernel)
    mask = torch.ones(2, 24, dtype=torch.bool)
    mask[0, 6:12] = False
    mask[1, :12] = False

    def with_junk(x: Tensor) -> Tensor:
        return torch.where(mask[:, None, :, None], x, 100 * torch.randn_like(x))

    expected = one(q, k, v, 4, key_mask=mask, query_mask=mask)
    found = one(with_junk(q), with_junk(k), with_junk(v), 4, key_mask=mask, query_mask=mask)
    seen = mask[:, None, :, None, None].expand_as(expected)
    torch.testing.assert_close(found[seen], expected[seen])
    assert (expected[0, :, :, 1] == 0).all()
    assert (expected[0, :, :, 2] != 0).any()


@every
def test_where_everything_is_hidden_nothing_is_pooled(kernel: object) -> None:
    q, k, v = qkv()
    mask = torch.tensor([True, False])[:, None].expand(2, 24)
    found = made(kernel)(q, k, v, 4, key_mask=mask, query_mask=mask)
    assert (found[1] == 0).all()
    assert (found[0] != 0).any()


@every
def test_gradients(kernel: object) -> None:
    q, k, v = (x.requires_grad_() for x in qkv(n=8, m=8, b=1, h=2))
    one = made(kernel)

    assert torch.autograd.gradcheck(lambda v: one(q, k, v, 2), (v,), fast_mode=True)
    if not (isinstance(one, OrthoformerAttention) and one.candidates == "queries+keys"):  # prototypes are constants
        assert torch.autograd.gradcheck(lambda k: one(q, k, v, 2), (k,), fast_mode=True)
    if isinstance(one, ExactAttention | SpaceTimeNormAttention | NystromAttention | PerformerAttention):
        assert torch.autograd.gradcheck(lambda q: one(q, k, v, 2), (q,), fast_mode=True)
    one(q, k, v, 2).sum().backward()
    assert q.grad is not None
    assert bool(q.grad.isfinite().all())


@every
def test_half_precision_is_close(kernel: object) -> None:
    q, k, v = qkv(dtype=torch.float32)
    one = made(kernel).float()
    expected = one(q, k, v, 4)
    found = one(*(x.bfloat16() for x in (q, k, v)), 4)
    assert found.dtype == torch.bfloat16
    assert (found.float() - expected).abs().mean() < 0.1


@every
@pytest.mark.parametrize("how", ["half", "autocast"])
def test_float16_keeps_what_long_queries_find(kernel: object, how: str) -> None:
    """Queries of trained models are long, and the features of a Performer then span more than float16 can say."""
    q, k, v = (x * size for x, size in zip(qkv(dtype=torch.float32), (4, 4, 1), strict=True))
    one = made(kernel).float()
    expected = one(q, k, v, 4)
    if how == "half":
        found = one.half()(q.half(), k.half(), v.half(), 4)
    else:
        with torch.autocast("cpu", torch.float16):
            found = one(q.half(), k.half(), v.half(), 4)
    assert (found.float() - expected).norm() / expected.norm() < 0.05


@every
@pytest.mark.parametrize("shift", [-95.0, 100.0])
def test_what_all_keys_of_a_frame_share_changes_nothing(kernel: object, shift: float) -> None:
    q, k, v = qkv(dtype=torch.float32)
    one = made(kernel).float()
    bias = torch.randn(2, 24)
    moved = bias.unflatten(1, (4, 6)) + shift * torch.tensor([0.0, 1.0, 1.0, 0.5])[:, None]
    if isinstance(one, SpaceTimeNormAttention):  # its frames share a softmax
        moved = bias + shift
    found, expected = (one(q, k, v, 4, key_bias=x.reshape(2, 24)) for x in (moved, bias))
    torch.testing.assert_close(found, expected, atol=1e-4, rtol=1e-4)


@every
def test_an_empty_batch_stays_empty(kernel: object) -> None:
    assert made(kernel)(*qkv(b=0), 4).shape == (0, 3, 24, 4, D)


def test_nystrom_takes_queries_of_no_grid() -> None:
    q, k, v = qkv(n=3)
    found = NystromAttention(8)(q, k, v, 4)
    torch.testing.assert_close(found, ExactAttention()(q, k, v, 4), atol=2.0, rtol=0)  # three landmarks: a rough answer
    assert found.shape == (2, 3, 3, 4, D)


def test_a_generator_decides_every_draw() -> None:
    q, k, v = qkv()
    for options in ({"choice": "random"}, {"choice": "orthogonal"}, {"subsample": 2}):
        draws = []
        for _ in range(2):
            generator = torch.Generator().manual_seed(7)
            torch.seed()
            draws.append(OrthoformerAttention(4, generator=generator, **options).train()(q, k, v, 2))
        assert torch.equal(*draws)
    other = OrthoformerAttention(4, choice="random", generator=torch.Generator().manual_seed(8)).train()(q, k, v, 2)
    first = OrthoformerAttention(4, choice="random", generator=torch.Generator().manual_seed(7)).train()(q, k, v, 2)
    assert not torch.equal(first, other)


def test_released_random_start_can_be_had() -> None:
    q, k, v = qkv(n=200, m=200)
    released = OrthoformerAttention(4, deterministic_eval=False).eval()
    assert not torch.equal(released(q, k, v, 2), released(q, k, v, 2))


def test_all_queries_as_prototypes_converge_to_exact_with_ridge() -> None:
    q, k, v = qkv(n=16, m=16)
    exact = ExactAttention()(q, k, v, 2)
    errors = [(OrthoformerAttention(16, ridge=r).eval()(q, k, v, 2) - exact).norm() for r in (1e-2, 1e-5, 1e-9)]
    assert errors[0] > errors[1] > errors[2]
    assert errors[2] < 1e-5 * exact.norm()


def test_improved_orthoformer_is_closer_than_plain() -> None:
    q, k, v = (torch.randn(1, 4, 256, 32) for _ in range(3))
    q, k = 2 * q, 2 * k
    exact = ExactAttention()(q, k, v, 4)
    plain, improved = (
        (kernel.eval()(q, k, v, 4) - exact).norm()
        for kernel in (OrthoformerAttention(64), OrthoformerAttention.improved(64))
    )
    assert improved < plain


def test_per_frame_prototypes_come_from_their_own_frame() -> None:
    """Each frame's prototypes are its own queries: one prototype a place of a frame makes that frame exact."""
    q, k, v = qkv(n=12, m=12)
    found = OrthoformerAttention(3, shared=False, ridge=1e-10).eval()(q, k, v, 4)
    exact = ExactAttention()(q, k, v, 4)
    for frame in range(4):  # queries of frame g are among the prototypes of frame g only
        own = slice(3 * frame, 3 * frame + 3)
        torch.testing.assert_close(found[:, :, own, frame], exact[:, :, own, frame], atol=1e-6, rtol=1e-5)


def test_performer_approaches_exact_with_more_features() -> None:
    q, k, v = (0.7 * x for x in qkv())
    exact = ExactAttention()(q, k, v, 2)
    generator = torch.Generator().manual_seed(0)
    few, many = (
        (PerformerAttention(D, m, generator=generator).double()(q, k, v, 2) - exact).norm() for m in (64, 64 * 256)
    )
    assert many < few / 4  # a 16th, were the error all noise; a bias in the directions would stay


def test_per_frame_prototypes_need_whole_frames_of_queries() -> None:
    q, k, v = qkv(n=7, m=8)
    with pytest.raises(ValueError, match="7 queries do not divide into 2 frames"):
        OrthoformerAttention(2, shared=False)(q, k, v, 2)


def test_wrong_choices_say_what_there_is(run_python) -> None:  # type: ignore[no-untyped-def]
    out = run_python(
        """
from motionformer import OrthoformerAttention
for options in ({"choice": "best"}, {"candidates": "keys"}):
    try:
        OrthoformerAttention(4, **options)
    except ValueError as error:
        print(error)
"""
    )
    assert "'orthogonal', 'random' or 'segments', not 'best'" in out
    assert "'queries' or 'queries+keys', not 'keys'" in out


FEWER = {
    "orthoformer": (6, lambda r: OrthoformerAttention(r)),
    "orthoformer-random": (6, lambda r: OrthoformerAttention(r, choice="random")),
    "orthoformer-segments": (6, lambda r: OrthoformerAttention(r, choice="segments")),
    "orthoformer-per-frame": (3, lambda r: OrthoformerAttention(r, shared=False)),
    "orthoformer-both": (14, lambda r: OrthoformerAttention(r, candidates="queries+keys")),
    "nystrom": (6, lambda r: NystromAttention(r)),
}


@pytest.mark.parametrize(("most", "make"), [pytest.param(*case, id=name) for name, case in FEWER.items()])
def test_more_prototypes_than_tokens_are_all_tokens(most: int, make) -> None:  # type: ignore[no-untyped-def]
    """Six queries and eight keys, as the groups of divided attention, whose keys also hold the class token."""
    q, k, v = qkv(n=6, m=8)
    assert torch.equal(make(128).eval()(q, k, v, 2), make(most).eval()(q, k, v, 2))
    assert not torch.equal(make(most - 1).eval()(q, k, v, 2), make(most).eval()(q, k, v, 2))


@pytest.mark.parametrize("make", [OrthoformerAttention, NystromAttention])
def test_no_prototypes_are_refused_at_once(make) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(ValueError, match=">= 1, got 0"):
        make(0)


def test_refined_prototypes_are_the_means_of_what_is_nearest_to_them() -> None:
    """One Lloyd step and logits corrected for the norm, in loops; padding belongs to no prototype."""
    b, n, r = 2, 21, 5
    q, k, v = qkv(n=n, m=n, b=b, h=1)
    mask = torch.rand(b, n) > 0.2
    kernel = OrthoformerAttention(r, choice="random", refine=True).eval()
    found = kernel(q, k, v, 3, query_mask=mask)
    for i in range(b):
        scaled, keys = q[i, 0] * D**-0.25, k[i, 0] * D**-0.25
        real = [j for j in range(n) if mask[i, j]]
        chosen = select_prototypes(scaled[None], r, choice="random", mask=mask[i : i + 1], deterministic=True)[0]
        nearest = {j: min(range(r), key=lambda p, j=j: float((scaled[j] - scaled[chosen[p]]).norm())) for j in real}
        prototypes = []
        for p in range(r):
            members = [scaled[j] for j in real if nearest[j] == p]
            prototypes.append(torch.stack(members).mean(dim=0) if members else scaled[chosen[p]])
        assert any(list(nearest.values()).count(p) > 1 for p in range(r))  # a mean is not its own token
        for f in range(3):
            own = slice(7 * f, 7 * f + 7)
            held = torch.stack([(p @ keys[own].T).softmax(-1) @ v[i, 0, own] for p in prototypes])
            for j in range(n):
                logits = torch.stack([scaled[j] @ p - p @ p / 2 for p in prototypes])
                torch.testing.assert_close(found[i, 0, j, f], logits.softmax(-1) @ held)


def test_a_prototype_that_is_nearest_to_none_stays() -> None:
    tokens = torch.tensor([[[0.0], [1.0], [2.0]]])
    moved = _lloyd_step(torch.tensor([[[0.4], [-50.0]]]), tokens, None)
    torch.testing.assert_close(moved, torch.tensor([[[1.0], [-50.0]]]))


class TestRelease:
    """Single functions of the authors' release (tests/parity/fixtures.json says what each file is)."""

    def test_nystrom(self) -> None:
        file = load_file(PARITY / "mod_nystrom_spatial_L9.safetensors")
        q, k, v = (file[name][:, None] for name in "qkv")
        close(NystromAttention(9)(q, k, v, 4)[:, 0], file["output"])
        close(NystromAttention(9).maps(q, k, 4)(q)[:, 0], file["attn"])

    @pytest.mark.parametrize("case", ["case1", "case3", "case5"])
    def test_nystrom_landmarks_that_do_not_divide_the_tokens(self, case: str) -> None:
        file = load_file(PARITY / "mod_nystrom_uneven.safetensors")
        frames, landmarks = file[f"{case}.output"].shape[2], file[f"{case}.key_means"].shape[1]
        assert file[f"{case}.q"].shape[1] % landmarks
        q, k, v = (file[f"{case}.{name}"][:, None] for name in "qkv")
        found, expected = NystromAttention(landmarks)(q, k, v, frames)[:, 0], file[f"{case}.output"]
        assert (found - expected).norm() <= 1e-5 * expected.norm()
        assert (found - expected).abs().max() <= 5e-5
        for x, means in ((k[:, 0], "key_means"), (q[:, 0] * q.shape[-1] ** -0.5, "query_means")):
            by_place = x.unflatten(1, (frames, -1)).transpose(1, 2).flatten(1, 2)
            assert (segment_means(by_place, landmarks) - file[f"{case}.{means}"]).abs().max() <= 1e-6

    def test_nystrom_landmarks_of_models_are_constants_for_the_gradient(self) -> None:
        """So they are in the release; what is left is the gradient with the landmarks given."""
        kernel = create_model("motionformer-tiny", depth=1, kernel="nystrom").blocks[0].attn.kernel
        assert isinstance(kernel, NystromAttention)
        assert kernel.constant_landmarks
        kernel.num_landmarks = 5
        q, k, v = (x.requires_grad_() for x in qkv())
        kernel(q, k, v, 4).square().sum().backward()
        for inputs, kept in (((q, k), True), ((q, k), False)):
            free = NystromAttention(5, constant_landmarks=kept)
            grads = torch.autograd.grad(free(q, k, v, 4).square().sum(), inputs)
            assert all(torch.allclose(x.grad, grad) == kept for x, grad in zip(inputs, grads, strict=True))

    def test_iterative_inverse(self) -> None:
        file = load_file(PARITY / "mod_iterative_inv.safetensors")
        close(_iterative_inverse(file["mat"], 6), file["out_exact"])

    def test_performer(self) -> None:
        file = load_file(PARITY / "mod_performer_m256.safetensors")
        q, k, v = (file[name].unflatten(0, (2, 3)) for name in "qkv")
        kernel = PerformerAttention(16)
        kernel.projection.copy_(file["projection"])
        close(kernel(q, k, v, 4).flatten(0, 1), file["output"])

    def test_orthoformer(self) -> None:
        file = load_file(PARITY / "mod_orthoformer_shared_L4.safetensors")
        chosen = select_prototypes(file["q"], 4, start=file["start"])
        assert torch.equal(chosen.sort(dim=-1).values, file["selected_sorted"])
        q, k, v = (file[name][:, None] for name in "qkv")
        kernel = OrthoformerAttention(4).eval()
        prototypes = torch.take_along_dim(file["q"], chosen[..., None], dim=1)
        kernel._choose = lambda q, *rest: prototypes[:, None, None] * q.shape[-1] ** -0.25  # type: ignore[method-assign]
        close(kernel(q, k, v, 4)[:, 0], file["output"])
        close(kernel.maps(q, k, 4)(q)[:, 0], file["attn"])
