"""Attention adapters: the identity at the start; saved, traced and counted; only they and the head learn."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from motionformer import Motionformer, create_model, load_model, record_attention
from motionformer.attention.contract import UnknownKindError
from motionformer.errors import RecipeError, TraceError
from motionformer.finetuning.options import FinetuneOptions, Hardware, VideoFacts, finetune_recipe
from motionformer.models import AdapterConfig, AttentionAdapter, ModelConfig
from motionformer.models.costs import paper_macs
from motionformer.tracing.maps import Question, _attention_of_point, _rollout, walk_layers
from motionformer.training.model import build_config, build_model
from motionformer.training.recipe import Recipe, make_recipe
from motionformer.training.run import train
from tests.training.children import SMALL

CLIP = torch.randn(2, 3, 8, 24, 24, generator=torch.Generator().manual_seed(1))
SIZES = {"dim": 32, "depth": 3, "num_heads": 2, "readout": "motion"}  # which reads the patches of the last block too
SCHEMES = pytest.mark.parametrize("scheme", ["trajectory", "joint", "divided"])


def model_with(scheme: str, attention: str = "joint", every: int = 2) -> Motionformer:
    torch.manual_seed(0)
    made = AdapterConfig(scheme, every=every)
    return create_model("motionformer-tiny", frames=8, size=24, attention=attention, adapter=made, **SIZES).eval()


def opened(model: Motionformer) -> Motionformer:
    for module in model.modules():
        if isinstance(module, AttentionAdapter):
            torch.nn.init.normal_(module.gate)
    return model


@SCHEMES
@pytest.mark.parametrize("attention", ["joint", "divided"])
def test_it_starts_as_the_identity_with_a_gradient_at_the_gate(scheme: str, attention: str) -> None:
    model = model_with(scheme, attention)
    plain = Motionformer(replace(model.config, adapter=AdapterConfig())).eval()
    missing = plain.load_state_dict(model.state_dict(), strict=False)
    assert not missing.missing_keys
    assert all(".adapter." in name for name in missing.unexpected_keys)
    logits = model(CLIP)
    assert torch.equal(logits, plain(CLIP))
    logits.square().sum().backward()
    gates = {name: p.grad for name, p in model.named_parameters() if name.endswith("adapter.gate")}
    assert set(gates) == {"blocks.0.adapter.gate", "blocks.2.adapter.gate"}
    for name, gradient in gates.items():
        assert gradient is not None, name
        assert gradient.abs().max() > 1e-6, name
    opened(model)(CLIP).square().sum().backward()
    for name, weight in model.named_parameters():  # and then everything inside learns
        if ".adapter." in name and "qkv.bias" not in name:
            assert weight.grad is not None, name
            assert weight.grad.abs().max() > 0, name


@SCHEMES
def test_the_order_of_frames_reaches_the_output(scheme: str) -> None:
    """Image tokens know no time; an adapter does by itself."""
    config = replace(model_with(scheme).config, tubelet=1, readout="class")
    model = Motionformer(config).eval()  # whose temporal position embedding starts at zero
    torch.testing.assert_close(model(CLIP), model(CLIP.flip(2)), atol=1e-5, rtol=1e-5)
    opened(model)
    assert (model(CLIP) - model(CLIP.flip(2))).abs().max() > 1e-4


def test_saved_and_loaded_it_is_the_same_and_takes_other_clips(tmp_path: Path) -> None:
    model = opened(model_with("trajectory"))
    model.save_pretrained(tmp_path / "m")
    back = load_model(tmp_path / "m")
    assert back.config == model.config
    assert torch.equal(back(CLIP), model(CLIP))
    assert load_model(tmp_path / "m", frames=4, size=48)(torch.randn(1, 3, 4, 48, 48)).shape == (1, 8)
    assert "adapters | trajectory attention, 32 wide, behind blocks 0, 2" in (tmp_path / "m" / "README.md").read_text()
    plain = create_model("joint-tiny").config.to_dict()
    assert "adapter" not in plain
    assert ModelConfig.from_dict(json.loads(json.dumps(model.config.to_dict()))) == model.config
    shallow = opened(Motionformer(replace(model.config, depth=1, adapter=AdapterConfig("trajectory", every=1)))).eval()
    exported = torch.export.export(shallow, (CLIP,)).module()
    torch.testing.assert_close(exported(CLIP), shallow(CLIP), atol=1e-5, rtol=1e-5)


@SCHEMES
def test_its_cost_is_counted(scheme: str) -> None:
    config = model_with(scheme).config
    plain = replace(config, adapter=AdapterConfig())
    one = AttentionAdapter(config).macs(4, 9, 1)
    assert paper_macs(config) == pytest.approx(paper_macs(plain) + 2 * one)
    if scheme == "joint":  # by hand: norm, down and up, four projections, two products of 37 × 37
        assert one == 5 * 37 * 32 + 2 * 37 * 32 * 32 + 4 * 37 * 32 * 32 + 2 * 37 * 37 * 32


@SCHEMES
def test_its_attention_is_traced(scheme: str) -> None:
    model = opened(model_with(scheme))
    clip = CLIP[:1]
    with torch.no_grad(), record_attention(model) as records:
        model(clip)
    assert "blocks.2.adapter.attn" in records
    expected = model.blocks[2].adapter.attn.attention_map(records["blocks.2.adapter.attn"])  # type: ignore[union-attr,operator]
    found = next(layer for _, layer in walk_layers(model, clip, [2]))
    torch.testing.assert_close(found.adapter, expected)
    torch.testing.assert_close(expected.sum(-1), torch.ones(expected.shape[:2]))
    (shown,), _ = _attention_of_point(model, Question(clip, 5, "adapter", "mean"))
    assert shown[0] == "adapter:2"
    weights = expected[:, 5, 1:].double().mean(0)
    torch.testing.assert_close(shown[2].weights.flatten(), weights / weights.sum(), atol=1e-6, rtol=1e-4)
    (first,), _ = _attention_of_point(model, Question(clip, 5, "adapter:0", "mean"))
    assert first[0] == "adapter:0"


def test_a_closed_gate_leaves_the_rollout_alone() -> None:
    model = model_with("joint")
    plain = Motionformer(replace(model.config, adapter=AdapterConfig())).eval()
    plain.load_state_dict(model.state_dict(), strict=False)
    question = Question(CLIP[:1], 0, "last", "mean")
    closed, without = (_rollout(one, question)[0][0][2].weights for one in (model, plain))
    torch.testing.assert_close(closed, without)
    assert not torch.allclose(_rollout(opened(model), question)[0][0][2].weights, without, atol=1e-4)


def test_questions_that_a_model_without_them_cannot_answer() -> None:
    with pytest.raises(TraceError, match="no adapters; `finetune --train adapter` makes one"):
        _attention_of_point(create_model("joint-tiny"), Question(CLIP[:1], 5, "adapter"))
    with pytest.raises(TraceError, match=r"no adapter behind block '1'; there are adapter:0, adapter:2"):
        _attention_of_point(model_with("joint"), Question(CLIP[:1], 5, "adapter:1"))


def test_training_changes_adapters_and_head_alone(tmp_path: Path) -> None:
    torch.manual_seed(3)
    changes = SMALL["model"]["changes"] | {"depth": 2}  # type: ignore[index,operator]
    base = Motionformer(build_config(make_recipe({**SMALL, "model": {**SMALL["model"], "changes": changes}}), 8))  # type: ignore[dict-item]
    base.save_pretrained(tmp_path / "base")
    words = [f"model.init_from={tmp_path / 'base'}", "model.train=adapter", f"output={tmp_path / 'run'}", "epochs=1"]
    with pytest.raises(RecipeError, match=r"the model has no adapters; set model\.changes\.adapter\.attention"):
        build(make_recipe(SMALL, words))
    train(
        make_recipe(SMALL, [*words, "model.changes.adapter.attention=joint", "model.changes.adapter.every=2"]),
        quiet=True,
    )
    before, after = (load_file(tmp_path / name / "model.safetensors") for name in ("base", "run/model"))
    changed = {name for name in before if not torch.equal(before[name], after[name])}
    assert changed == {"head.classifier.weight", "head.classifier.bias"}
    assert {name for name in after if name not in before} == {n for n in after if n.startswith("blocks.1.adapter.")}
    assert after["blocks.1.adapter.gate"].abs().max() > 0


def build(recipe: Recipe) -> Motionformer:
    return build_model(recipe, build_config(recipe, 8))[0]


def advise(train: str, init_from: str = "w") -> ModelConfig:
    options = FinetuneOptions(name="x", init_from=init_from, train=train)
    recipe = finetune_recipe(
        options,
        VideoFacts(30, 2.5, 120),
        Hardware(False, 16 << 30, 2),
        num_train=100,
        initial_config=lambda _: replace(model_with("joint").config, adapter=AdapterConfig()),
    )
    assert recipe.model.train == "adapter"
    return build_config(recipe, 5)


def test_words_of_the_option() -> None:
    assert advise("adapter").adapter == AdapterConfig("trajectory", every=3)
    assert advise("adapter:divided:1").adapter == AdapterConfig("divided", every=1)
    with pytest.raises(UnknownKindError, match=r"must be one of .*not 'diagonal'"):
        advise("adapter:diagonal")
    for wrong in ("adapter:joint:0", "adapter:joint:4", "adapter:joint:x"):
        with pytest.raises(RecipeError, match="every N-th block, N from 1 to 3"):
            advise(wrong)
    with pytest.raises(RecipeError, match=r"model\.init_from \(\) must be given with model\.train=adapter"):
        advise("adapter", "")


def test_sizes_that_make_no_adapter() -> None:
    with pytest.raises(ValueError, match=r"`adapter\.every` \(4\) must be from 1 to the number of blocks \(3\)"):
        model_with("joint", every=4)
    with pytest.raises(ValueError, match=r"`dim` \(30\) must be divisible by `num_heads` \(4\)"):
        create_model("joint-tiny", adapter=AdapterConfig("joint", width=30, num_heads=4))
