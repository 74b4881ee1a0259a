"""The model: padding changes nothing for any kernel, the mean is over real tokens, two texts are two texts."""

import pytest
import torch

from motionformer.experiments.lra import COMPARED, TASKS, SequenceClassifier, make_kernel
from motionformer.experiments.lra.model import mean_of_real


@pytest.mark.parametrize("kernel", [*COMPARED, "orthoformer-8-segments", "exact-stored"])
@pytest.mark.parametrize("task", ["listops", "retrieval"])
def test_padding_changes_nothing(kernel: str, task: str) -> None:
    facts = TASKS[task]
    model = SequenceClassifier(facts, kernel).eval().double()
    tokens = torch.randint(1, facts.vocabulary, (3, facts.num_texts, 200))
    tokens[1, :, 140:] = 0
    logits = model(tokens, tokens != 0)
    assert logits.shape == (3, facts.num_classes)
    longer = torch.cat((tokens, torch.zeros_like(tokens[..., :37])), dim=-1)
    torch.testing.assert_close(model(longer, longer != 0), logits)
    short = tokens[1:2, :, :140]
    torch.testing.assert_close(model(short, short != 0), logits[1:2])


def test_what_padding_says_is_never_read() -> None:
    model = SequenceClassifier(TASKS["listops"], "nystrom-8").eval()
    tokens = torch.randint(1, 16, (1, 1, 60))
    mask = torch.arange(60).expand(1, 1, 60) < 40
    other = tokens.clone()
    other[..., 40:] = 3
    torch.testing.assert_close(model(tokens, mask), model(other, mask))
    seen = tokens.clone()
    seen[..., 39] = seen[..., 39] % 15 + 1
    assert not torch.allclose(model(tokens, mask), model(seen, mask))


def test_mean_of_real_equals_the_loop() -> None:
    x, mask = torch.randn(3, 7, 4), torch.rand(3, 7) > 0.4
    mask[:, 0] = True
    expected = torch.stack([row[real].mean(dim=0) for row, real in zip(x, mask, strict=True)])
    torch.testing.assert_close(mean_of_real(x, mask), expected)


def test_the_order_of_two_texts_matters_to_the_head_only() -> None:
    model = SequenceClassifier(TASKS["retrieval"], "exact").eval()
    tokens = torch.randint(1, 257, (2, 2, 20))
    logits = model(tokens, tokens != 0)
    swapped = tokens.flip(1)
    assert not torch.allclose(model(swapped, swapped != 0), logits)
    same = tokens[:, :1].expand(-1, 2, -1)
    torch.testing.assert_close(model(same, same != 0), model(same.flip(1), same != 0))


def test_stored_and_fused_exact_attention_are_one_function() -> None:
    q, k, v = torch.randn(3, 1, 2, 30, 8)
    torch.testing.assert_close(make_kernel("exact", 8)(q, k, v), make_kernel("exact-stored", 8)(q, k, v))


@pytest.mark.parametrize("name", ["orthoformer", "linformer-64", "orthoformer-0", "exact-64", "orthoformer-64-better"])
def test_unknown_attends_are_refused(name: str) -> None:
    with pytest.raises(ValueError, match=f"not '{name}'"):
        make_kernel(name, 32)


@pytest.mark.parametrize("kernel", COMPARED)
def test_every_weight_gets_a_gradient(kernel: str) -> None:
    model = SequenceClassifier(TASKS["listops"], kernel).train()
    tokens = torch.randint(1, 16, (2, 1, 140))
    model(tokens, tokens != 0).square().sum().backward()
    for name, weight in model.named_parameters():
        assert weight.grad is not None, name
        assert bool(weight.grad.isfinite().all()), name
