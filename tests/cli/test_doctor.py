"""`motionformer doctor`"""

import json

import pytest
import torch
from typer.testing import CliRunner

from motionformer.cli import app, doctor

runner = CliRunner(env={"COLUMNS": "200", "TERM": "dumb"})


def test_tables() -> None:
    result = runner.invoke(app, ["doctor"])
    assert result.exit_code == 0, result.output
    assert torch.__version__.split("+")[0] in result.output
    assert "libavcodec" in result.output
    assert "h264" in result.output


def test_json() -> None:
    report = json.loads(runner.invoke(app, ["doctor", "--json"]).stdout)
    assert set(report) == {"versions", "decoders", "devices", "machine", "extras"}
    assert report["decoders"]["pyav"]["codecs"]["h264"] is True
    assert report["devices"][-1]["device"] == "cpu"


def test_what_is_missing_and_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    installed = doctor._version

    def without_kornia(name: str) -> str | None:
        return None if name in ("kornia", "torchcodec") else installed(name)

    monkeypatch.setattr(doctor, "_version", without_kornia)
    report = doctor.examine()
    extra = report["extras"]["benchmark"]
    assert any(text.startswith("kornia>=") for text in extra["missing"])
    assert extra["get"] == "pip install 'motionformer[benchmark]'"
    assert report["decoders"]["torchcodec"]["get"] == "pip install 'motionformer[torchcodec]'"
    printed = runner.invoke(app, ["doctor"]).output
    assert "pip install 'motionformer[benchmark]'" in printed


def test_too_old_counts_as_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    installed = doctor._version
    monkeypatch.setattr(doctor, "_version", lambda name: "0.1" if name == "kornia" else installed(name))
    assert any(text.startswith("kornia>=") for text in doctor.examine()["extras"]["benchmark"]["missing"])
