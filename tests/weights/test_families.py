"""Video transformers of others: random weights in published files, through transformers' own classes and ours."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from typer.testing import CliRunner

from motionformer import FeatureExtractor, Motionformer, Predictor, from_image_weights, load_model
from motionformer.cli import app
from motionformer.data.motion import write_videos
from motionformer.errors import CheckpointError, ClipSizeError
from motionformer.export import export_model
from motionformer.finetuning.options import FinetuneOptions, Hardware, VideoFacts, finetune_recipe
from motionformer.models.costs import measure, paper_macs
from motionformer.tracing import trace
from motionformer.training.model import build_config, build_model
from motionformer.weights import load_model_with_report
from motionformer.weights.families import FAMILIES

transformers = pytest.importorskip("transformers")
SMALL = {"num_hidden_layers": 2, "hidden_size": 48, "num_attention_heads": 4}
VIT = {**SMALL, "intermediate_size": 96, "image_size": 32, "patch_size": 8, "num_frames": 4, "num_labels": 5}


def timesformer(**changes: Any) -> nn.Module:
    return transformers.TimesformerForVideoClassification(transformers.TimesformerConfig(**{**VIT, **changes}))


def vivit(**changes: Any) -> nn.Module:
    settings = {key: value for key, value in VIT.items() if key != "patch_size"}
    config = transformers.VivitConfig(**{**settings, "tubelet_size": [2, 8, 8], **changes})
    return transformers.VivitForVideoClassification(config)


def videomae(**changes: Any) -> nn.Module:
    return transformers.VideoMAEForVideoClassification(transformers.VideoMAEConfig(**{**VIT, **changes}))


def vjepa2(**changes: Any) -> nn.Module:
    predictor = {"pred_hidden_size": 24, "pred_num_attention_heads": 2, "pred_num_hidden_layers": 1}
    settings = {**SMALL, "crop_size": 32, "patch_size": 8, "frames_per_clip": 4, "num_labels": 5, **predictor}
    return transformers.VJEPA2ForVideoClassification(transformers.VJEPA2Config(**{**settings, **changes}))


MAKERS: dict[str, Callable[..., nn.Module]] = {
    "timesformer": timesformer,
    "vivit": vivit,
    "videomae": videomae,
    "vjepa2": vjepa2,
}
"""One model of each family, by its `model_type`."""


def randomise(model: nn.Module) -> nn.Module:
    """Far from where training begins: norms, biases and position embeddings too."""
    generator = torch.Generator().manual_seed(0)
    for name, parameter in model.named_parameters():
        nn.init.normal_(
            parameter, mean=1.0 if "norm" in name and "weight" in name else 0.0, std=0.2, generator=generator
        )
    return model.eval()


def write(model: nn.Module, folder: Path) -> Path:
    """As the hub has it: `save_pretrained` of transformers 5 writes the names that were published."""
    randomise(model).save_pretrained(folder)  # type: ignore[operator]
    return folder


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[nn.Module, Path]]:
    """Of every family the model of transformers and the folder of its files."""
    models = {name: make() for name, make in MAKERS.items()}
    return {name: (model, write(model, tmp_path_factory.mktemp(name))) for name, model in models.items()}


every = pytest.mark.parametrize("family", MAKERS)


def clips(frames: int = 4, size: int = 32) -> Tensor:
    return torch.randn(2, 3, frames, size, size)


def logits(model: nn.Module, clip: Tensor) -> Tensor:
    """What transformers' class answers."""
    with torch.no_grad():
        out: Tensor = model(clip.transpose(1, 2)).logits
    return out


@every
def test_logits_are_those_of_transformers(family: str, published: dict[str, tuple[nn.Module, Path]]) -> None:
    theirs, folder = published[family]
    ours, report = load_model_with_report(folder)
    clip = clips()
    with torch.no_grad():
        found = ours(clip)
    expected = logits(theirs, clip)
    assert expected.std() > 0.1
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=0)
    assert not report.changed
    assert any("sampled is not in the files" in note for note in report.notes)
    assert ours.config.source == FAMILIES[family].title


def test_timesformer_with_joint_attention(tmp_path: Path) -> None:
    theirs = timesformer(attention_type="joint_space_time")
    ours = load_model(write(theirs, tmp_path))
    clip = clips()
    torch.testing.assert_close(ours(clip), logits(theirs, clip), atol=1e-5, rtol=0)


@every
def test_another_clip_other_classes_and_a_round_trip(
    family: str, published: dict[str, tuple[nn.Module, Path]], tmp_path: Path
) -> None:
    folder = published[family][1]
    longer, report = load_model_with_report(folder, frames=8, size=48, num_classes=3)
    assert longer(clips(8, 48)).shape == (2, 3)
    assert set(report.reset) == {"head.classifier.weight", "head.classifier.bias"}
    model = load_model(folder)
    model.save_pretrained(tmp_path)
    again, clip = load_model(tmp_path), clips()
    assert again.config == model.config
    assert torch.equal(again(clip), model(clip))


@every
def test_what_runs_is_what_is_counted(family: str, published: dict[str, tuple[nn.Module, Path]]) -> None:
    config = load_model(published[family][1]).config
    assert measure(config).macs == pytest.approx(paper_macs(config), rel=1e-6)


def change_tensors(folder: Path, target: Path, change: Callable[[dict[str, Tensor]], dict[str, Tensor]]) -> Path:
    target.mkdir(exist_ok=True)
    (target / "config.json").write_text((folder / "config.json").read_text())
    save_file(change(load_file(folder / "model.safetensors")), target / "model.safetensors")
    return target


def change_settings(folder: Path, target: Path, **changes: Any) -> Path:
    target.mkdir(exist_ok=True)
    settings = json.loads((folder / "config.json").read_text())
    (target / "config.json").write_text(json.dumps({**settings, **changes}))
    if not (target / "model.safetensors").exists():
        (target / "model.safetensors").symlink_to(folder / "model.safetensors")
    return target


class TestWrongFiles:
    def test_half_a_file_an_extra_tensor_and_another_familys(
        self, published: dict[str, tuple[nn.Module, Path]], tmp_path: Path
    ) -> None:
        folder = published["timesformer"][1]
        half = change_tensors(folder, tmp_path, lambda t: {k: v for k, v in t.items() if "layer.1." not in k})
        with pytest.raises(CheckpointError, match=r"tensor 'blocks.1.\S+' is missing \(18 are, in all\)"):
            load_model(half)
        extra = change_tensors(folder, tmp_path, lambda t: {**t, "timesformer.extra": torch.zeros(1)})
        with pytest.raises(CheckpointError, match="the model has no tensor 'extra'"):
            load_model(extra)
        (tmp_path / "model.safetensors").write_bytes(b"\x00" * 50)
        with pytest.raises(CheckpointError, match="not a readable safetensors file"):
            load_model(tmp_path)
        other = change_tensors(folder, tmp_path, lambda t: {"decoder.weight": torch.zeros(1)})
        with pytest.raises(CheckpointError, match=r"config.json describes a TimeSformer, but the tensors are not its"):
            load_model(other)
        (tmp_path / "config.json").write_text('{"model_type": "slowfast"}')
        with pytest.raises(
            CheckpointError, match=r"nor one of ours, nor of TimeSformer.* \(its model_type is 'slowfast'\)"
        ):
            load_model(other)

    @pytest.mark.parametrize(
        ("changes", "message"),
        [
            ({"hidden_act": "silu"}, r"`hidden_act` \('silu'\) must be one of gelu"),
            ({"attention_type": "space_only"}, r"`attention_type` \('space_only'\) must be one of divided_space_time"),
            ({"hidden_size": 40}, r"tensor '\S+' is \S+ \S+, the model needs"),
            ({"num_attention_heads": 5}, "a width of 48 is not a multiple of 5 heads"),
            ({"num_frames": 6}, r"tensor 'positions.time' is \(4, 48\), but a model for 6 × 4 × 4 tokens"),
            ({"num_hidden_layers": 1}, r"the model has no tensor 'blocks.1"),
            ({"patch_size": [8, 4]}, r"its patches \(8 × 4\) must be square"),
            ({"num_hidden_layers": "many"}, "its configuration does not describe a model"),
            (
                {"model_type": "slowfast"},
                "these are the tensors of TimeSformer, but no config.json beside them says so",
            ),
        ],
        ids=str,
    )
    def test_a_configuration_that_does_not_fit(
        self, changes: dict, message: str, published: dict[str, tuple[nn.Module, Path]], tmp_path: Path
    ) -> None:
        folder = change_settings(published["timesformer"][1], tmp_path, **changes)
        with pytest.raises(CheckpointError, match=message):
            load_model(folder)


class TestPixels:
    @pytest.mark.parametrize(
        ("processor", "mean", "std"),
        [
            ({"image_mean": [0.45, 0.4, 0.35], "image_std": [0.2, 0.25, 0.3]}, (0.45, 0.4, 0.35), (0.2, 0.25, 0.3)),
            ({"do_normalize": False, "rescale_factor": 1 / 127.5, "offset": True}, (0.5, 0.5, 0.5), (0.5, 0.5, 0.5)),
            ({"do_normalize": False}, (0.0, 0.0, 0.0), (1.0, 1.0, 1.0)),
        ],
        ids=["normalise", "offset", "plain"],
    )
    def test_pixels_are_scaled_as_the_processor_does(
        self, processor: dict, mean: tuple, std: tuple, published: dict[str, tuple[nn.Module, Path]], tmp_path: Path
    ) -> None:
        folder = change_settings(published["timesformer"][1], tmp_path)
        (folder / "preprocessor_config.json").write_text(json.dumps(processor))
        spec = load_model(folder).config.input
        assert spec.mean == pytest.approx(mean)
        assert spec.std == pytest.approx(std)

    def test_a_processor_of_other_clips_is_named_and_a_broken_one_is_an_error(
        self, published: dict[str, tuple[nn.Module, Path]], tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        folder = change_settings(published["timesformer"][1], tmp_path)
        file = folder / "preprocessor_config.json"
        file.write_text(
            json.dumps({"size": {"shortest_edge": 36}, "crop_size": {"height": 48, "width": 48}, "resample": 3})
        )
        model, report = load_model_with_report(folder)
        assert (model.config.input.height, model.config.input.frames) == (32, 4)
        assert model.config.input.interpolation == "bicubic"
        assert "clips of 4 frames of 48 × 48, but config.json is of a model for 4 frames of 32 × 32" in caplog.text
        assert any("resizes the short side to 36" in note for note in report.notes)
        for wrong in ("[]", "{", '{"image_std": [0, 0, 0]}', '{"image_mean": "half"}', '{"resample": 0}'):
            file.write_text(wrong)
            with pytest.raises(CheckpointError, match=r"preprocessor_config.json does not describe pixels"):
                load_model(folder)

    def test_without_one_the_published_pixels_are_assumed_and_noted(
        self, published: dict[str, tuple[nn.Module, Path]]
    ) -> None:
        model, report = load_model_with_report(published["timesformer"][1])
        assert model.config.input.mean == (0.45, 0.45, 0.45)
        assert any("no preprocessor_config.json beside the weights" in note for note in report.notes)


def test_names_of_classes_are_read(published: dict[str, tuple[nn.Module, Path]], tmp_path: Path) -> None:
    names = {str(i): name for i, name in enumerate(("a", "b", "c", "d", "e"))}
    assert load_model(change_settings(published["timesformer"][1], tmp_path, id2label=names)).config.labels == tuple(
        "abcde"
    )
    assert load_model(published["timesformer"][1]).config.labels is None


def test_older_files_load_too(published: dict[str, tuple[nn.Module, Path]], tmp_path: Path) -> None:
    theirs, folder = published["timesformer"]
    (tmp_path / "config.json").write_text((folder / "config.json").read_text())
    torch.save(load_file(folder / "model.safetensors"), tmp_path / "pytorch_model.bin")
    clip = clips()
    model = load_model(tmp_path)
    assert isinstance(model, Motionformer)
    torch.testing.assert_close(model(clip), logits(theirs, clip), atol=1e-5, rtol=0)


def videomae_before_fine_tuning() -> nn.Module:
    decoder = {"decoder_num_hidden_layers": 1, "decoder_hidden_size": 24, "decoder_num_attention_heads": 2}
    config = transformers.VideoMAEConfig(**VIT, **decoder, decoder_intermediate_size=24, use_mean_pooling=False)
    return transformers.VideoMAEForPreTraining(config)


class TestFeatures:
    """Encoders without a classifier: all tokens are those of transformers."""

    def test_videomae_before_fine_tuning(self, tmp_path: Path) -> None:
        theirs = videomae_before_fine_tuning()
        ours, report = load_model_with_report(write(theirs, tmp_path))
        clip = clips()
        with torch.no_grad():
            expected = theirs.videomae(clip.transpose(1, 2)).last_hidden_state
            torch.testing.assert_close(ours.forward_features(clip), expected, atol=1e-5, rtol=0)
            torch.testing.assert_close(ours(clip), expected.mean(dim=1), atol=1e-5, rtol=0)
        assert set(report.dropped.values()) == {"the decoder of pre-training"}
        assert ours.config.num_classes == 0

    def test_the_encoder_of_vjepa2(self, published: dict[str, tuple[nn.Module, Path]], tmp_path: Path) -> None:
        theirs = published["vjepa2"][0].vjepa2
        theirs.save_pretrained(tmp_path)
        ours, report = load_model_with_report(tmp_path)
        clip = clips()
        with torch.no_grad():
            expected = theirs(clip.transpose(1, 2), skip_predictor=True).last_hidden_state
            torch.testing.assert_close(ours.forward_features(clip), expected, atol=1e-5, rtol=0)
        assert set(report.dropped.values()) == {"the predictor of pre-training"}

    def test_vivit_without_a_classifier(self, published: dict[str, tuple[nn.Module, Path]], tmp_path: Path) -> None:
        theirs = randomise(transformers.VivitModel(published["vivit"][0].config))
        ours = load_model(write(theirs, tmp_path))
        clip = clips()
        with torch.no_grad():
            expected = theirs(clip.transpose(1, 2)).last_hidden_state
            torch.testing.assert_close(ours.forward_features(clip), expected, atol=1e-5, rtol=0)


IMAGE = {**SMALL, "image_size": 32, "patch_size": 8}
IMAGE_MODELS: dict[str, Callable[[], nn.Module]] = {
    "vit": lambda: transformers.ViTModel(transformers.ViTConfig(**IMAGE, intermediate_size=96)),
    "dinov2": lambda: transformers.Dinov2Model(transformers.Dinov2Config(**IMAGE, mlp_ratio=2)),
    "dinov2-registers": lambda: transformers.Dinov2WithRegistersModel(
        transformers.Dinov2WithRegistersConfig(**IMAGE, mlp_ratio=2, num_register_tokens=4)
    ),
    "dinov3": lambda: transformers.DINOv3ViTModel(
        transformers.DINOv3ViTConfig(**IMAGE, intermediate_size=96, num_register_tokens=4)
    ),
}


class TestImageModels:
    @pytest.mark.parametrize("kind", IMAGE_MODELS)
    def test_all_tokens_of_a_picture_are_those_of_transformers(self, kind: str, tmp_path: Path) -> None:
        theirs = IMAGE_MODELS[kind]()
        (tmp_path / "preprocessor_config.json").write_text(json.dumps({"image_mean": [0.1, 0.2, 0.3]}))
        ours, report = from_image_weights(
            write(theirs, tmp_path), num_classes=0, frames=1, tubelet=1, size=32, attention="joint"
        )
        picture = torch.randn(2, 3, 32, 32)
        with torch.no_grad():
            expected = theirs(picture).last_hidden_state
            found = ours.eval().forward_features(picture[:, :, None])
        assert expected.std() > 0.1
        torch.testing.assert_close(found, expected, atol=1e-5, rtol=0)
        assert ours.config.input.mean == (0.1, 0.2, 0.3)
        assert "pixels are scaled as in preprocessor_config.json" in report.notes
        assert ours.config.num_prefix_tokens == (1 if kind in ("vit", "dinov2") else 5)
        assert set(report.reset) == {"positions.time"}
        frames, _ = from_image_weights(tmp_path, num_classes=0, frames=2, tubelet=1, size=32, attention="space")
        with torch.no_grad():
            alone = frames.eval()(picture[None].transpose(1, 2))
        torch.testing.assert_close(alone, expected[:, 0].mean(dim=0, keepdim=True), atol=1e-5, rtol=0)

    def test_patches_that_do_not_divide_the_default_size(self, tmp_path: Path) -> None:
        theirs = transformers.ViTModel(
            transformers.ViTConfig(**SMALL, intermediate_size=96, image_size=36, patch_size=12)
        )
        ours, _ = from_image_weights(write(theirs, tmp_path), num_classes=2, frames=2, size=36)
        assert (ours.config.patch, ours.config.input.height) == (12, 36)
        with pytest.raises(ValueError, match=r"`height` \(224\) must be a multiple of 12"):
            from_image_weights(tmp_path, num_classes=2, frames=2)

    def test_dinov3_in_a_video_model(self, tmp_path: Path) -> None:
        """Every frame of a still clip as the picture, with an attention of its own frame; in rectangles too."""
        theirs = IMAGE_MODELS["dinov3"]()
        folder = write(theirs, tmp_path)
        ours, _ = from_image_weights(folder, num_classes=0, frames=4, tubelet=2, size=(32, 48), attention="timesformer")
        picture = torch.randn(1, 3, 32, 48)
        with torch.no_grad():
            expected = theirs(picture).last_hidden_state[:, 0]
            found = ours.eval()(picture[:, :, None].expand(-1, -1, 4, -1, -1))
        torch.testing.assert_close(found, expected, atol=1e-5, rtol=0)
        video, _ = from_image_weights(folder, num_classes=3, frames=4, size=32)
        assert video.config.attention == "trajectory"
        assert video(clips()).shape == (2, 3)
        with pytest.raises(
            ClipSizeError, match=r"4 × 4 patches that it is made for, or square ones: this clip has 2 × 8"
        ):
            video(torch.randn(1, 3, 4, 16, 64))
        with pytest.raises(CheckpointError, match="these are image weights"):
            load_model(folder)

    def test_what_is_not_supported(self, tmp_path: Path) -> None:
        gated = transformers.Dinov2Config(**IMAGE, mlp_ratio=2, use_swiglu_ffn=True)
        folder = write(transformers.Dinov2Model(gated), tmp_path / "giant")
        with pytest.raises(CheckpointError, match=r"gated MLPs \(SwiGLU"):
            from_image_weights(folder, num_classes=2)
        folder = write(IMAGE_MODELS["dinov3"](), tmp_path / "v3")
        with pytest.raises(CheckpointError, match=r"`rope_theta` \(50.0\) must be 100"):
            from_image_weights(change_settings(folder, tmp_path / "theta", rope_theta=50.0), num_classes=2)
        with pytest.raises(CheckpointError, match=r"tensor .pos_embed. is missing, and no config.json"):
            from_image_weights(change_settings(folder, tmp_path / "type", model_type="other"), num_classes=2)


@pytest.fixture(scope="module")
def videos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("videos") / "moves"
    write_videos(folder, "easy", 16, frames=8, size=32)
    return folder


class TestUses:
    @every
    def test_predicting_features_and_every_kind_of_trace(
        self, family: str, published: dict[str, tuple[nn.Module, Path]], videos: Path
    ) -> None:
        model, video = load_model(published[family][1]), next((videos / "right").iterdir())
        assert len(Predictor(model)(video).top(5)) == 5
        features = FeatureExtractor(model)
        assert features.what == ("class" if model.config.num_prefix_tokens else "pooled")
        assert features(video).values.shape == (1, 48)
        for what in ("trajectory", "rollout", "gradcam"):
            found = trace(model, video, None if what == "gradcam" else (12.0, 12.0), what=what)
            assert found.tracks[0].map.weights.sum() == pytest.approx(1)

    @pytest.mark.parametrize("family", [*MAKERS, "dinov3"])
    def test_a_model_is_fine_tuned(
        self, family: str, published: dict[str, tuple[nn.Module, Path]], tmp_path: Path
    ) -> None:
        """What `finetune --init-from` builds: the weights as they are but for the head, and gradients reach them."""
        folder = published[family][1] if family in MAKERS else write(IMAGE_MODELS[family](), tmp_path)
        options = FinetuneOptions(init_from=str(folder), train="all", frames=4, size=48)
        recipe = finetune_recipe(options, VideoFacts(30, 2.5, 120), Hardware(False, 16 << 30, 2), num_train=100)
        model, new = build_model(recipe, build_config(recipe, 3))
        assert {name.split(".")[0] for name in new} <= {"head"} if family in MAKERS else {"head", "positions", "blocks"}
        model(clips(4, 48)).square().sum().backward()
        silent = [name for name, p in model.named_parameters() if p.grad is None or not p.grad.isfinite().all()]
        assert not silent
        if family == "dinov3":  # registers of every frame, where frames do not see each other
            by_frame = finetune_recipe(
                replace(options, train="adapter"),
                VideoFacts(30, 2.5, 120),
                Hardware(False, 16 << 30, 2),
                num_train=100,
            )
            adapted, _ = build_model(by_frame, build_config(by_frame, 3))
            assert (adapted.config.attention, adapted.config.num_prefix_tokens) == ("space", 20)
            assert adapted(clips(4, 48)).shape == (2, 3)
        if family == "vjepa2":  # a probe is its readout and its classifier
            probe, _ = build_model(replace(recipe, model=replace(recipe.model, train="head")), model.config)
            trained = {name.split(".")[0] for name, p in probe.named_parameters() if p.requires_grad}
            assert trained == {"readout", "head"}

    def test_another_readout_is_new(self, published: dict[str, tuple[nn.Module, Path]]) -> None:
        """VideoMAE's last norm is in its readout: with another one there is a new norm, and the report has it."""
        for init_from, readout, found in (
            ("videomae", "motion", {"norm.weight", "norm.bias"}),
            ("vivit", "mean", {"readout.norm.weight", "readout.norm.bias"}),
        ):
            options = FinetuneOptions(init_from=str(published[init_from][1]), readout=readout, frames=4, size=32)  # type: ignore[arg-type]
            recipe = finetune_recipe(options, VideoFacts(30, 2.5, 120), Hardware(False, 16 << 30, 2), num_train=100)
            _, new = build_model(recipe, build_config(recipe, 3))
            assert found | {"head.classifier.weight", "head.classifier.bias"} == new

    def test_the_command_finetune(
        self, published: dict[str, tuple[nn.Module, Path]], videos: Path, tmp_path: Path
    ) -> None:
        words = ["finetune", str(videos), "--init-from", str(published["vjepa2"][1]), "--epochs", "1"]
        done = CliRunner().invoke(app, [*words, "--size", "32", "--frames", "4", "--output", str(tmp_path / "run")])
        assert done.exit_code == 0, done.output
        assert load_model(tmp_path / "run" / "model").config.readout == "attentive"

    def test_one_clip_three_families_one_picture_and_one_table(
        self, published: dict[str, tuple[nn.Module, Path]], videos: Path, tmp_path: Path
    ) -> None:
        folders = [str(published[name][1]) for name in ("timesformer", "videomae", "vjepa2")]
        first, *others = folders
        words = ["--point", "12,12", *(word for other in others for word in ("--compare", other))]
        words += ["-o", str(tmp_path / "x.png"), "-o", str(tmp_path / "x.json")]
        done = CliRunner().invoke(app, ["trace", str(next((videos / "up").iterdir())), "--model", first, *words])
        assert done.exit_code == 0, done.output
        assert (tmp_path / "x.png").stat().st_size > 10_000
        assert len(json.loads((tmp_path / "x.json").read_text())) == 3
        done = CliRunner().invoke(app, ["info", "joint-tiny", *folders[1:], "--json"])
        models = json.loads(done.output)["models"]
        assert [one["family"] for one in models] == ["Motionformer", "VideoMAE", "V-JEPA 2"]
        assert [bool(one["not_carried"]) for one in models] == [True, False, False]
        assert any("sampled is not in the files" in note for note in models[1]["notes"])

    @pytest.mark.slow
    @pytest.mark.parametrize("suffix", ["onnx", "pt2"])
    @every
    def test_export(
        self, family: str, suffix: str, published: dict[str, tuple[nn.Module, Path]], tmp_path: Path
    ) -> None:
        report = export_model(load_model(published[family][1]), tmp_path / f"x.{suffix}")
        assert report.agreement.largest <= report.agreement.tolerance
