"""What 0.1 wrote and called `attend` is still read, with a warning that names `kernel`."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from typer.testing import CliRunner

import motionformer.attention
import motionformer.models
from motionformer import (
    AttentionKernel,
    KernelConfig,
    ModelConfig,
    Motionformer,
    OrthoformerAttention,
    TrajectoryAttention,
    create_model,
    load_model,
)
from motionformer.cli import app
from motionformer.errors import RecipeError
from motionformer.inference.views import model_fingerprint
from motionformer.training.model import build_config
from motionformer.training.recipe import Recipe, load_recipe, make_recipe

PERFORMER = {"kind": "performer", "num_features": 16}
OLD = pytest.mark.filterwarnings("ignore:.*deprecated:FutureWarning")


def warns(old: str, new: str = "`kernel`") -> Any:
    return pytest.warns(FutureWarning, match=f"{old} is deprecated and will be removed in 0.3; use {new}")


@pytest.fixture
def model() -> Motionformer:
    torch.manual_seed(0)
    return create_model("motionformer-tiny", depth=1, num_classes=3, kernel=PERFORMER).eval()


@pytest.fixture
def folder(model: Motionformer, tmp_path: Path) -> Path:
    """As 0.1 saved it."""
    model.save_pretrained(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    config["architecture"]["attend"] = config["architecture"].pop("kernel")
    (tmp_path / "config.json").write_text(json.dumps(config))
    tensors = load_file(tmp_path / "model.safetensors")
    old = {name.replace(".kernel.", ".attend."): value for name, value in tensors.items()}
    assert "blocks.0.attn.attend.projection" in old
    save_file(old, tmp_path / "model.safetensors")
    return tmp_path


@pytest.mark.parametrize("load", [load_model, Motionformer.from_pretrained])
def test_a_saved_model_of_before_gives_the_same(load: Any, model: Motionformer, folder: Path) -> None:
    with warns("`attend`"):
        again = load(str(folder))
    assert again.config.kernel == model.config.kernel
    clip = torch.randn(1, 3, 8, 48, 48)
    assert torch.equal(again.eval()(clip), model(clip))


def test_the_file_of_an_old_model_is_named(folder: Path) -> None:
    with warns(f"{folder / 'config.json'}: `attend`"):
        load_model(str(folder))


def test_weights_of_a_run_of_before_are_loaded(model: Motionformer) -> None:
    old = {name.replace(".kernel.", ".attend."): value for name, value in model.state_dict().items()}
    fresh = create_model("motionformer-tiny", depth=1, num_classes=3, kernel=PERFORMER)
    fresh.load_state_dict(old)
    assert torch.equal(fresh.blocks[0].attn.kernel.projection, model.blocks[0].attn.kernel.projection)


def test_results_of_before_stay_valid() -> None:
    """The fingerprint that 0.1 wrote into results of the weights that come with the package."""
    assert model_fingerprint(load_model("motion-tiny")) == "6655cfd706c480d9"


def test_arguments_and_attributes() -> None:
    with warns("`attend`"):
        config = create_model("motionformer-tiny", attend="nystrom").config
    assert config.kernel.kind == "nystrom"
    with warns("`attend`"):
        assert ModelConfig.from_dict({"attend": {"kind": "nystrom"}}).kernel == KernelConfig("nystrom")
    with warns("`ModelConfig.attend`", "`ModelConfig.kernel`"):
        assert config.attend is config.kernel
    kernel = OrthoformerAttention(8)
    with warns("`attend`"):
        layer = TrajectoryAttention(64, 4, attend=kernel)
    assert layer.kernel is kernel
    with pytest.raises(ValueError, match="`attend` is the deprecated name of `kernel`: remove one"):
        create_model("motionformer-tiny", attend="nystrom", kernel="nystrom")


def test_names() -> None:
    with warns("`motionformer.attention.Attend`", "`AttentionKernel`"):
        assert motionformer.attention.Attend is AttentionKernel
    with warns("`motionformer.models.AttendConfig`", "`KernelConfig`"):
        assert motionformer.models.AttendConfig is KernelConfig
    with pytest.raises(AttributeError, match="no attribute 'Attention'"):
        motionformer.attention.Attention  # noqa: B018


def test_features(model: Motionformer) -> None:
    clip = torch.randn(1, 3, 8, 48, 48)
    with warns("`Motionformer.features`", "`forward_features`"):
        tokens, grid = model.features(clip)
    assert torch.equal(tokens, model.forward_features(clip))
    assert grid == (4, 6, 6)


def recipe_of(**changes: Any) -> dict[str, Any]:
    return {"name": "old", "model": {"variant": "motionformer-tiny", "changes": {"depth": 1, **changes}}}


def test_a_recipe_of_before(tmp_path: Path) -> None:
    new = make_recipe(recipe_of(kernel=PERFORMER))
    with warns("`model.changes.attend`", "`model.changes.kernel`"):
        assert make_recipe(recipe_of(attend=PERFORMER)) == new
    assert build_config(new, 3).kernel == KernelConfig("performer", num_features=16)
    file = tmp_path / "recipe.yaml"  # as in a run's folder
    file.write_text(new.to_yaml())
    file.write_text(file.read_text().replace("kernel:", "attend:"))
    with warns(f"{file}: `model.changes.attend`", "`model.changes.kernel`"):
        assert load_recipe(file) == new


@OLD
def test_overrides_of_before() -> None:
    def overridden(key: str) -> Recipe:
        return make_recipe(recipe_of(kernel=PERFORMER), [f"model.changes.{key}.num_features=8"])

    assert overridden("attend") == overridden("kernel")
    assert build_config(overridden("attend"), 3).kernel == KernelConfig("performer", num_features=8)
    with pytest.raises(RecipeError, match=r"`model.changes.attend` is the deprecated name of `model.changes.kernel`"):
        make_recipe(recipe_of(kernel=PERFORMER, attend=PERFORMER))


def test_an_option_of_before() -> None:
    words = ["info", "motionformer-tiny", "--attend", "performer", "--json"]
    out = CliRunner().invoke(app, words, catch_exceptions=False)
    assert json.loads(out.stdout)["kernel"] == "performer"
    assert "--attend is deprecated and will be removed in 0.3; use --kernel" in out.stderr
