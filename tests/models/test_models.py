"""Tokens, positions, heads, variants: any clip, any configuration, errors that help."""

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from motionformer import (
    ModelConfig,
    Motionformer,
    create_model,
    list_models,
    list_weights,
    load_model,
    record_attention,
)
from motionformer.errors import ClipSizeError, UnknownModelError
from motionformer.models import VARIANTS, KernelConfig, model_config
from motionformer.models.block import StochasticDepth
from motionformer.models.tokens import JointPositions, SeparatePositions, Tokens, resize_space, resize_time
from motionformer.models.variants import adapt_config
from motionformer.weights import RELEASED, load_model_with_report
from tests.literal.trajectory import literal_model


def clip(frames: int = 8, height: int = 48, width: int = 48, b: int = 2) -> torch.Tensor:
    return torch.randn(b, 3, frames, height, width)


class TestTokens:
    @pytest.mark.parametrize("tubelet", [1, 2, 4])
    def test_equals_the_convolution(self, tubelet: int) -> None:
        tokens = Tokens(16, 8, tubelet)
        x = clip(height=24, width=40)
        expected = tokens.proj(x).flatten(2).transpose(1, 2)
        torch.testing.assert_close(tokens(x), expected, atol=1e-5, rtol=1e-4)
        assert tokens.grid(x) == (8 // tubelet, 3, 5)

    def test_a_clip_that_does_not_divide(self) -> None:
        with pytest.raises(ValueError, match="7 frames of 48 × 50 does not divide into tokens of 2 frames of 8 × 8"):
            Tokens(16, 8, 2)(clip(frames=7, width=50))


class TestPositions:
    def test_the_stored_size_is_returned_as_it_is(self) -> None:
        for kind in (SeparatePositions, JointPositions):
            table = kind(4, (2, 3, 5), 1)
            for parameter in table.parameters():
                nn.init.normal_(parameter)
            out = table((2, 3, 5))
            assert out.shape == (1, 31, 4)
            stored = table.table if kind is JointPositions else table.space[None] + table.time[:, None]
            assert torch.equal(out[0, 1:], stored.reshape(30, 4))

    def test_separate_is_space_plus_time_and_the_prefix_has_no_time(self) -> None:
        table = SeparatePositions(4, (2, 1, 3), 1)
        for parameter in table.parameters():
            nn.init.normal_(parameter)
        out = table((2, 1, 3))[0]
        assert torch.equal(out[0], table.prefix[0])
        assert torch.equal(out[1 + 3 + 2], table.space[2] + table.time[1])

    @pytest.mark.parametrize("kind", [SeparatePositions, JointPositions])
    def test_other_grids_interpolate_smooth_tables(self, kind: type) -> None:
        """A table that is linear in row, column and frame stays so, away from the border."""
        table = kind(3, (8, 10, 12), 0)
        f, y, x = torch.meshgrid(torch.arange(8.0), torch.arange(10.0), torch.arange(12.0), indexing="ij")
        with torch.no_grad():
            if kind is SeparatePositions:
                zero = torch.zeros(120)
                table.space.copy_(torch.stack((zero, y[0].flatten(), x[0].flatten()), dim=-1))
                table.time.copy_(torch.stack((torch.arange(8.0), torch.zeros(8), torch.zeros(8)), dim=-1))
            else:
                table.table.copy_(torch.stack((f.flatten(), y.flatten(), x.flatten()), dim=-1))
            out = table((16, 20, 6)).unflatten(1, (16, 20, 6))[0]
        middle = out[8, 10, 3]
        expected = torch.tensor([8.5 / 2 - 0.5, 10.5 / 2 - 0.5, 3.5 * 2 - 0.5])
        torch.testing.assert_close(middle, expected, atol=0.06, rtol=0)  # bicubic is linear to within that

    def test_resizing_to_the_same_size_is_nothing(self) -> None:
        table = torch.randn(12, 4)
        assert resize_space(table, (3, 4), (3, 4)) is table
        assert resize_time(table, 12) is table


class TestModel:
    @pytest.mark.parametrize("name", VARIANTS)
    def test_every_variant_builds_without_data(self, name: str) -> None:
        with torch.device("meta"):
            model = create_model(name)
        assert sum(p.numel() for p in model.parameters()) > 1e5

    def test_every_parameter_does_something(self) -> None:
        """Each gets a gradient that is not zero, but those whose effect the mathematics takes away again."""
        for name in ("motionformer-tiny", "joint-tiny", "divided-tiny"):
            model = create_model(name, hidden_head=True, depth=2)
            nn.init.normal_(model.positions.time)
            tokens = model.forward_features(clip())  # not the class token alone: it does not use the last queries
            model.head(tokens.mean(dim=1)).square().sum().backward()
            for parameter_name, parameter in model.named_parameters():
                assert parameter.grad is not None, parameter_name
                assert parameter.grad.abs().max() > 0, parameter_name

    def test_any_clip_size(self) -> None:
        model = create_model("motionformer-tiny", drop_path=0.0)
        for frames, height, width in ((2, 8, 8), (12, 64, 40), (8, 48, 48)):
            assert model(clip(frames, height, width)).shape == (2, 8)

    def test_verb_and_noun(self) -> None:
        logits = create_model("motionformer-tiny", num_classes={"verb": 7, "noun": 9})(clip())
        assert {name: tuple(value.shape) for name, value in logits.items()} == {"verb": (2, 7), "noun": (2, 9)}

    def test_features_only(self) -> None:
        model = create_model("motionformer-tiny", num_classes=0)
        assert model(clip()).shape == (2, 96)
        tokens, grid = model.forward_features(clip()), model.tokens.grid(clip())
        assert tokens.shape == (2, 1 + math.prod(grid), 96)

    @pytest.mark.parametrize("prefix", [0, 3])
    def test_other_numbers_of_prefix_tokens(self, prefix: int) -> None:
        for name in ("motionformer-tiny", "joint-tiny", "divided-tiny"):
            assert create_model(name, num_prefix_tokens=prefix)(clip()).shape == (2, 8)

    @pytest.mark.parametrize("option", ["checkpointing", "recompute"])
    def test_saving_memory_changes_nothing(self, option: str) -> None:
        plain = create_model("motionformer-tiny", depth=2)
        saving = create_model("motionformer-tiny", depth=2, **{option: True})
        saving.load_state_dict(plain.state_dict())
        x = clip()
        for model in (plain, saving):
            model(x).square().sum().backward()
        for (name, expected), (_, found) in zip(plain.named_parameters(), saving.named_parameters(), strict=True):
            torch.testing.assert_close(found.grad, expected.grad, msg=name)

    def test_equals_the_literal_model(self) -> None:
        model = create_model("motionformer-tiny", depth=2).eval()
        x = clip()
        torch.testing.assert_close(model(x), literal_model(model)(x), atol=1e-5, rtol=1e-4)

    @pytest.mark.parametrize("name", ["motionformer-tiny", "joint-tiny", "divided-tiny"])
    def test_bf16_is_close(self, name: str) -> None:
        model = create_model(name, depth=2).eval()
        x = clip()
        with torch.no_grad():
            expected = model(x)
            with torch.autocast("cpu", dtype=torch.bfloat16):
                found = model(x)
        torch.testing.assert_close(found.float(), expected, atol=3e-2, rtol=3e-2)

    @pytest.mark.parametrize("kind", ["exact", "norm_st", "orthoformer", "nystrom", "performer"])
    def test_every_attend_trains(self, kind: str) -> None:
        model = create_model("motionformer-tiny", depth=1, kernel=KernelConfig(kind, num_prototypes=8))  # type: ignore[arg-type]
        model(clip()).sum().backward()
        assert all(bool(p.grad.isfinite().all()) for p in model.parameters())

    def test_stochastic_depth_keeps_the_mean(self) -> None:
        layer = StochasticDepth(0.3)
        out = layer(torch.ones(20000, 1, 1))
        assert out.unique().tolist() == pytest.approx([0.0, 1 / 0.7])
        assert out.mean().item() == pytest.approx(1.0, abs=0.02)
        assert torch.equal(layer.eval()(out), out)
        rates = [block.drop_path.rate for block in create_model("motionformer-tiny", drop_path=0.3).blocks]
        assert rates == pytest.approx([0.0, 0.1, 0.2, 0.3])


def test_bytes_are_no_clip(run_python: Callable[[str], str]) -> None:
    """Without run-time shape checks, which would be first."""
    out = run_python(
        """
import torch
from motionformer import create_model
model = create_model("motionformer-tiny", depth=1).eval()
for dtype in (torch.uint8, torch.int64):
    for call in (model, model.features, model.embed):
        try:
            call(torch.zeros(1, 3, 8, 48, 48, dtype=dtype))
        except TypeError as error:
            print(error)
"""
    )
    lines = out.splitlines()
    assert len(lines) == 6
    for line, dtype in zip(lines, 3 * ["torch.uint8"] + 3 * ["torch.int64"], strict=True):
        assert f"takes a tensor of normalised floats [b 3 t H W], not {dtype}" in line
        assert "eval_transform(model.config.input)" in line
        assert "Predictor" in line


class TestConfig:
    def test_to_json_and_back(self) -> None:
        for config in VARIANTS.values():
            config = replace(config, num_classes=2, labels=("a", "b"))
            assert ModelConfig.from_dict(config.to_dict()) == config

    @pytest.mark.parametrize(
        ("changes", "message"),
        [
            ({"tubelet": 0}, r"`tubelet` \(0\) must be at least 1"),
            ({"patch": -8}, r"`patch` \(-8\) must be at least 1"),
            ({"frames": -8}, r"`frames` \(-8\) must be a multiple of 2, such as 2\."),
            ({"num_classes": -3}, r"`num_classes` \(-3\) must not be negative"),
            ({"num_classes": {"verb": -1, "noun": 2}}, "must not be negative"),
        ],
    )
    def test_numbers_that_count_nothing_are_refused(self, changes: dict[str, Any], message: str) -> None:
        with pytest.raises(ValueError, match=message):
            create_model("motionformer-tiny", **changes)

    def test_labels_say_how_many_classes_there_are(self) -> None:
        config = create_model("motionformer-tiny", depth=1, labels=["jump", "run"]).config
        assert (config.num_classes, config.labels) == (2, ("jump", "run"))
        assert adapt_config(config, num_classes=2).labels == ("jump", "run")
        assert adapt_config(config, num_classes=3).labels is None
        assert adapt_config(config, num_classes=3, labels=("a", "b", "c")).labels == ("a", "b", "c")

    @pytest.mark.parametrize("classes", [3, 0, {"verb": 2, "noun": 2}])
    def test_labels_of_other_classes_are_refused(self, classes: int | dict[str, int]) -> None:
        with pytest.raises(ValueError, match=r"2 labels for .* classes"):
            create_model("motionformer-tiny", num_classes=classes, labels=("jump", "run"))

    def test_unknown_keys_are_named(self) -> None:
        with pytest.raises(ValueError, match="ModelConfig has no 'widht'"):
            ModelConfig.from_dict({"widht": 3})
        with pytest.raises(ValueError, match="a model has no 'depht'"):
            create_model("motionformer-tiny", depht=3)

    def test_wrong_choices_list_the_right_ones(self, run_python) -> None:  # type: ignore[no-untyped-def]
        out = run_python(
            """
from motionformer import create_model
wrong = {"attention": "axial", "kernel": "linear", "positions": "learnt", "time": "max", "readout": "last"}
wrong["rotary"] = "time"
for key, value in wrong.items():
    try:
        create_model("motionformer-tiny", **{key: value})
    except ValueError as error:
        print(error)
"""
        )
        assert "`attention` must be one of trajectory, joint, divided, timesformer, space; not 'axial'." in out
        assert "`kernel.kind` must be one of exact, norm_st, orthoformer, nystrom, performer; not 'linear'." in out
        assert "`positions` must be one of separate, joint" in out
        assert "`time` must be one of attention, average" in out
        assert "`readout` must be one of class, concat, motion, paths, cross, trajectory, frames, mean, atten" in out
        assert "`rotary` must be one of none, space, space_time; not 'time'." in out

    def test_unknown_models_get_a_hint(self) -> None:
        with pytest.raises(UnknownModelError, match="Did you mean 'motionformer-tiny'"):
            model_config("motionformer-tyni")

    def test_overrides(self) -> None:
        config = model_config("Motionformer_Tiny", frames=16, size=(32, 64), num_classes=3, kernel="nystrom")
        assert config.grid == (8, 4, 8)
        assert config.num_classes == 3
        assert config.kernel.kind == "nystrom"

    def test_seeds_decide_the_weights(self) -> None:
        states = []
        for _ in range(2):
            torch.manual_seed(3)
            states.append(create_model("motionformer-tiny").state_dict())
        assert all(torch.equal(a, b) for a, b in zip(*(s.values() for s in states), strict=True))
        assert isinstance(create_model("motionformer-tiny"), Motionformer)


@pytest.mark.parametrize("batch", [1, 2])
@pytest.mark.parametrize("name", ["motionformer-tiny", "joint-tiny", "divided-tiny"])
def test_every_gradient_has_memory_of_its_own(name: str, batch: int) -> None:
    """Clipping and accumulating work in place: two gradients in one place would each be changed twice."""
    model = create_model(name, frames=2, size=16, depth=1)
    model(torch.randn(batch, 3, 2, 16, 16)).sum().backward()
    places = [weight.grad.data_ptr() for weight in model.parameters() if weight.grad is not None]
    assert len(places) == len(set(places))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"size": 13}, r"`height` \(13\) must be a multiple of 8, such as 8 or 16"),
        ({"size": (16, 5)}, r"`width` \(5\) must be a multiple of 8, such as 8\."),
        ({"frames": 3}, r"`frames` \(3\) must be a multiple of 2, such as 2 or 4"),
    ],
)
def test_a_clip_that_would_be_cut_off_is_refused(change: dict[str, object], message: str) -> None:
    with pytest.raises(ClipSizeError, match=message):
        create_model("motionformer-tiny", **change)


class TestTimmHabits:
    def test_forward_features_are_what_the_head_reads(self) -> None:
        model = create_model("motionformer-tiny").eval()
        x = clip()
        tokens = model.forward_features(x)
        assert torch.equal(model.head(model.readout(tokens, model.tokens.grid(x))), model(x))

    def test_another_classifier(self, tmp_path: Path) -> None:
        model = create_model("motionformer-tiny", hidden_head=True).double().eval()
        before = model.state_dict()
        model.reset_classifier(2, labels=["left", "right"])
        assert model(clip().double()).shape == (2, 2)
        after = model.state_dict()
        kept = [name for name in before if not name.startswith("head.classifier")]
        assert before.keys() == after.keys()
        assert all(torch.equal(before[name], after[name]) for name in kept)
        assert after["head.classifier.weight"].dtype == torch.float64
        assert 0.01 < after["head.classifier.weight"].std() < 0.03
        assert not after["head.classifier.bias"].any()
        assert not model.head.training
        model.float().save_pretrained(tmp_path)
        assert load_model(tmp_path).config.labels == ("left", "right")
        model.reset_classifier({"verb": 3, "noun": 4})
        assert {name: logits.shape[1] for name, logits in model(clip()).items()} == {"verb": 3, "noun": 4}
        assert model.config.labels is None
        model.reset_classifier(0)
        assert model(clip()).shape == (2, 96)
        with pytest.raises(ValueError, match="1 labels for 2 classes"):
            model.reset_classifier(2, labels=["left"])

    def test_names(self) -> None:
        assert list_models() == sorted(VARIANTS)
        assert list_models("*-tiny") == ["divided-tiny", "joint-tiny", "motionformer-tiny"]
        assert list_models("nothing*") == []
        assert list_weights() == ["motion-tiny", *RELEASED, "synchformer"]
        assert list_weights("ek_*") == [name for name in RELEASED if name.startswith("ek_")]

    def test_short_texts_of_results(self) -> None:
        model, report = load_model_with_report("motion-tiny", num_classes=3)
        assert repr(report) == "LoadReport('motion-tiny': 76 tensors loaded, 0 resized, 2 reset, 0 dropped)"
        assert repr(model.training_data.train) == "VideoSet(1 videos)"  # the benchmark, by its parameters
        with record_attention(model) as records, torch.no_grad():
            assert repr(records["blocks.0.attn"]) == "LayerRecord(space=None, prefix=None, time=None)"
            model(clip(b=1))
            text = "LayerRecord(space=[1, 4, 144, 4, 36], prefix=[1, 4, 1, 1, 145], time=[1, 4, 144, 4])"
            assert repr(records["blocks.0.attn"]) == text
