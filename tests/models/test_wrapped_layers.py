"""Layers that others wrap, hook, quantise or parametrise do what they would in any model: nothing reads past them."""

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize, prune

from motionformer import DividedAttention, JointAttention, Motionformer, TrajectoryAttention, create_model
from motionformer.attention import OrthoformerAttention, record_attention
from motionformer.inference.views import model_fingerprint
from motionformer.models import KernelConfig

FEW = KernelConfig("orthoformer", num_prototypes=8)
SMALL: dict[str, Any] = {"depth": 2, "readout": "motion"}  # which reads patch tokens too: no layer goes unused
MODELS: dict[str, Callable[[], Motionformer]] = {
    "trajectory": lambda: create_model("motionformer-tiny", **SMALL),
    "released": lambda: create_model("motionformer-tiny", **SMALL, project_values=False),
    "orthoformer": lambda: create_model("motionformer-tiny", **SMALL, kernel=FEW),
    "joint": lambda: create_model("joint-tiny", **SMALL),
    "divided": lambda: create_model("divided-tiny", **SMALL),
}
every_model = pytest.mark.parametrize("name", MODELS)
CLIP = torch.randn(2, 3, 8, 48, 48, generator=torch.Generator().manual_seed(1))


def made(name: str) -> Motionformer:
    """With weights large enough for each layer to matter, so that reading past one shows."""
    model = MODELS[name]().eval()
    with torch.no_grad():
        for path, parameter in model.named_parameters():
            if parameter.ndim > 1:
                parameter.mul_(30 if path.endswith(("to_query.weight", "to_key.weight")) else 4)
    return model


def layers_of(model: nn.Module) -> dict[str, nn.Module]:
    return {name: layer for name, layer in model.named_modules() if isinstance(layer, nn.Linear | nn.Conv3d)}


@every_model
def test_every_layer_is_called(name: str) -> None:
    model, called = made(name), set()
    with torch.no_grad():
        expected = model(CLIP)
    for path, layer in layers_of(model).items():
        layer.register_forward_hook(lambda *_, path=path: called.add(path))
    with torch.no_grad():
        torch.testing.assert_close(model(CLIP), expected, atol=1e-5, rtol=1e-4)
    assert called == set(layers_of(model))


@every_model
@pytest.mark.parametrize("kind", ["pre", "full_backward", "full_backward_pre"])
def test_every_kind_of_hook_is_called(name: str, kind: str) -> None:
    model, called = made(name), set()
    for path, layer in layers_of(model).items():
        register = layer.register_forward_pre_hook if kind == "pre" else getattr(layer, f"register_{kind}_hook")
        register(lambda *_, path=path: called.add(path) or None)
    model(CLIP.clone().requires_grad_()).sum().backward()
    assert called == set(layers_of(model))


@every_model
def test_a_hook_that_changes_the_output_changes_the_model(name: str) -> None:
    model = made(name)
    with torch.no_grad():
        plain = model(CLIP)
        for path, layer in layers_of(model).items():
            handle = layer.register_forward_hook(lambda _layer, _inputs, out: -out)
            assert not torch.allclose(model(CLIP), plain, atol=1e-3), path
            handle.remove()
        assert torch.equal(model(CLIP), plain)


@every_model
def test_calling_gives_the_gradients_of_folding(name: str) -> None:
    model = made(name).double()
    called = copy.deepcopy(model)
    for layer in layers_of(called).values():
        layer.register_forward_hook(lambda *_: None)
    for one in (model, called):
        one(CLIP.double()).square().sum().backward()
    theirs = dict(called.named_parameters())
    for path, parameter in model.named_parameters():
        torch.testing.assert_close(parameter.grad, theirs[path].grad, msg=lambda text, path=path: f"{path}: {text}")


class Doubled(nn.Module):
    def forward(self, weight: Tensor) -> Tensor:
        return 2 * weight


@every_model
def test_parametrisations(name: str) -> None:
    model, clip = made(name).double(), CLIP.double()
    doubled = copy.deepcopy(model)
    for layer in layers_of(doubled).values():
        layer.weight.data.mul_(2)
    for layer in layers_of(model).values():
        parametrize.register_parametrization(layer, "weight", Doubled())
    with torch.no_grad():
        torch.testing.assert_close(model(clip), doubled(clip))
    model(clip).sum().backward()
    for path, layer in layers_of(model).items():
        assert layer.parametrizations.weight.original.grad.abs().sum() > 0, path  # type: ignore[union-attr]


@every_model
def test_pruning_masks_hold_after_a_step(name: str) -> None:
    """A mask is applied by a hook before each call: reading `weight` would see that of the last call."""
    model, clip = made(name).double().train(), CLIP.double()
    for layer in layers_of(model).values():
        prune.l1_unstructured(layer, "weight", amount=0.5)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model(clip).square().sum().backward()
    optimizer.step()
    optimizer.zero_grad()
    model.eval()
    plain = MODELS[name]().double().eval()
    for path, layer in layers_of(plain).items():
        source = model.get_submodule(path)
        layer.weight.data.copy_(source.weight_orig * source.weight_mask)
    rest = {key: value for key, value in model.state_dict().items() if not key.endswith(("_orig", "_mask"))}
    plain.load_state_dict(rest, strict=False)
    with torch.no_grad():
        torch.testing.assert_close(model(clip), plain(clip))


EVERYWHERE = ("all-linear", "qkv", "proj", "fc1", "fc2", "classifier")
TIME = {"trajectory": ("to_query", "to_key", "to_value"), "released": ("to_query", "to_key")}
TIME["orthoformer"] = TIME["trajectory"]


@pytest.mark.parametrize(
    ("name", "target"), [(name, target) for name in MODELS for target in (*EVERYWHERE, *TIME.get(name, ()))]
)
def test_lora(name: str, target: str) -> None:
    """Every adapter learns, and merged into the weights it is the same model."""
    from peft import LoraConfig, get_peft_model

    base, clip = made(name).double(), CLIP.double()
    before = base(clip).detach()
    modules = target if target == "all-linear" else [target]
    model = get_peft_model(base, LoraConfig(r=4, target_modules=modules, init_lora_weights=False)).eval()
    model(clip).square().sum().backward()
    adapters = {path: p for path, p in model.named_parameters() if ".lora_" in path}
    assert adapters
    for path, adapter in adapters.items():
        assert adapter.grad is not None, path
        assert adapter.grad.abs().sum() > 0, path
    with torch.no_grad():
        unmerged = model(clip)
        assert not torch.allclose(unmerged, before, atol=1e-3)
        torch.testing.assert_close(model.merge_and_unload()(clip), unmerged)


@every_model
def test_torchao_weights_of_eight_bits(name: str) -> None:
    from torchao.quantization import Int8WeightOnlyConfig, quantize_

    model = made(name)
    rounded = copy.deepcopy(model)
    quantize_(model, Int8WeightOnlyConfig())
    for path, layer in layers_of(rounded).items():
        if isinstance(layer, nn.Linear):
            layer.weight.data.copy_(model.get_submodule(path).weight.dequantize())
    with torch.no_grad():
        torch.testing.assert_close(model(CLIP), rounded(CLIP), atol=1e-4, rtol=1e-3)


@every_model
def test_dynamic_quantisation(name: str) -> None:
    model = made(name)
    quantised = torch.ao.quantization.quantize_dynamic(model, {nn.Linear}, dtype=torch.qint8)
    assert not any(isinstance(layer, nn.Linear) for layer in quantised.modules() if type(layer) is nn.Linear)
    with torch.no_grad():
        expected, found = model(CLIP), quantised(CLIP)
    assert torch.nn.functional.cosine_similarity(found, expected).min() > 0.9


@pytest.mark.parametrize("kernel", [None, OrthoformerAttention(8)], ids=["exact", "orthoformer"])
def test_recorded_weights_are_those_of_the_wrapped_layers(kernel: OrthoformerAttention | None) -> None:
    layer = TrajectoryAttention(32, 4, kernel=kernel).eval()
    x = torch.randn(2, 1 + 4 * 9, 32)
    with torch.no_grad(), record_attention(layer) as records:
        layer(x, 4)
        plain = records[""].time
        for projection in (layer.time.inner.to_query, layer.time.inner.to_key):  # type: ignore[union-attr]
            projection.register_forward_hook(lambda *_: None)
        layer(x, 4)
        torch.testing.assert_close(records[""].time, plain)
        layer.time.inner.to_key.register_forward_hook(lambda _layer, _inputs, out: 30 * out)  # type: ignore[union-attr]
        layer(x, 4)
        assert not torch.allclose(records[""].time, plain, atol=1e-3)


@pytest.mark.parametrize(
    "layer",
    [
        TrajectoryAttention(32, 4),
        TrajectoryAttention(32, 4, bias=False),
        JointAttention(32, 4),
        DividedAttention(32, 4, along="time"),
    ],
    ids=lambda layer: type(layer).__name__,
)
def test_attention_to_a_context_calls_its_projection(layer: nn.Module) -> None:
    x, context = torch.randn(2, 1 + 4 * 9, 32), torch.randn(2, 1 + 4 * 9, 32)
    with torch.no_grad():
        expected = layer(x, 4, context=context)
        layer.qkv.register_forward_hook(lambda *_: None)
        torch.testing.assert_close(layer(x, 4, context=context), expected)
        layer.qkv.register_forward_hook(lambda _layer, _inputs, out: 2 * out)
        assert not torch.allclose(layer(x, 4, context=context), expected, atol=1e-3)


def test_hidden_frames_stay_hidden_from_called_projections() -> None:
    layer = TrajectoryAttention(32, 4).double().eval()
    x = torch.randn(2, 1 + 4 * 9, 32, dtype=torch.float64)
    mask = torch.ones(2, 1 + 4 * 9, dtype=torch.bool)
    mask[0, 1 + 2 * 9 :] = False
    mask[1, 1:] = False
    with torch.no_grad():
        expected = layer(x, 4, key_mask=mask)
        layer.time.to_value.register_forward_hook(lambda *_: None)
        torch.testing.assert_close(layer(x, 4, key_mask=mask), expected)


def test_half_precision_reaches_called_projections() -> None:
    model = made("trajectory")
    with torch.no_grad():
        expected = model(CLIP)
        for layer in layers_of(model).values():
            layer.register_forward_hook(lambda *_: None)
        with torch.autocast("cpu", torch.bfloat16):
            found = model(CLIP)
    assert torch.nn.functional.cosine_similarity(found.float(), expected).min() > 0.99


@pytest.mark.parametrize("option", ["checkpointing", "recompute"])
def test_adapters_learn_where_activations_are_computed_twice(option: str) -> None:
    from peft import LoraConfig, get_peft_model

    grads = []
    for on in (False, True):
        torch.manual_seed(0)
        model = create_model("motionformer-tiny", **SMALL, **{option: on}).eval()
        wrapped = get_peft_model(model, LoraConfig(r=4, target_modules="all-linear", init_lora_weights=False))
        wrapped(CLIP).square().sum().backward()
        grads.append({path: p.grad for path, p in wrapped.named_parameters() if p.requires_grad})
    for path, grad in grads[0].items():
        torch.testing.assert_close(grads[1][path], grad)


@pytest.mark.slow
def test_wrapped_models_compile_in_one_graph(run_python: Callable[[str], str]) -> None:
    run_python(
        """
import torch
from motionformer import create_model
from peft import LoraConfig, get_peft_model
from torchao.quantization import Int8WeightOnlyConfig, quantize_
torch.set_num_threads(1)
clip = torch.randn(2, 3, 8, 48, 48)
quantised, adapted = (create_model("motionformer-tiny", depth=1, readout="motion").eval() for _ in range(2))
quantize_(quantised, Int8WeightOnlyConfig())
adapted = get_peft_model(adapted, LoraConfig(r=4, target_modules="all-linear", init_lora_weights=False)).eval()
with torch.no_grad():
    for model in (quantised, adapted):
        compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
        torch.testing.assert_close(compiled(clip), model(clip), atol=1e-5, rtol=1e-4)
"""
    )


def test_wrapped_and_quantised_models_are_not_saved_and_still_evaluated(tmp_path: Path) -> None:
    """They would be written under names that no model can be loaded from; their fingerprint is one of their weights."""
    from peft import LoraConfig, inject_adapter_in_model
    from torchao.quantization import Int8WeightOnlyConfig, quantize_

    lora = inject_adapter_in_model(LoraConfig(r=2, target_modules=["qkv"]), made("joint"))
    pruned = made("joint")
    prune.l1_unstructured(pruned.blocks[0].attn.qkv, "weight", 0.5)
    int8, other = made("joint"), made("joint")
    with torch.no_grad():
        other.blocks[0].attn.qkv.weight[0] *= 2
    for model in (int8, other):
        quantize_(model, Int8WeightOnlyConfig())
    dynamic = torch.ao.quantization.quantize_dynamic(made("joint"), {nn.Linear})
    for model in (lora, pruned, int8, dynamic):
        with pytest.raises(ValueError, match="wrapped or quantised"):
            model.save_pretrained(tmp_path / "m")
        assert not (tmp_path / "m").exists()
        assert len(model_fingerprint(model)) == 16
    assert model_fingerprint(int8) != model_fingerprint(other)
