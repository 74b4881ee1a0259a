"""Starting from image transformers: three families of names, inflation, other patch sizes, layer scale."""

import json
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import save_file
from torch import Tensor

from motionformer import from_image_weights, load_model
from motionformer.errors import CheckpointError
from motionformer.finetuning.options import _initial_model_config
from motionformer.weights.image import _inflate, _resize_kernel, read_image_weights

DIM, DEPTH, PATCH, SIDE = 64, 2, 8, 4


def timm_weights(layer_scale: bool = False) -> dict[str, Tensor]:
    """A random image transformer under timm's names."""

    def r(*shape: int) -> Tensor:
        return 0.2 * torch.randn(*shape)

    weights = {
        "cls_token": r(1, 1, DIM),
        "pos_embed": r(1, 1 + SIDE * SIDE, DIM),
        "patch_embed.proj.weight": r(DIM, 3, PATCH, PATCH),
        "patch_embed.proj.bias": r(DIM),
        "norm.weight": 1 + r(DIM),
        "norm.bias": r(DIM),
        "head.weight": r(10, DIM),
        "head.bias": r(10),
    }
    for i in range(DEPTH):
        for name, shape in {
            "norm1.weight": (DIM,),
            "norm1.bias": (DIM,),
            "attn.qkv.weight": (3 * DIM, DIM),
            "attn.qkv.bias": (3 * DIM,),
            "attn.proj.weight": (DIM, DIM),
            "attn.proj.bias": (DIM,),
            "norm2.weight": (DIM,),
            "norm2.bias": (DIM,),
            "mlp.fc1.weight": (4 * DIM, DIM),
            "mlp.fc1.bias": (4 * DIM,),
            "mlp.fc2.weight": (DIM, 4 * DIM),
            "mlp.fc2.bias": (DIM,),
        }.items():
            weights[f"blocks.{i}.{name}"] = r(*shape)
        if layer_scale:
            weights |= {f"blocks.{i}.ls1.gamma": r(DIM), f"blocks.{i}.ls2.gamma": r(DIM)}
    return weights


def image_transformer(weights: dict[str, Tensor], image: Tensor) -> Tensor:
    """The image model itself, written down: class token features of `[b 3 H W]`."""
    x = F.conv2d(image, weights["patch_embed.proj.weight"], weights["patch_embed.proj.bias"], stride=PATCH)
    x = torch.cat((weights["cls_token"].expand(len(image), -1, -1), x.flatten(2).transpose(1, 2)), dim=1)
    x = x + weights["pos_embed"]
    for i in range(DEPTH):
        w = {k.removeprefix(f"blocks.{i}."): v for k, v in weights.items() if k.startswith(f"blocks.{i}.")}
        y = F.layer_norm(x, (DIM,), w["norm1.weight"], w["norm1.bias"], 1e-6)
        q, k, v = F.linear(y, w["attn.qkv.weight"], w["attn.qkv.bias"]).chunk(3, dim=-1)
        y = F.scaled_dot_product_attention(q[:, None], k[:, None], v[:, None])[:, 0]
        y = F.linear(y, w["attn.proj.weight"], w["attn.proj.bias"])
        x = x + y * w.get("ls1.gamma", torch.ones(DIM))
        y = F.layer_norm(x, (DIM,), w["norm2.weight"], w["norm2.bias"], 1e-6)
        y = F.linear(
            F.gelu(F.linear(y, w["mlp.fc1.weight"], w["mlp.fc1.bias"])), w["mlp.fc2.weight"], w["mlp.fc2.bias"]
        )
        x = x + y * w.get("ls2.gamma", torch.ones(DIM))
    return F.layer_norm(x, (DIM,), weights["norm.weight"], weights["norm.bias"], 1e-6)[:, 0]


def huggingface(weights: dict[str, Tensor], dino: bool) -> dict[str, Tensor]:
    """The same weights under Hugging Face's names."""
    out: dict[str, Tensor] = {}
    prefix = "" if dino else "vit."
    for name, value in weights.items():
        if name.startswith("head."):
            out[name.replace("head", "classifier")] = value
            continue
        name = name.replace("cls_token", "embeddings.cls_token").replace("pos_embed", "embeddings.position_embeddings")
        name = name.replace("patch_embed.proj", "embeddings.patch_embeddings.projection")
        if name.startswith("norm."):
            name = "layernorm." + name.removeprefix("norm.")
        name = name.replace("blocks.", "encoder.layer.")
        if ".attn.qkv." in name:
            for part, third in zip(("query", "key", "value"), value.chunk(3), strict=True):
                out[prefix + name.replace("attn.qkv", f"attention.attention.{part}")] = third
            continue
        name = name.replace("attn.proj", "attention.output.dense")
        if dino:
            name = name.replace("ls1.gamma", "layer_scale1.lambda1").replace("ls2.gamma", "layer_scale2.lambda1")
        else:
            name = name.replace("norm1", "layernorm_before").replace("norm2", "layernorm_after")
            name = name.replace("mlp.fc1", "intermediate.dense").replace("mlp.fc2", "output.dense")
        out[prefix + name] = value
    if dino:
        out["embeddings.mask_token"] = torch.zeros(1, DIM)
    return out


FAMILIES = {
    "timm": lambda w: w,
    "dino": lambda w: {f"backbone.{k}": v for k, v in w.items()} | {"head.mlp.0.weight": torch.zeros(2)},
    "dinov2-chunked": lambda w: (
        {k.replace("blocks.", "blocks.0."): v for k, v in w.items()} | {"mask_token": torch.zeros(1, DIM)}
    ),
    "hf-vit": lambda w: huggingface(w, dino=False),
    "hf-dinov2": lambda w: huggingface(w, dino=True),
}


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("inflation", ["central", "average"])
def test_a_still_clip_gives_the_image_models_features(family: str, inflation: str, tmp_path: Path) -> None:
    """One token frame, joint attention: the video model is the image model, whatever the file's names."""
    weights = timm_weights(layer_scale="v2" in family)
    save_file({k: v.contiguous() for k, v in FAMILIES[family](weights).items()}, tmp_path / "x.safetensors")
    model, report = from_image_weights(
        tmp_path / "x.safetensors", num_classes=0, frames=2, size=32, attention="joint", inflation=inflation
    )
    image = torch.randn(2, 3, 32, 32)
    with torch.no_grad():
        found = model.eval()(image[:, :, None].repeat(1, 1, 2, 1, 1))
    torch.testing.assert_close(found, image_transformer(weights, image), atol=1e-4, rtol=1e-3)
    assert any(reason == "not used by a video model" for reason in report.dropped.values())
    assert model.config.input.mean[0] == (0.485 if "v2" in family else 0.5)


def test_weights_without_a_classifier_are_taken_for_self_supervised(tmp_path: Path) -> None:
    """DINO's own files: no layer scale, and nothing that classifies. What is said wins."""
    weights = {name: value for name, value in timm_weights().items() if not name.startswith("head.")}
    save_file(weights, tmp_path / "x.safetensors")
    model, report = from_image_weights(tmp_path / "x.safetensors", num_classes=0, frames=2, size=32)
    assert model.config.input.mean == (0.485, 0.456, 0.406)
    assert "pixels are taken to be normalised by ImageNet statistics" in report.notes
    half = (0.5, 0.5, 0.5)
    model, report = from_image_weights(
        tmp_path / "x.safetensors", num_classes=0, size=32, frames=2, mean=half, std=half
    )
    assert model.config.input.std == half
    assert not any("normalised" in note for note in report.notes)


def test_divided_attention_starts_as_the_image_model(tmp_path: Path) -> None:
    """The new time attention adds nothing, and learns from the first step on."""
    weights = timm_weights()
    torch.save(weights, tmp_path / "x.pth")
    model, _ = from_image_weights(tmp_path / "x.pth", num_classes=0, frames=2, size=32, attention="divided")
    image = torch.randn(2, 3, 32, 32)
    found = model.eval()(image[:, :, None].repeat(1, 1, 2, 1, 1))
    torch.testing.assert_close(found, image_transformer(weights, image), atol=1e-4, rtol=1e-3)
    found.square().sum().backward()
    gradient = model.blocks[0].time_attn.proj.weight.grad
    assert gradient is not None
    assert bool((gradient != 0).any())


def test_trajectory_and_divided_say_what_is_new(tmp_path: Path) -> None:
    """Divided attention's time attention is a copy, so it is not among what `freeze` always lets learn."""
    torch.save({"teacher": timm_weights()}, tmp_path / "x.pth")
    for attention, part, is_new in (
        ("trajectory", "attn.time.to_query.weight", True),
        ("divided", "time_attn.qkv.weight", False),
        ("divided", "norm_time.weight", False),
    ):
        model, report = from_image_weights(
            tmp_path / "x.pth", num_classes=5, frames=4, size=(40, 24), attention=attention
        )
        assert model(torch.zeros(1, 3, 4, 40, 24)).shape == (1, 5)
        assert (f"blocks.0.{part}" in report.reset) is is_new
        assert any("time attention" in note for note in report.notes) is not is_new
        assert "positions.space" in report.resized
        assert "blocks.0.mlp.fc1.weight" not in report.reset


def test_joint_positions_repeat_the_image_table(tmp_path: Path) -> None:
    weights = timm_weights()
    torch.save(weights, tmp_path / "x.pth")
    model, _ = from_image_weights(tmp_path / "x.pth", num_classes=2, frames=6, size=32, positions="joint")
    assert torch.equal(model.positions.table, weights["pos_embed"][0, 1:].repeat(3, 1))


def test_inflation() -> None:
    kernel = torch.randn(4, 3, 2, 2)
    assert torch.equal(_inflate(kernel, 2, "central")[:, :, 1], kernel)
    assert _inflate(kernel, 2, "central")[:, :, 0].abs().sum() == 0
    assert torch.equal(_inflate(kernel, 3, "central")[:, :, 1], kernel)
    torch.testing.assert_close(_inflate(kernel, 3, "average").sum(dim=2), kernel)


@pytest.mark.parametrize("patch", [6, 12, 16])
def test_another_patch_size_answers_resized_patches_alike(patch: int, tmp_path: Path) -> None:
    kernel = torch.randn(5, 3, 8, 8)
    smooth = F.interpolate(torch.randn(7, 3, 3, 3), size=(8, 8), mode="bicubic")
    larger = F.interpolate(smooth, size=(patch, patch), mode="bilinear", antialias=patch < 8)
    found = F.conv2d(larger, _resize_kernel(kernel, patch)).flatten(1)
    expected = F.conv2d(smooth, kernel).flatten(1)
    error = (found - expected).norm() / expected.norm()
    assert error < (1e-4 if patch > 8 else 0.25)  # enlarging loses nothing, shrinking loses detail
    torch.save(timm_weights(), tmp_path / "x.pth")
    model, report = from_image_weights(tmp_path / "x.pth", num_classes=2, frames=2, size=2 * patch, patch=patch)
    assert model.config.patch == patch
    assert report.resized["tokens.proj.weight"] == f"patch 8 to {patch}"


def test_wrong_files(tmp_path: Path) -> None:
    weights = timm_weights()
    del weights["pos_embed"]
    torch.save(weights, tmp_path / "x.pth")
    with pytest.raises(CheckpointError, match="tensor 'pos_embed' is missing"):
        read_image_weights(tmp_path / "x.pth")
    torch.save(timm_weights(), tmp_path / "y.pth")
    with pytest.raises(CheckpointError, match="these are image weights: initialise a video model from them"):
        load_model(tmp_path / "y.pth")


def test_real_dinov2_weights(shared: Path) -> None:
    """Features of the real model tell a disc from stripes, wherever they are."""
    path = shared / "weights" / "dinov2_vits14_fp16.safetensors"
    model, report = from_image_weights(path, num_classes=0, frames=2, size=98, attention="joint")
    assert not [name for name in report.reset if "positions.time" not in name]
    y, x = torch.meshgrid(torch.arange(98.0), torch.arange(98.0), indexing="ij")
    discs = [((y - 49) ** 2 + (x - centre) ** 2 < 24**2).float() for centre in (40, 58)]
    stripes = [((x + y + phase) % 28 < 14).float() for phase in (0, 9)]
    images = torch.stack([*discs, *stripes])[:, None].repeat(1, 3, 1, 1) * 2 - 1
    with torch.no_grad():
        features = F.normalize(model.eval()(images[:, :, None].repeat(1, 1, 2, 1, 1)), dim=-1)
    alike = features @ features.T
    assert min(alike[0, 1], alike[2, 3]) > alike[:2, 2:].max() + 0.1


def save_folder(folder: Path, weights: dict[str, Tensor], **config: object) -> Path:
    folder.mkdir()
    save_file(weights, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def test_a_folder_says_how_many_heads_there_are(tmp_path: Path) -> None:
    folder = save_folder(tmp_path / "vit", timm_weights(), num_attention_heads=4)
    assert from_image_weights(folder, num_classes=2, frames=4, size=32)[0].config.num_heads == 4
    assert from_image_weights(folder, num_classes=2, frames=4, size=32, num_heads=2)[0].config.num_heads == 2
    with pytest.raises(CheckpointError, match="64 is no multiple of 3 heads"):
        from_image_weights(folder, num_classes=2, num_heads=3)
    (folder / "model.safetensors").rename(folder / "weights.safetensors")
    with pytest.raises(CheckpointError, match=r"model\.safetensors \(or pytorch_model\.bin\); this one does not"):
        from_image_weights(folder, num_classes=2)


def test_heads_are_not_guessed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.weights.test_image.DIM", 96)
    save_file(timm_weights(), tmp_path / "narrow.safetensors")
    with pytest.raises(CheckpointError, match=r"how many heads a width of 96 has is unknown: give num_heads"):
        from_image_weights(tmp_path / "narrow.safetensors", num_classes=2)


def test_a_table_that_is_no_square_is_refused(tmp_path: Path) -> None:
    """16 × 8 patches and a class token are not 11 × 11 and eight more tokens."""
    save_file({**timm_weights(), "pos_embed": torch.randn(1, 129, DIM)}, tmp_path / "tall.safetensors")
    with pytest.raises(CheckpointError, match=r"tall\.safetensors: its position embedding of 129 entries"):
        from_image_weights(tmp_path / "tall.safetensors", num_classes=2)


def test_a_projection_head_is_no_classifier(tmp_path: Path) -> None:
    """MoCo v3's own layout: pixels by ImageNet's statistics."""
    weights = {name: value for name, value in timm_weights().items() if not name.startswith("head.")}
    weights["head.0.weight"] = torch.randn(8, DIM)
    save_file({f"module.base_encoder.{name}": value for name, value in weights.items()}, tmp_path / "moco.safetensors")
    model, _ = from_image_weights(tmp_path / "moco.safetensors", num_classes=2, frames=4, size=32)
    assert model.config.input.mean == (0.485, 0.456, 0.406)


def test_a_folder_of_timm_is_an_image_model(tmp_path: Path) -> None:
    """Its `config.json` has an architecture too: a name, where ours describes the model."""
    folder = save_folder(tmp_path / "timm", timm_weights(), architecture="vit_tiny_patch8_32")
    assert _initial_model_config(str(folder)).dim == DIM
    with pytest.raises(CheckpointError, match="these are image weights"):
        load_model(folder)


def test_names_of_the_hub_may_hold_dots(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    folder = save_folder(tmp_path / "cache", timm_weights())

    def fetch(repo: str, *files: str) -> Path:
        asked.append((repo, files))
        return folder / files[0]

    monkeypatch.setattr("motionformer.weights.load.fetch_from_hub", fetch)
    from_image_weights("timm/vit_base_patch16_224.augreg_in21k", num_classes=2, frames=4, size=32)
    assert asked[0] == ("timm/vit_base_patch16_224.augreg_in21k", ("model.safetensors", "config.json"))


def test_space_only_attention_is_the_image_model_on_every_frame(tmp_path: Path) -> None:
    """Frames through it together, and each by itself in a joint model of one frame, give the same tokens."""
    save_file(timm_weights(), tmp_path / "x.safetensors")
    options = {"num_classes": 0, "size": 4 * PATCH, "tubelet": 1}
    video, report = from_image_weights(tmp_path / "x.safetensors", frames=3, attention="space", **options)
    image, _ = from_image_weights(tmp_path / "x.safetensors", frames=1, attention="joint", **options)
    assert video.config.num_prefix_tokens == 3
    assert not any("start at zero" in note for note in report.notes)
    clip = torch.randn(2, 3, 3, 4 * PATCH, 4 * PATCH)
    with torch.no_grad():
        tokens = video.eval().forward_features(clip)
        alone = torch.stack([image.eval().forward_features(clip[:, :, [t]]) for t in range(3)], dim=1)
    torch.testing.assert_close(tokens[:, :3], alone[:, :, 0], atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(tokens[:, 3:], alone[:, :, 1:].flatten(1, 2), atol=1e-4, rtol=1e-4)
    with pytest.raises(ValueError, match="3 prefix tokens do not divide among 2 frames"):
        video(clip[:, :, :2])
