"""Propagation against a loop over every query and key, its limits, and its independence of chunks."""

import math
from itertools import count

import pytest
import torch
from torch import Tensor

from motionformer.tracking import propagation as module
from motionformer.tracking.masks import one_hot
from motionformer.tracking.propagation import Affinity, FrameTokens, decide, propagate, propagate_mask, to_grid


@pytest.mark.parametrize("radius", [None, 0, 1, 3])
@pytest.mark.parametrize("top_k", [None, 1, 4])
def test_equals_a_loop(radius: int | None, top_k: int | None) -> None:
    query, keys = torch.randn(2, 5, 6, 3), torch.randn(3, 2, 5, 6, 3)
    labels = torch.rand(3, 4, 5, 6)
    how = Affinity(radius, top_k, 0.7)
    torch.testing.assert_close(propagate(query, keys, labels, how), loop(query, keys, labels, how))


def test_chunks_change_nothing_and_bound_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    query, keys, labels = torch.randn(1, 24, 30, 4), torch.randn(4, 1, 24, 30, 4), torch.rand(4, 2, 24, 30)
    whole = propagate(query, keys, labels, Affinity(radius=5))
    sizes: list[int] = []
    topk = Tensor.topk
    monkeypatch.setattr(Tensor, "topk", lambda self, *a, **k: (sizes.append(self.numel()), topk(self, *a, **k))[1])
    budget = 200_000
    monkeypatch.setattr(module, "BUDGET", budget)
    torch.testing.assert_close(propagate(query, keys, labels, Affinity(radius=5)), whole)
    assert len(sizes) > 4
    assert max(sizes) <= budget


def test_labels_go_where_the_token_went() -> None:
    """Every token is itself, moved by two columns: labels move with them."""
    tokens = torch.nn.functional.normalize(torch.randn(1, 8, 10, 64), dim=-1)
    moved = tokens.roll(2, dims=2)
    label = torch.rand(1, 3, 8, 10).softmax(dim=1)
    out = propagate(moved, tokens[None], label, Affinity(radius=None, top_k=1))
    torch.testing.assert_close(out, label[0].roll(2, dims=2))
    stuck = propagate(moved, tokens[None], label, Affinity(radius=1, top_k=1))
    assert not torch.allclose(stuck, label[0].roll(2, dims=2))


def test_labels_that_sum_to_one_still_do() -> None:
    label = torch.rand(2, 3, 6, 6).softmax(dim=1)
    out = propagate(torch.randn(3, 6, 6, 8), torch.randn(2, 3, 6, 6, 8), label, Affinity())
    torch.testing.assert_close(out.sum(dim=0), torch.ones(6, 6))


@pytest.mark.parametrize("wrong", [{"radius": -1}, {"top_k": 0}, {"temperature": 0.0}])
def test_refuses_nonsense(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="the radius is 0 or more"):
        Affinity(**wrong)


def test_a_weak_label_wins_where_it_is_strongest() -> None:
    """Layers are compared after each is stretched to 0 … 1; one that is the same everywhere wins nowhere."""
    label = torch.full((3, 4, 4), 0.2)
    label[0] = 0.7
    label[0, :, 3] = 0.6  # the background gives way a little in the last column, where object 5 is never ahead of it
    label[1, :, 3] = 0.3
    found = decide(label, [5, 9], (4, 4))
    assert found[:, 3].tolist() == [5] * 4
    assert (found[:, :3] == 0).all()


def test_a_layer_without_differences_is_not_stretched() -> None:
    """Rounding would become a mask; an object that fills the frame would become the background."""
    gone = torch.stack((torch.ones(4, 4), torch.zeros(4, 4)))
    gone[1, 0, 0] = 1e-6
    assert (decide(gone, [5], (8, 8)) == 0).all()
    assert (decide(gone.flip(0), [5], (8, 8)) == 5).all()


def test_without_the_stretch_what_has_left_stays_away() -> None:
    left = torch.stack((torch.full((4, 4), 0.9), torch.full((4, 4), 0.1)))
    left[:, 0, 0] = torch.tensor([0.8, 0.2])
    assert (decide(left, [5], (4, 4)) == 5).any()
    assert (decide(left, [5], (4, 4), stretch=False) == 0).all()


def test_streams_with_a_bounded_context() -> None:
    """An endless video: one frame is read for one mask, and no more tokens are alive than the context holds."""
    import gc
    import weakref

    alive: list[weakref.ref[Tensor]] = []

    def endless() -> object:
        for _ in count():
            key = torch.randn(1, 4, 4, 8)
            alive.append(weakref.ref(key))
            yield FrameTokens(key, key)
            del key

    first = torch.zeros(16, 16, dtype=torch.uint8)
    first[4:12, 4:12] = 1
    masks = propagate_mask(endless(), first, Affinity(), context=3)  # type: ignore[arg-type]
    for _ in range(20):
        next(masks)
    gc.collect()
    assert len(alive) == 20
    assert sum(ref() is not None for ref in alive) <= 1 + 3 + 1


def test_the_first_frame_is_remembered() -> None:
    """Tokens like the first frame's take its labels, even if the frames between had lost the object."""
    tokens = torch.nn.functional.normalize(torch.randn(1, 4, 4, 32), dim=-1)
    noise = [torch.nn.functional.normalize(torch.randn(1, 4, 4, 32), dim=-1) for _ in range(6)]
    first = torch.zeros(16, 16, dtype=torch.uint8)
    first[4:12, 4:12] = 1
    frames = [FrameTokens(key, key) for key in (tokens, *noise, tokens)]
    *_, lost, last = propagate_mask(frames, first, Affinity(top_k=1), context=2)
    expected = decide(to_grid(one_hot(first, [1]), (4, 4)), [1], (16, 16))
    assert torch.equal(last, expected)
    assert not torch.equal(lost, expected)


def loop(query: Tensor, keys: Tensor, labels: Tensor, how: Affinity) -> Tensor:
    heads, height, width, _ = query.shape
    out = torch.zeros(labels.shape[1], height, width)
    for h in range(heads):
        for y in range(height):
            for x in range(width):
                found = []
                for f in range(len(keys)):
                    for v in range(height):
                        for u in range(width):
                            if how.radius is None or max(abs(y - v), abs(x - u)) <= how.radius:
                                logit = float(query[h, y, x] @ keys[f, h, v, u]) / how.temperature
                                found.append((logit, labels[f, :, v, u]))
                best = sorted(found, key=lambda pair: -pair[0])[: how.top_k]
                total = sum(math.exp(logit) for logit, _ in best)
                out[:, y, x] += sum(math.exp(logit) / total * label for logit, label in best) / heads
    return out
