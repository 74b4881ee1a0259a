"""Linear heads solved all at once, folds, and the learning curve."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch.nn import functional as F

from motionformer.data.record import Annotations, Record
from motionformer.finetuning.split import stratified_folds
from motionformer.models.config import InputSpec, ModelConfig
from motionformer.probing.cache import FeatureCache
from motionformer.probing.heads import KINDS, LearntHeads, LinearHeads, Setting
from motionformer.probing.selection import Clips, CurvePoint, add_curve, extrapolate, try_kind


@pytest.mark.parametrize("shape", [(40, 12), (20, 60)])
def test_a_head_is_the_minimum_of_its_loss(shape: tuple[int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    """Against L-BFGS in double precision, on the clips that are included and no others."""
    monkeypatch.setattr("motionformer.probing.heads._STEPS", 300)
    n, d = shape
    features, labels = torch.randn(n, d) * torch.logspace(-1, 1, d) + 3, torch.arange(n) % 3
    included = torch.stack((torch.ones(n, dtype=torch.bool), torch.arange(n) % 4 > 0))
    settings = [Setting(3.0), Setting(30.0)]
    heads = LinearHeads(features, labels, 3)
    found = heads.logits(included, settings)
    cases = [(row, setting, found[m, s]) for m, row in enumerate(included) for s, setting in enumerate(settings)]
    for row, setting, logits in cases:
        count, mean, variance = int(row.sum()), features[row].mean(dim=0), features[row].var(dim=0, correction=0)
        x = ((features - mean) / ((count * variance + 10 * variance.mean()) / (count + 10)).sqrt()).double()
        weight, bias = (torch.zeros(3, d).double().requires_grad_(), torch.zeros(3).double().requires_grad_())
        solver = torch.optim.LBFGS((weight, bias), max_iter=500, tolerance_grad=1e-10, line_search_fn="strong_wolfe")

        def loss(row: torch.Tensor = row, setting: Setting = setting, weight: torch.Tensor = weight) -> torch.Tensor:
            each = F.cross_entropy(x @ weight.T + bias, labels, reduction="none")  # noqa: B023
            return (each * row).sum() + setting.decay / 2 * weight.square().sum()

        def closure() -> float:
            solver.zero_grad()  # noqa: B023
            value = loss()
            value.backward()
            return float(value)

        solver.step(closure)  # type: ignore[arg-type]
        expected = x @ weight.T + bias
        torch.testing.assert_close(
            logits.double().softmax(-1), expected.softmax(-1).detach(), atol=5e-3, rtol=0, check_dtype=False
        )
    state = heads.state(settings[0])
    logits = features @ state["head.classifier.weight"].T + state["head.classifier.bias"]
    torch.testing.assert_close(logits, found[0, 0], atol=1e-3, rtol=1e-3)


def test_a_channel_that_never_changes_does_no_harm() -> None:
    features, labels = torch.randn(20, 5), torch.arange(20) % 2
    features[:, 2] = 7.0
    with_it = LinearHeads(features, labels, 2).logits(torch.ones(1, 20, dtype=torch.bool), [Setting(1.0)])
    without = LinearHeads(features[:, [0, 1, 3, 4]], labels, 2).logits(
        torch.ones(1, 20, dtype=torch.bool), [Setting(1.0)]
    )
    torch.testing.assert_close(with_it, without, atol=0.05, rtol=0.05)


def test_folds_hold_every_record_out_once_and_no_group_apart() -> None:
    records = [Record(Path(f"{i}.mp4"), label=i % 3, group=f"person {i // 6}") for i in range(60)]
    folds = stratified_folds(records, 5, seed=0)
    held = [id(record) for fold in folds for record in records if id(record) in fold]
    assert sorted(held) == sorted(id(record) for record in records)
    for fold in folds:
        inside, outside = ({one.group for one in records if (id(one) in fold) is side} for side in (True, False))
        assert not inside & outside
        counts = [sum(id(one) in fold and one.label == label for one in records) for label in range(3)]
        assert counts == [4, 4, 4]
    alone = [*records, Record(Path("alone.mp4"), label=3)]
    assert not any(id(alone[-1]) in fold for fold in stratified_folds(alone, 5, seed=0))


def test_a_curve_that_halves_its_errors_goes_on_to_halve_them() -> None:
    points = [CurvePoint(2.0**i, 10_000 - 8_000 // 2**i, 10_000) for i in range(1, 6)]
    found = extrapolate(points)
    assert found is not None
    assert found["exponent"] == pytest.approx(1.0, abs=0.01)
    assert found["x2"] == pytest.approx(1 - 125e-4, abs=2e-4)
    assert extrapolate([CurvePoint(2.0**i, 500, 1000) for i in range(1, 6)]) is None
    assert extrapolate(points[:2]) is None


def test_a_head_learns_from_its_clips_and_no_others() -> None:
    """What order the frames come in is learnt with positions of frames, and not without; other clips do not count."""
    config = ModelConfig(
        dim=16, depth=1, num_heads=2, patch=8, tubelet=1, num_prefix_tokens=1, hidden_head=False, num_classes=2,
        readout="cross", readout_depth=1, readout_positions=True, input=InputSpec(frames=2, height=8, width=8),
    )  # fmt: skip
    labels = torch.arange(48) % 2
    a, b = torch.randn(2, 16)
    first = torch.where(labels[:, None] > 0, a, b)
    tokens = torch.stack((torch.zeros(48, 16), first, a + b - first), dim=1) + 0.1 * torch.randn(48, 3, 16)
    included = torch.stack((torch.ones(48, dtype=torch.bool), torch.arange(48) < 24))
    for positions, expected in ((True, 1.0), (False, 0.75)):
        model = replace(config, readout_positions=positions)
        solver = LearntHeads(tokens.half(), labels, model, epochs=30, seed=0)
        right = (solver.logits(included, [Setting(0.05, 1e-2)]).argmax(-1) == labels).float().mean(dim=-1)
        assert (right[0, 0] >= expected) == positions, right
    other = tokens.clone()
    other[24:] = 0.0
    again = LearntHeads(other.half(), labels, model, epochs=30, seed=0)
    one, two = (s.logits(included[1:], [Setting(0.05, 1e-2)])[0, 0, :24] for s in (solver, again))
    torch.testing.assert_close(one, two)


def test_cross_validation_of_noise_is_chance() -> None:
    """Every training clip can be learnt by heart; in the fold that holds it out nothing is known about it."""
    n = 90
    features = object.__new__(FeatureCache)
    features.pooled = lambda kind, clips: torch.randn(n, 200, generator=torch.Generator().manual_seed(1))  # type: ignore[method-assign]
    labels = torch.randint(2, (n,), generator=torch.Generator().manual_seed(2))
    records = tuple(Record(Path(f"{i}.mp4"), label=int(label)) for i, label in enumerate(labels))
    every = Annotations(records, ("a", "b"), "noise")
    folds = torch.arange(n) % 3
    data = Clips(every, ("a", "b"), list(range(n)), [], labels, labels[:0], folds, ())
    tried = add_curve(try_kind(KINDS["linear"], features, data, 0), features, data, 0)
    assert 0.3 < tried.correct / n < 0.7
    assert [point.clips for point in tried.curve] == [1, 2, 5, 10, 20, 30]
    assert all(0.3 < point.accuracy < 0.7 for point in tried.curve)
