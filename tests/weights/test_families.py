"""Video transformers of others: random weights in published files, through transformers' own classes and ours."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from motionformer import Motionformer, load_model
from motionformer.errors import CheckpointError
from motionformer.models.costs import measure, paper_macs
from motionformer.weights import load_model_with_report
from motionformer.weights.families import FAMILIES

transformers = pytest.importorskip("transformers")
SMALL = {"num_hidden_layers": 2, "hidden_size": 48, "num_attention_heads": 4}
VIT = {**SMALL, "intermediate_size": 96, "image_size": 32, "patch_size": 8, "num_frames": 4, "num_labels": 5}


def timesformer(**changes: Any) -> nn.Module:
    return transformers.TimesformerForVideoClassification(transformers.TimesformerConfig(**{**VIT, **changes}))


MAKERS: dict[str, Callable[..., nn.Module]] = {"timesformer": timesformer}
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
            ({"patch_size": [8, 4]}, "must be square"),
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
        file.write_text(json.dumps({"size": {"shortest_edge": 36}, "crop_size": {"height": 48, "width": 48}}))
        model, report = load_model_with_report(folder)
        assert (model.config.input.height, model.config.input.frames) == (32, 4)
        assert "clips of 4 frames of 48 × 48, but config.json is of a model for 4 frames of 32 × 32" in caplog.text
        assert any("resizes the short side to 36" in note for note in report.notes)
        for wrong in ("[]", "{", '{"image_std": [0, 0, 0]}', '{"image_mean": "half"}'):
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
