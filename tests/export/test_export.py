"""Exported files compute what the model computes, say how to feed them, and appear only when they do."""

import json
from pathlib import Path

import onnx
import onnxruntime
import pytest
import torch
from torch import Tensor

from motionformer import create_model
from motionformer.errors import ExportError
from motionformer.export import FORMATS, export_model
from motionformer.export.check import compare
from motionformer.export.contract import Run
from motionformer.export.pt2 import METADATA
from motionformer.models import AttendConfig, Motionformer

MODELS = {
    "trajectory": ("motionformer-tiny", {}),
    "orthoformer": ("motionformer-tiny", {"attend": AttendConfig("orthoformer", 4)}),
    "orthoformer per frame": ("motionformer-tiny", {"attend": AttendConfig("orthoformer", 4, shared=False)}),
    "subsampled keys": (
        "motionformer-tiny",
        {"attend": AttendConfig("orthoformer", 4, candidates="queries+keys", subsample=4)},
    ),
    "improved": ("motionformer-tiny", {"attend": AttendConfig("orthoformer", 4, refine=True, ridge=0.01)}),
    "nystrom": ("motionformer-tiny", {"attend": AttendConfig("nystrom", 4)}),
    "performer": ("motionformer-tiny", {"attend": "performer"}),
    "joint": ("joint-tiny", {}),
    "divided": ("divided-tiny", {}),
}


def small(name: str, **changes: object) -> Motionformer:
    """One block, few tokens, and weights large enough that logits differ from clip to clip."""
    model = create_model(name, **{"depth": 1, "frames": 4, "size": 24, "num_classes": 3, **changes}).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter), alpha=0.05)
    return model


@pytest.mark.parametrize("kind", MODELS)
def test_every_kind_of_model_exports_and_agrees(kind: str, tmp_path: Path) -> None:
    name, changes = MODELS[kind]
    report = export_model(small(name, **changes), tmp_path / "model.pt2")
    assert report.agreement.largest <= 1e-5 < 0.01 < report.agreement.largest_output
    assert len(report.agreement.differences) == 6  # two kinds of clips, three batch sizes


@pytest.mark.parametrize("kind", ["orthoformer", "divided"])
def test_onnxruntime_agrees_at_any_batch(kind: str, tmp_path: Path) -> None:
    name, changes = MODELS[kind]
    model = small(name, num_classes={"verb": 3, "noun": 2}, **changes)
    report = export_model(model, tmp_path / "model.onnx")
    assert report.agreement.largest <= 1e-5 < 0.01 < report.agreement.largest_output
    session = onnxruntime.InferenceSession(report.path, providers=["CPUExecutionProvider"])
    assert session.get_inputs()[0].shape == ["batch", 3, 4, 24, 24]
    clips = torch.randn(7, 3, 4, 24, 24)
    with torch.no_grad():
        expected = model(clips)
    found = dict(zip(("verb", "noun"), session.run(["verb", "noun"], {"clip": clips.numpy()}), strict=True))
    for head in ("verb", "noun"):
        torch.testing.assert_close(torch.from_numpy(found[head]), expected[head], atol=1e-5, rtol=0)
    operators = {node.domain for node in onnx.load(report.path).graph.node}
    assert operators <= {"", "ai.onnx"}  # nothing that another runtime would have to know


def test_the_file_says_how_to_feed_it(tmp_path: Path) -> None:
    labels = ("left", "right", "café")
    model = small("joint-tiny", labels=labels)
    for suffix in FORMATS:
        report = export_model(model, tmp_path / f"model{suffix}")
        beside = json.loads(report.sidecar.read_text(encoding="utf-8"))
        assert beside["labels"] == list(labels)
        assert beside["outputs"] == ["logits"]
        assert beside["clip"]["stride"] == model.config.input.stride
        assert beside["clip"]["mean"] == list(model.config.input.mean)
        assert beside["clip"]["channels"] == "RGB"
        assert beside["inputs"] == {"clip": ["batch", 3, 4, 24, 24]}
    inside = {p.key: json.loads(p.value) for p in onnx.load(tmp_path / "model.onnx").metadata_props if p.key in beside}
    assert inside == beside
    archive = {METADATA: ""}
    torch.export.load(tmp_path / "model.pt2", extra_files=archive)
    assert json.loads(archive[METADATA]) == beside


def test_a_file_that_computes_something_else_is_refused_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Wrong(type(FORMATS[".pt2"])):  # type: ignore[misc]
        def open(self, path: Path, outputs: tuple[str, ...]) -> Run:
            right = super().open(path, outputs)

            def run(clip: Tensor) -> dict[str, Tensor]:
                return {name: out + (2e-4 if clip.shape[0] == 3 else 0) for name, out in right(clip).items()}

            return run

    monkeypatch.setattr("motionformer.export.write.FORMATS", {".pt2": Wrong()})
    target = tmp_path / "model.pt2"
    target.write_text("an older file")
    with pytest.raises(ExportError, match=r"differs from this one by 0\.0002 \(noise, batch of 3\)"):
        export_model(small("joint-tiny"), target)
    assert [p.name for p in tmp_path.iterdir()] == ["model.pt2"]
    assert target.read_text() == "an older file"


def test_not_a_number_is_not_agreement() -> None:
    model = small("joint-tiny")
    with pytest.raises(ExportError, match="differs from this one by nan"):
        compare(model, lambda clip: {"logits": torch.full((clip.shape[0], 3), float("nan"))})


def test_training_mode_comes_back_and_is_not_exported(tmp_path: Path) -> None:
    model = small("joint-tiny", drop_path=0.9, depth=2).train()
    export_model(model, tmp_path / "model.pt2")
    assert model.training


def test_unusable_targets_and_sizes_say_why(tmp_path: Path) -> None:
    model = small("joint-tiny")
    with pytest.raises(ExportError, match=r"model.tflite: .* ends in .pt2 or .onnx"):
        export_model(model, tmp_path / "model.tflite")
    with pytest.raises(ExportError, match="there is no folder"):
        export_model(model, tmp_path / "none" / "model.pt2")
    with pytest.raises(ExportError, match="does not divide into tokens"):
        export_model(small("joint-tiny", size=24, frames=5), tmp_path / "model.pt2")
    assert list(tmp_path.iterdir()) == []
