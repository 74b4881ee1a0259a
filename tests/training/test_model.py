"""A recipe's model: changes merged deep, misspellings named, every kind of start, freezing."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from motionformer.data import eval_sampler
from motionformer.errors import CheckpointError, RecipeError, UnknownModelError
from motionformer.models import ModelConfig
from motionformer.models.motionformer import Motionformer
from motionformer.models.variants import create_model, model_config
from motionformer.training.model import build_config, build_model
from motionformer.training.recipe import Recipe, make_recipe
from motionformer.video import Clock
from motionformer.weights.image import read_image_weights
from tests.weights.test_image import timm_weights

NAMES = ("left", "right", "up")


def recipe_of(seed: int = 0, **model: Any) -> Recipe:
    return make_recipe({"name": "x", "seed": seed, "model": {"variant": "motionformer-tiny", **model}})


def build(recipe: Recipe, names: tuple[str, ...] = NAMES) -> Motionformer:
    return build_model(recipe, build_config(recipe, 3, names))[0]


def test_changes_reach_every_depth_and_leave_the_rest() -> None:
    changes = {"depth": 2, "input": {"stride": 8}, "kernel": {"kind": "orthoformer", "num_prototypes": 16}}
    config = build_config(recipe_of(changes=changes), 3, NAMES)
    tiny = model_config("motionformer-tiny")
    assert (config.depth, config.input.stride, config.kernel.kind, config.kernel.num_prototypes) == (
        2,
        8,
        "orthoformer",
        16,
    )
    assert (config.dim, config.input.frames, config.kernel.choice) == (tiny.dim, tiny.input.frames, "orthogonal")
    assert (config.num_classes, config.labels, config.source) == (3, NAMES, None)


def test_no_rate_counts_the_videos_own_frames() -> None:
    """8 frames, 3 apart, whatever the rate; also as an override on the command line."""
    config = build_config(recipe_of(changes={"input": {"fps": None, "stride": 3}}), 3, NAMES)
    plain = {"name": "x", "model": {"variant": "motionformer-tiny", "changes": {"input": {"stride": 3}}}}
    assert build_config(make_recipe(plain, ["model.changes.input.fps=null"]), 3, NAMES) == config
    assert ModelConfig.from_dict(json.loads(json.dumps(config.to_dict()))) == config
    assert config.input.fps is None
    for rate in (5.0, 60.0):
        assert eval_sampler(replace(config.input, views=1))(Clock(22, rate)) == [list(range(0, 22, 3))]


def test_several_tasks_have_no_single_list_of_labels() -> None:
    config = build_config(recipe_of(), {"verb": 2, "noun": 1}, {"verb": ("take", "put"), "noun": ("cup",)})
    assert config.num_classes == {"verb": 2, "noun": 1}
    assert config.labels is None


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"dpeth": 2}, "'dpeth'"),
        ({"input": {"strid": 2}}, "'strid'"),
        ({"input": 5}, "model.changes.input is a group of keys"),
        ({"depth": {"x": 1}}, "model.changes.depth is one value"),
        ({"num_classes": 7}, "num_classes follows from the data"),
        ({"input": {"frames": 7}}, "model.changes: `frames` \\(7\\) must be a multiple of 2, such as 6 or 8"),
        ({"input": {"width": 50}}, "model.changes: `width` \\(50\\) must be a multiple of 8, such as 48 or 56"),
        ({"num_heads": 5}, "do not make a model: .*96.*5"),
    ],
)
def test_nonsense_is_named(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(RecipeError, match=message):
        build(recipe_of(changes=changes))


def test_an_unknown_variant_is_answered_with_a_guess() -> None:
    with pytest.raises(UnknownModelError, match="Did you mean 'motionformer-tiny'"):
        build_config(recipe_of(variant="motionformer-tyni"), 3)


def test_random_weights_depend_on_the_seed_and_nothing_else() -> None:
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    one = build(recipe_of(seed=1))
    assert torch.equal(torch.rand(3), expected)  # the caller's random state is untouched
    again, other = build(recipe_of(seed=1)), build(recipe_of(seed=2))
    assert all(torch.equal(a, b) for a, b in zip(one.parameters(), again.parameters(), strict=True))
    assert not torch.equal(one.prefix, other.prefix)
    assert one.training


def save(folder: Path, **options: Any) -> tuple[str, Motionformer]:
    torch.manual_seed(7)  # not the recipe's
    model = create_model("motionformer-tiny", **options)
    model.save_pretrained(folder)
    return str(folder), model


def test_a_start_of_other_classes_keeps_the_body_and_resets_the_head(tmp_path: Path) -> None:
    start, saved = save(tmp_path / "saved", num_classes=5)
    model = build(recipe_of(init_from=start))
    assert torch.equal(model.blocks[0].attn.qkv.weight, saved.blocks[0].attn.qkv.weight)
    fresh = build(recipe_of())
    assert torch.equal(model.head.classifier.weight, fresh.head.classifier.weight)
    assert (model.config.source, model.config.labels) == (start, NAMES)


def test_the_classifier_is_kept_for_the_same_classes_only(tmp_path: Path) -> None:
    start, saved = save(tmp_path / "saved", num_classes=3, labels=NAMES)
    same = build(recipe_of(init_from=start))
    assert torch.equal(same.head.classifier.weight, saved.head.classifier.weight)
    other = build(recipe_of(init_from=start), ("up", "left", "right"))
    assert not torch.equal(other.head.classifier.weight, saved.head.classifier.weight)


def test_positions_are_interpolated_to_the_recipes_clip(tmp_path: Path) -> None:
    start, saved = save(tmp_path / "saved", num_classes=5)
    with torch.no_grad():
        saved.positions.time.copy_(torch.randn_like(saved.positions.time))
    saved.save_pretrained(start)
    changes = {"input": {"frames": 16, "height": 64, "width": 64}}
    model = build(recipe_of(init_from=start, changes=changes))
    assert model.positions.space.shape == (64, 96)
    clip = torch.randn(1, 3, 16, 64, 64)
    saved.head = model.head
    torch.testing.assert_close(model.eval()(clip), saved.eval()(clip))  # the saved model interpolates on the fly


def test_a_start_of_another_shape_is_an_error_that_says_what_to_change(tmp_path: Path) -> None:
    start, _ = save(tmp_path / "saved", num_classes=5)
    with pytest.raises(CheckpointError, match=r"96 wide, 2 layers\) cannot be initialised from .*change model.variant"):
        build(recipe_of(init_from=start, changes={"depth": 2}))


def test_a_hidden_layer_may_come_and_go(tmp_path: Path) -> None:
    with_hidden, _ = save(tmp_path / "a", num_classes=5, hidden_head=True)
    without, _ = save(tmp_path / "b", num_classes=5)
    assert build(recipe_of(init_from=with_hidden)).config.hidden_head is False
    assert build(recipe_of(init_from=without, changes={"hidden_head": True})).config.hidden_head


def test_a_head_that_sees_motion_starts_anew(tmp_path: Path) -> None:
    start, saved = save(tmp_path / "saved", num_classes=3, labels=NAMES)
    model = build(recipe_of(init_from=start, changes={"readout": "motion"}))
    fresh = build(recipe_of(changes={"readout": "motion"}))
    assert torch.equal(model.head.classifier.weight, fresh.head.classifier.weight)
    assert torch.equal(model.blocks[0].attn.qkv.weight, saved.blocks[0].attn.qkv.weight)


def test_a_start_from_image_weights(tmp_path: Path) -> None:
    weights = timm_weights()
    save_file(weights, tmp_path / "image.safetensors")
    changes = {"dim": 64, "depth": 2, "num_heads": 1}
    model = build(recipe_of(init_from=str(tmp_path / "image.safetensors"), changes=changes))
    assert torch.equal(model.blocks[1].mlp.fc1.weight, weights["blocks.1.mlp.fc1.weight"])
    assert torch.equal(model.tokens.proj.weight[:, :, 1], weights["patch_embed.proj.weight"])
    with pytest.raises(CheckpointError, match="cannot be initialised from"):
        build(recipe_of(init_from=str(tmp_path / "image.safetensors")))


@pytest.mark.parametrize(
    ("train", "learning"),
    [
        ("head", {"head"}),
        ("last:1", {"blocks.3", "norm", "head"}),
        ("last:2", {"blocks.2", "blocks.3", "norm", "head"}),
        ("all", {f"blocks.{i}" for i in range(4)} | {"norm", "head", "tokens", "prefix", "positions"}),
    ],
)
def test_only_the_named_part_learns(train: str, learning: set[str]) -> None:
    model = build(recipe_of(train=train))
    model(torch.randn(2, 3, 8, 48, 48)).sum().backward()
    moved = {name for name, weight in model.named_parameters() if weight.grad is not None}
    assert moved == {name for name, weight in model.named_parameters() if weight.requires_grad}
    assert {".".join(name.split(".")[: 2 if name.startswith("blocks") else 1]) for name in moved} == learning


def test_what_the_start_did_not_bring_learns(tmp_path: Path) -> None:
    """Else the table of times stays at zero, and the model cannot tell the order of its frames."""
    file = tmp_path / "image.safetensors"
    save_file(timm_weights(), file)
    changes = {"dim": 64, "depth": 2, "num_heads": 1}
    model = build(recipe_of(init_from=str(file), changes=changes, train="head"))
    learning = {name for name, weight in model.named_parameters() if weight.requires_grad}
    assert "positions.time" in learning
    assert "blocks.0.attn.time.to_key.weight" in learning
    assert "blocks.0.attn.qkv.weight" not in learning
    assert "positions.space" not in learning


def test_more_blocks_than_there_are() -> None:
    with pytest.raises(RecipeError, match="the model has 4 blocks"):
        build(recipe_of(train="last:5"))


def test_real_image_weights(shared: Path) -> None:
    changes = {"patch": 14, "input": {"height": 98, "width": 98}}
    start = str(shared / "weights" / "dinov2_vits14_fp16.safetensors")
    model = build(recipe_of(variant="motionformer-small", changes=changes, init_from=start, train="head"))
    weights, _ = read_image_weights(start)
    assert torch.equal(model.blocks[0].attn.qkv.weight, weights["blocks.0.attn.qkv.weight"])
