"""Propagation against a loop over every query and key, its limits, and its independence of chunks."""

import math

import pytest
import torch
from torch import Tensor

from motionformer.tracking import affinity as module
from motionformer.tracking.affinity import Affinity, propagate


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
