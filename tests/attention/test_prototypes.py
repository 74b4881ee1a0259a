"""Selecting prototypes: the same indices as the plain loop, whatever the shortcut; padding, draws, segments."""

import pytest
import torch

from motionformer import select_prototypes
from motionformer.attention import prototypes as greedy
from motionformer.attention import segment_means
from tests.literal.selection import literal_selection


@pytest.mark.parametrize(("n", "num"), [(20, 20), (60, 16), (400, 12), (500, 96), (1568, 128)])
def test_same_indices_as_the_literal_loop(n: int, num: int) -> None:
    candidates = torch.randn(5, n, 16, dtype=torch.float64)
    start = torch.randint(n, (5,))
    assert torch.equal(select_prototypes(candidates, num, start=start), literal_selection(candidates, num, start))


def test_same_indices_for_clustered_and_repeated_candidates() -> None:
    """Real queries are bunched: many candidates tie, or nearly."""
    centres = torch.randn(3, 7, 8, dtype=torch.float64)
    candidates = (centres[:, torch.arange(300) % 7] + 0.01 * torch.randn(3, 300, 8)).double()
    start = torch.zeros(3, dtype=torch.long)
    assert torch.equal(select_prototypes(candidates, 40, start=start), literal_selection(candidates, 40, start))


def test_every_way_agrees() -> None:
    unit = torch.nn.functional.normalize(torch.randn(4, 300, 16, dtype=torch.float64), dim=-1)
    start, free = torch.tensor([0, 7, 299, 3]), torch.zeros(4, 300, dtype=torch.float64)
    ways = (greedy._by_gram, greedy._by_lazy_blocks, greedy._by_running_maximum)
    first, *others = [way(unit, 80, start, free) for way in ways]
    for other in others:
        assert torch.equal(first, other)


def test_any_batch_shape_and_fewer_candidates_than_asked() -> None:
    index = select_prototypes(torch.randn(2, 3, 4, 5, 8), 9)
    assert index.shape == (2, 3, 4, 5)
    assert torch.equal(index.sort(dim=-1).values, torch.arange(5).expand(2, 3, 4, 5))
    assert select_prototypes(torch.randn(30, 8), 4).shape == (4,)


@pytest.mark.parametrize("choice", ["orthogonal", "random"])
@pytest.mark.parametrize("subsample", [None, 2])
def test_padding_is_never_selected(choice: str, subsample: int | None) -> None:
    mask = torch.rand(6, 500) > 0.8
    for deterministic in (True, False):
        index = select_prototypes(
            torch.randn(6, 500, 8),
            20,
            choice=choice,  # type: ignore[arg-type]
            mask=mask,
            subsample=subsample,
            deterministic=deterministic,
        )
        assert bool(mask.gather(1, index).all())
        assert all(len(set(row.tolist())) == 20 for row in index)


def test_a_start_is_a_candidate_also_among_a_few() -> None:
    """`subsample` draws the others; the start counts as one of them wherever it stands."""
    candidates = torch.randn(2, 100, 8)
    for start in (3, 50, torch.tensor([99, 0])):
        index = select_prototypes(candidates, 4, start=start, subsample=2, deterministic=True)
        assert index[:, 0].tolist() == (start.tolist() if isinstance(start, torch.Tensor) else [start] * 2)
        assert all(len(set(row.tolist())) == 4 for row in index)


def test_fewer_real_candidates_than_prototypes_repeat() -> None:
    mask = torch.zeros(2, 100, dtype=torch.bool)
    mask[:, 40:43] = True
    for choice in ("orthogonal", "random"):
        index = select_prototypes(torch.randn(2, 100, 8), 10, choice=choice, mask=mask, deterministic=True)  # type: ignore[arg-type]
        assert set(index.flatten().tolist()) == {40, 41, 42}


def test_deterministic_draws_nothing() -> None:
    candidates = torch.randn(2, 300, 8)
    for options in ({}, {"choice": "random"}, {"subsample": 4}):
        state = torch.get_rng_state()
        first = select_prototypes(candidates, 10, deterministic=True, **options)
        assert torch.equal(state, torch.get_rng_state())
        assert torch.equal(first, select_prototypes(candidates, 10, deterministic=True, **options))


def test_prototypes_are_nearly_orthogonal() -> None:
    """16 orthogonal directions, hidden among mixtures with the first, are found."""
    basis = torch.eye(16, dtype=torch.float64)
    mixtures = basis[0] + basis[torch.randint(16, (200,))]
    candidates = torch.cat((mixtures, basis))[None]
    index = select_prototypes(candidates, 16, start=200)
    chosen = torch.nn.functional.normalize(candidates[0, index[0]], dim=-1)
    assert torch.allclose((chosen @ chosen.T).abs(), torch.eye(16, dtype=torch.float64), atol=1e-9)


def test_no_gradient_and_no_nonsense() -> None:
    candidates = torch.randn(1, 50, 8, requires_grad=True)
    assert not select_prototypes(candidates, 5).is_floating_point()
    with pytest.raises(ValueError, match="num >= 1, got 0"):
        select_prototypes(candidates, 0)


def test_segment_means_of_equal_and_unequal_runs() -> None:
    tokens = torch.arange(12.0).reshape(1, 12, 1)
    assert segment_means(tokens, 4).flatten().tolist() == [1.0, 4.0, 7.0, 10.0]
    assert segment_means(tokens[:, :8], 3).flatten().tolist() == [0.5, 3.0, 6.0]  # runs 0–1, 2–4, 5–7: shorter first
    mask = torch.tensor([[True, False] * 6])
    assert segment_means(tokens, 3, mask).flatten().tolist() == [1.0, 5.0, 9.0]
    assert segment_means(tokens, 4, mask).flatten().tolist() == [0.0, 2.0, 5.0, 9.0]  # 0 | 2 | 4, 6 | 8, 10


@pytest.mark.parametrize("num", [1, 3, 7, 12, 29])
def test_segment_means_see_no_padding(num: int) -> None:
    """Padding wherever it stands changes nothing; with fewer real tokens than runs, a run is one of them."""
    mask = torch.rand(30) > 0.4
    tokens = torch.randn(2, 30, 4, dtype=torch.float64)
    found = segment_means(tokens, num, mask.expand(2, 30))
    if num <= int(mask.sum()):
        torch.testing.assert_close(found, segment_means(tokens[:, mask], num))
    else:
        distance = torch.cdist(found, tokens[:, mask])
        assert distance.amin(dim=2).max() < 1e-6
        assert distance.amin(dim=1).max() < 1e-6


@pytest.mark.parametrize("n", [40, 300])
def test_the_operator_keeps_the_promises_that_compiling_relies_on(n: int) -> None:
    """Few candidates, and many, which are searched in another way."""
    unit = torch.nn.functional.normalize(torch.randn(2, n, 8), dim=-1)
    torch.library.opcheck(greedy._select, (unit, 8, torch.zeros(2, dtype=torch.long), torch.zeros(2, n)))
