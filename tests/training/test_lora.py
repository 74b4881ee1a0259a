"""LoRA: adapters learn, frozen weights stay, merging is the adapted model, a killed run resumes exactly; errors."""

import filecmp
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from typer.testing import CliRunner

from motionformer import create_model, load_model
from motionformer.cli import app
from motionformer.errors import CheckpointError, RecipeError
from motionformer.models.motionformer import Motionformer
from motionformer.training.model import build_config, build_model
from motionformer.training.module import TrainingModule
from motionformer.training.recipe import Recipe, make_recipe
from motionformer.training.run import train
from motionformer.training.run_folder import RunFolder
from motionformer.weights import load_model_with_report, lora
from motionformer.weights.lora import LoraSpec
from tests.training.children import SMALL
from tests.weights.test_image import timm_weights

SPEC = {"frames": 4, "height": 16, "width": 16}  # two token frames: with one there is nothing to attend to along time
CHANGES = {**SMALL["model"]["changes"], "drop_path": 0.0, "readout": "motion", "input": SPEC}  # type: ignore[index,dict-item]
CLIP = torch.randn(2, 3, 4, 16, 16, generator=torch.Generator().manual_seed(1))
EVERY_LAYER = "lora:2:qkv,proj,fc1,fc2,to_query,to_key,to_value"


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("base") / "base"
    torch.manual_seed(3)
    sizes = {name: CHANGES[name] for name in ("dim", "depth", "num_heads", "readout")}
    create_model("motionformer-tiny", frames=4, size=16, **sizes).save_pretrained(folder)  # type: ignore[arg-type]
    return folder


def overrides(base: Path, train: str = "lora:2") -> tuple[str, ...]:
    clip = "model.changes.input.frames=4"
    return (f"model.init_from={base}", f"model.train='{train}'", clip, "model.changes.readout=motion")


@pytest.fixture(scope="module")
def run(base: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run of eight steps."""
    folder = tmp_path_factory.mktemp("run") / "run"
    train_small(base, folder)
    return folder


def train_small(base: Path, folder: Path) -> None:
    train(make_recipe(SMALL, [*overrides(base), f"output={folder}"]), quiet=True)


def built(base: Path, train: str = "lora:2") -> Motionformer:
    recipe = recipe_of(base, train)
    return build_model(recipe, build_config(recipe, 8))[0]


def recipe_of(base: Path | str, train: str) -> Recipe:
    model = {"variant": "motionformer-tiny", "changes": CHANGES, "init_from": str(base), "train": train}
    return make_recipe({"name": "x", "model": model})


def test_every_adapter_gets_a_gradient_and_nothing_else_but_the_head(base: Path) -> None:
    model, plain = built(base, EVERY_LAYER), load_model(base)
    torch.testing.assert_close(model.eval()(CLIP), plain(CLIP), atol=1e-6, rtol=1e-5)  # adapters start at nothing
    for name, weight in model.named_parameters():
        if ".lora_B" in name:
            torch.nn.init.normal_(weight, std=0.1)  # while it is zero, nothing reaches A
    model(CLIP).square().sum().backward()
    adapters = {name: p for name, p in model.named_parameters() if ".lora_" in name}
    assert len(adapters) == 2 * 2 * 7  # two blocks of seven layers
    for name, weight in adapters.items():
        assert weight.grad is not None, name
        assert weight.grad.abs().sum() > 0, name
    trained = {name for name, p in model.named_parameters() if p.requires_grad}
    assert trained - adapters.keys() == {"head.classifier.weight", "head.classifier.bias"}


def test_a_run_leaves_frozen_weights_and_learns(run: Path, base: Path) -> None:
    before, after = load_file(base / "model.safetensors"), load_file(run / "model" / "model.safetensors")
    changed = {name for name in before if not torch.equal(before[name], after[name])}
    adapted = {f"blocks.{i}.attn.{layer}.weight" for i in (0, 1) for layer in ("qkv", "proj")}
    assert changed == adapted | {"head.classifier.weight", "head.classifier.bias"}
    state = RunFolder(run).checkpoints()[0].read()["current_model_state"]  # what the averages are made from
    for name in adapted:  # what is frozen inside an adapted layer
        assert torch.equal(state["model." + name.replace(".weight", ".base_layer.weight")], before[name])


def test_merged_is_the_adapted_model_and_what_peft_makes_of_the_folder(run: Path, base: Path) -> None:
    from peft import PeftModel

    state = RunFolder(run).checkpoints()[0].read()["state_dict"]
    adapted = built(base)
    adapted.load_state_dict({name.removeprefix("model."): weight for name, weight in state.items()})
    merged = load_model(run / "model")
    with torch.no_grad():
        expected = adapted.eval()(CLIP)
        assert (merged(CLIP) - expected).abs().max() < 1e-5
        assert (merged(CLIP) - load_model(base)(CLIP)).abs().max() > 1e-3
        theirs = PeftModel.from_pretrained(load_model(base), str(run / "lora"))
        torch.testing.assert_close(theirs.eval()(CLIP), expected, atol=1e-5, rtol=1e-5)
    assert not [name for name, _ in merged.named_parameters() if "lora" in name]


def test_convert_merges_adapters_into_an_ordinary_folder(run: Path, tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["convert", str(run / "lora"), str(tmp_path / "merged")])
    assert result.exit_code == 0, result.output
    assert "adapters of 4 layers merged into" in " ".join(result.output.split())
    one, two = (load_file(folder / "model.safetensors") for folder in (run / "model", tmp_path / "merged"))
    for name, weight in one.items():
        torch.testing.assert_close(two[name], weight, atol=1e-6, rtol=1e-5)
    assert filecmp.cmp(run / "model" / "training_data.json", tmp_path / "merged" / "training_data.json")
    with pytest.raises(CheckpointError, match=r"these are adapters: merge them first .* then change `num_classes`"):
        load_model(run / "lora", num_classes=3)
    with pytest.raises(CheckpointError, match="these are adapters: merge them first"):
        built(run / "lora")


def test_stopped_and_resumed_is_uninterrupted(
    run: Path, base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stopped in the middle of an epoch, after the first checkpoint; test_resume.py kills processes for real."""
    calls = iter(range(1, 7))
    whole = TrainingModule.training_step

    def step(*args: Any) -> Tensor:
        if next(calls, None) is None:
            raise RuntimeError("stopped")
        return whole(*args)

    with monkeypatch.context() as patched:
        patched.setattr(TrainingModule, "training_step", step)
        with pytest.raises(RuntimeError, match="stopped"):
            train_small(base, tmp_path)
    assert [found.step for found in RunFolder(tmp_path).checkpoints()] == [2]
    train_small(base, tmp_path)
    names = ("model/model.safetensors", "lora/adapter_model.safetensors", "lora/adapter_config.json", "metrics.csv")
    for name in names:
        assert filecmp.cmp(run / name, tmp_path / name, shallow=False), name


def test_adapters_that_do_nothing_are_named(base: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A head on the class token does not see the patches of the last block: their way along time is not learnt."""
    values = {**SMALL, "epochs": 1, "ema": 0.0}
    chosen = (*overrides(base, "lora:2:qkv,to_query")[:3], "model.changes.readout=class", f"output={tmp_path / 'run'}")
    card = train(make_recipe(values, chosen), quiet=True).card  # type: ignore[arg-type]
    assert card["lora"]["idle"] == ["blocks.1.attn.time.to_query"]
    assert (card["lora"]["layers"], card["lora"]["rank"]) == (4, 2)
    assert "1 of 4 adapters do nothing (blocks.1.attn.time.to_query)" in caplog.text
    caplog.clear()
    _, report = load_model_with_report(tmp_path / "run" / "lora")
    assert "1 of 4 adapters do nothing" in report.notes[-1]
    assert "1 of 4 adapters do nothing" in caplog.text


def test_newly_initialised_layers_are_trained_whole(tmp_path: Path) -> None:
    """From an image model the projections along time are new: no adapter, and in the folder of adapters as they are."""
    save_file(timm_weights(), tmp_path / "image.safetensors")
    changes = {"dim": 64, "depth": 2, "num_heads": 1, "mlp_ratio": 4.0, "project_values": False}
    part = {"variant": "motionformer-tiny", "changes": {**changes, "input": SPEC}, "train": "lora:2:qkv"}
    recipe = make_recipe({"name": "x", "model": {**part, "init_from": str(tmp_path / "image.safetensors")}})
    config = build_config(recipe, 3)
    model, new = build_model(recipe, config)
    assert "blocks.0.attn.time.to_query.weight" in new
    trained = [name for name, p in model.named_parameters() if p.requires_grad]
    assert new <= set(trained)
    with torch.no_grad():
        for name in trained:
            model.get_parameter(name).normal_(std=0.1)
        expected = model.eval()(CLIP)
    lora.save_lora(
        tmp_path / "lora", config, model.state_dict(), LoraSpec(2, ("qkv",)), trained, recipe.model.init_from
    )
    with torch.no_grad():
        assert (load_model(tmp_path / "lora")(CLIP) - expected).abs().max() < 1e-5
    with pytest.raises(RecipeError, match=r"every layer called 'to_query' is newly initialised"):
        build_model(make_recipe(recipe.to_dict(), ["model.train='lora:2:to_query'"]), config)


@pytest.mark.parametrize("train", ["lora", "lora:0", "lora:-1", "lora:x", "lora:4:", "lora:4:qkv,", "lora:²"])
def test_a_rank_and_names_are_needed(base: Path, train: str) -> None:
    with pytest.raises(RecipeError, match=r"model\.train \(.*\) must be all, head, last:N, adapter, lora:RANK"):
        recipe_of(base, train)


def test_errors_name_the_remedy(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(
        RecipeError, match=r"no layer of a block is called 'query'; there are fc1, fc2, proj, qkv, to_k"
    ):
        built(base, "lora:2:query")
    with pytest.raises(RecipeError, match=r"model\.init_from \(\) must be given with model\.train=lora:2: its frozen"):
        recipe_of("", "lora:2")
    monkeypatch.setattr(lora, "find_spec", lambda name: None)
    with pytest.raises(ModuleNotFoundError, match=r"LoRA needs peft: install the extra `motionformer\[peft\]`"):
        built(base)


def reshaped(folder: Path) -> None:
    create_model("motionformer-tiny", depth=1).save_pretrained(folder)


def reweighed(folder: Path) -> None:
    weights: dict[str, Tensor] = load_file(folder / "model.safetensors")
    save_file({name: 1.01 * value for name, value in weights.items()}, folder / "model.safetensors")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (reshaped, "adapters of another base model than .*cannot be initialised"),
        (reweighed, r"adapters of another base model: the frozen weights in .* are not those"),
        (shutil.rmtree, "is no file, no folder"),
    ],
)
def test_adapters_of_another_base_model(
    run: Path, base: Path, tmp_path: Path, change: Callable[[Path], None], message: str
) -> None:
    shutil.copytree(run / "lora", tmp_path / "lora")
    shutil.copytree(base, tmp_path / "other")
    change(tmp_path / "other")
    file = tmp_path / "lora" / "adapter_config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "base_model_name_or_path": str(tmp_path / "other")}))
    with pytest.raises(Exception, match=message):
        load_model(tmp_path / "lora")


def test_half_a_folder_of_adapters(run: Path, tmp_path: Path) -> None:
    for missing in ("config.json", "adapter_model.safetensors"):
        shutil.copytree(run / "lora", tmp_path / missing)
        (tmp_path / missing / missing).unlink()
        with pytest.raises(CheckpointError, match=missing.replace(".", r"\.")):
            load_model(tmp_path / missing)
