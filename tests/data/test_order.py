"""Who is visited when, and with which randomness."""

import pytest
import torch

from motionformer.data.datasets import EpochSampler, Visit, _item_generator


def test_an_epoch_visits_everything_once_in_an_order_of_its_own() -> None:
    sampler = EpochSampler(100, shuffle=True, seed=3)
    first = list(sampler)
    assert first == list(sampler)
    assert sorted(visit.index for visit in first) == list(range(100))
    sampler.set_epoch(1)
    second = list(sampler)
    assert {visit.epoch for visit in second} == {1}
    assert [visit.index for visit in first] != [visit.index for visit in second]


def test_processes_share_without_overlap() -> None:
    shares = [list(EpochSampler(103, shuffle=True, rank=rank, num_ranks=4)) for rank in range(4)]
    assert [len(share) for share in shares] == [25] * 4
    assert len({visit.index for share in shares for visit in share}) == 100
    whole = [list(EpochSampler(103, shuffle=False, rank=rank, num_ranks=4)) for rank in range(4)]
    assert sorted(visit.index for share in whole for visit in share) == list(range(103)), "evaluation drops nobody"
    with pytest.raises(ValueError, match="rank 4"):
        EpochSampler(10, shuffle=False, rank=4, num_ranks=4)


def test_a_resumed_epoch_goes_on_where_it_stopped() -> None:
    whole = list(EpochSampler(50, shuffle=True))
    resumed = EpochSampler(50, shuffle=True, num_done=20)
    resumed.set_epoch(0)
    assert list(resumed) == whole[20:]
    resumed.set_epoch(1)
    assert len(resumed) == 50
    assert next(iter(resumed)).epoch == 1


def test_randomness_depends_on_seed_epoch_and_index_alone() -> None:
    keys = [(0, 0, 0), (0, 0, 1), (0, 1, 0), (1, 0, 0)]
    draws = [torch.randint(2**60, (), generator=_item_generator(*key)).item() for key in keys]
    assert len(set(draws)) == 4
    assert draws == [torch.randint(2**60, (), generator=_item_generator(*key)).item() for key in keys]
    assert Visit(0, 1) == Visit(0, 1)
