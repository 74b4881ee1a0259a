"""The authors' release, number for number: logits, intermediate tensors, gradients, three steps of AdamW."""

import json
from collections.abc import Callable
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from motionformer import Motionformer, record_attention
from motionformer.models.config import ModelConfig
from motionformer.models.motionformer import build_block
from motionformer.weights.fit import LoadReport, fit_tensors
from motionformer.weights.released import _convert_tensors, _infer_config
from tests.parity_files import PARITY, close

MODELS: dict[str, dict[str, Any]] = json.loads((PARITY / "fixtures.json").read_text())["models"]


def load(name: str) -> tuple[Motionformer, dict[str, Tensor]]:
    """The model of a fixture, its architecture inferred from the tensors and a YAML like the released ones."""
    spec = MODELS[name]["config"]
    file = load_file(PARITY / MODELS[name]["file"])
    state = {key.removeprefix("weights."): value for key, value in file.items() if key.startswith("weights.")}
    vit = {
        "NUM_HEADS": spec["num_heads"],
        "USE_ORIGINAL_TRAJ_ATTN_CODE": spec["use_original_traj_code"],
        "APPROX_ATTN_TYPE": spec["approx"],
        "APPROX_ATTN_DIM": spec["num_landmarks"],
        "HEAD_ACT": spec["head_act"],
        "DROP_PATH": 0.0,
    }
    config = _infer_config(state, {"VIT": vit, "DATA": {"TRAIN_CROP_SIZE": spec["img_size"]}})
    model = Motionformer(config).eval()
    tensors, _ = _convert_tensors(state, config)
    if "performer_projection" in file:
        tensors |= {f"blocks.{i}.attn.kernel.projection": file["performer_projection"] for i in range(config.depth)}
    fit_tensors(model, tensors, (config.grid[0], *(config.position_grid or config.grid[1:])), LoadReport(name))
    return model, file


@pytest.mark.parametrize("name", MODELS)
def test_logits(name: str) -> None:
    model, file = load(name)
    with torch.no_grad():
        logits = model(file["input"])
    if isinstance(logits, dict):
        close(logits["verb"], file["output_verb"])
        close(logits["noun"], file["output_noun"])
        close(logits["verb"].softmax(-1), file["output_verb_probs"])
    else:
        close(logits, file["output"])
        close(logits.softmax(-1), file["output_probs"])


@pytest.mark.parametrize("name", MODELS)
def test_inside_the_first_block(name: str) -> None:
    """In double precision, so that only the file's own rounding is left, which is relative to a tensor's scale."""
    model, file = load(name)
    model.double()
    seen: dict[str, Tensor] = {}
    block = model.blocks[0]
    block.register_forward_hook(lambda _m, args, out: seen.update(block0_in=args[0], block0_out=out))
    block.attn.register_forward_hook(lambda _m, args, out: seen.update(block0_attn_in=args[0], block0_attn=out))
    if "block0_timeattn" in file:
        block.time_attn.register_forward_hook(lambda _m, args, out: seen.update(block0_timeattn=out))
    model.head.hidden.register_forward_hook(lambda _m, args, out: seen.update(features=out))
    with torch.no_grad(), record_attention(model) as records:
        model(file["input"].double())
    assert {"block0_in", "block0_attn_in", "block0_attn", "block0_out", "features"} <= seen.keys()
    for key, value in seen.items():
        expected = file[key].double()
        torch.testing.assert_close(value, expected, atol=1e-5 * max(1.0, expected.abs().max().item()), rtol=1e-4)
    if MODELS[name]["config"]["attention"] == "trajectory":
        close(records["blocks.0.attn"].time.float(), file["block0_attn_weights"])
    elif MODELS[name]["config"]["attention"] == "joint":
        close(records["blocks.0.attn"].space[:, :, :, 0].float(), file["block0_attn_weights"])


@pytest.mark.parametrize("name", [name for name in MODELS if "grads" in MODELS[name]])
def test_gradients_and_three_steps_of_adamw(name: str) -> None:
    """Compared in the release's names; what we do not carry (a bias that cancels, unused halves) is left out."""
    model, file = load(name)
    grads = load_file(PARITY / MODELS[name]["grads"]["file"])
    model.train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.05, betas=(0.9, 0.999), eps=1e-8)
    for step, expected_loss in enumerate(MODELS[name]["grads"]["losses"]):
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(file["input"]), grads["label"], label_smoothing=0.2)
        loss.backward()
        assert loss.item() == pytest.approx(expected_loss, abs=1e-5, rel=1e-4)
        if step == 0:
            for _, (found, expected) in ours_and_theirs(model, grads, "grad.", lambda p: p.grad):
                close(found, expected)
        optimizer.step()
    for key, (found, expected) in ours_and_theirs(model, grads, "after3.", lambda p: p.detach()):
        if key.endswith("attn.qkv.bias"):  # the key third cancels in the softmax: its gradient is nothing but rounding
            found, expected = (torch.cat((x.chunk(3)[0], x.chunk(3)[2])) for x in (found, expected))
        off = (found - expected).abs() > 1e-5 + 1e-4 * expected.abs()
        # Adam divides by the gradient's size: where that is near zero the file's own rounding becomes a whole step.
        # In double precision the same few elements differ from the file.
        assert off.sum() <= max(1, 0.001 * off.numel()), key
        assert (found - expected).abs().max() < 3 * 1e-3, key


def ours_and_theirs(
    model: Motionformer, grads: dict[str, Tensor], prefix: str, pick: Callable[[Tensor], Tensor]
) -> list[tuple[str, tuple[Tensor, Tensor]]]:
    """Each tensor of the release that our model carries, beside ours."""
    released = {key.removeprefix(prefix): value for key, value in grads.items() if key.startswith(prefix)}
    expected, _ = _convert_tensors(released, model.config)
    ours = {name: pick(parameter) for name, parameter in model.named_parameters()}
    assert ours.keys() == expected.keys()
    return [(name, (ours[name], expected[name])) for name in ours]


def divided_block(drop_path_time: bool = False) -> tuple[torch.nn.Module, dict[str, Tensor]]:
    file = load_file(PARITY / "divided_training.safetensors")
    config = ModelConfig(dim=32, num_heads=4, attention="divided", drop_path_time=drop_path_time)
    block = build_block(config, drop_path=0.5)
    names = {"timeattn.": "time_attn.", "norm3.": "norm_time."}
    state = {key.removeprefix("weight."): value for key, value in file.items() if key.startswith("weight.")}
    for old, new in names.items():
        state = {key.replace(old, new): value for key, value in state.items()}
    block.load_state_dict(state)
    return block, file


class Masked(torch.nn.Module):
    """Drop path with the masks given, one for each call."""

    def __init__(self, rate: float, *masks: Tensor) -> None:
        super().__init__()
        self.rate, self.masks, self.calls = rate, masks, 0

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        return x * (self.masks[self.calls - 1].float() / (1 - self.rate))[:, None, None]


def test_a_divided_block_in_training_keeps_its_time_branch() -> None:
    block, file = divided_block()
    with torch.no_grad():
        close(block.eval()(file["x"], 4), file["output_eval"])
        none = torch.zeros(len(file["x"]), dtype=torch.bool)
        for rate, masks, expected in (
            (0.2, (file["keep_space"], file["keep_mlp"]), "output_train_rate0.2"),
            (0.5, (file["keep_space"], file["keep_mlp"]), "output_train_rate0.5"),
            (0.5, (none, none), "output_both_dropped"),
        ):
            block.drop_path = Masked(rate, *masks)
            close(block.train()(file["x"], 4), file[expected])
            assert block.drop_path.calls == 2
    close(file["output_both_dropped"], file["x_plus_time"])


def test_drop_path_of_the_time_branch_by_choice() -> None:
    """Loaded from the authors' files: off. New models and those saved before there was a choice: on, as they were."""
    block, file = divided_block(drop_path_time=True)
    block.drop_path = Masked(0.5, *[torch.zeros(len(file["x"]), dtype=torch.bool)] * 3)
    assert torch.equal(block.train()(file["x"], 4), file["x"])
    assert block.drop_path.calls == 3
    assert load("divided")[0].config.drop_path_time is False
    assert not any(part.drop_path_time for part in load("divided")[0].blocks)
    before = {key: value for key, value in ModelConfig().to_dict().items() if key != "drop_path_time"}
    assert ModelConfig.from_dict(before).drop_path_time is True
