"""The command `export`, as a user runs it."""

import json
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from motionformer import create_model
from motionformer.cli import app
from motionformer.errors import ExportError, UnknownModelError
from motionformer.export import Agreement, ExportReport
from motionformer.models import Motionformer


@pytest.fixture
def weights(tmp_path: Path) -> Path:
    create_model("joint-tiny", depth=1, num_classes=2, frames=4, size=24).save_pretrained(tmp_path / "weights")
    return tmp_path / "weights"


def test_a_clip_of_another_size_with_labels(weights: Path, tmp_path: Path) -> None:
    (tmp_path / "names.txt").write_text("stop\ngo\n")
    target = tmp_path / "model.pt2"
    words = ["export", str(weights), str(target), "--frames", "8", "--size", "32", "--labels"]
    result = CliRunner().invoke(app, [*words, str(tmp_path / "names.txt"), "--json"])
    assert result.exit_code == 0, result.output
    report = json.loads(result.stdout)
    assert report["largest_difference"] <= report["tolerance"] == 1e-4
    assert json.loads((tmp_path / "model.pt2.json").read_text())["labels"] == ["stop", "go"]
    assert torch.export.load(target).module()(torch.zeros(5, 3, 8, 32, 32)).shape == (5, 2)

    again = CliRunner().invoke(app, ["export", str(weights), str(target)])
    assert isinstance(again.exception, ExportError)
    assert "--overwrite" in str(again.exception)
    table = CliRunner().invoke(app, ["export", str(weights), str(target), "--overwrite"])
    assert table.exit_code == 0, table.output
    assert "allowed 0.0001" in table.stdout


def test_openvino_is_a_suffix(weights: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The export itself is tested in tests/export."""

    def write(model: Motionformer, output: Path) -> ExportReport:
        return ExportReport(output, output.with_suffix(".json"), 1, Agreement({"noise": 1e-6}, 1e-4, 1.0))

    monkeypatch.setattr("motionformer.export.export_model", write)
    result = CliRunner().invoke(app, ["export", str(weights), str(tmp_path / "model"), "--openvino", "--json"])
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["path"] == str(tmp_path / "model.xml")


def test_what_cannot_be_exported_says_why(weights: Path, tmp_path: Path) -> None:
    wrong = CliRunner().invoke(app, ["export", str(weights), str(tmp_path / "model.pth")])
    assert isinstance(wrong.exception, ExportError)
    assert ".pt2 or .onnx" in str(wrong.exception)
    clash = CliRunner().invoke(app, ["export", str(weights), str(tmp_path / "model.onnx"), "--openvino"])
    assert "--openvino writes .xml" in str(clash.exception)
    untrained = CliRunner().invoke(app, ["export", "motionformer-tiny", str(tmp_path / "model.pt2")])
    assert isinstance(untrained.exception, UnknownModelError)
    assert "without weights" in str(untrained.exception)
