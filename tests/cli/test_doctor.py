"""`motionformer doctor`"""

import importlib.metadata
import json
import re
import shlex
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from motionformer import cli
from motionformer.cli import app, doctor
from motionformer.cli.doctor import _requirements_of, install_command

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
        return None if name == "kornia" else installed(name)

    monkeypatch.setattr(doctor, "_version", without_kornia)
    report = doctor._examine()
    extra = report["extras"]["benchmark"]
    assert any(text.startswith("kornia>=") for text in extra["missing"])
    assert extra["get"] == install_command("benchmark")
    printed = runner.invoke(app, ["doctor"]).output
    assert "[benchmark]" in printed
    for facts in report["extras"].values():
        assert "pip install 'motionformer[" not in (facts["get"] or "")


def test_too_old_counts_as_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    installed = doctor._version
    monkeypatch.setattr(doctor, "_version", lambda name: "0.1" if name == "kornia" else installed(name))
    assert any(text.startswith("kornia>=") for text in doctor._examine()["extras"]["benchmark"]["missing"])


def test_nothing_says_to_install_a_package_by_our_name() -> None:
    """Nothing is published under it: a stranger's package would be fetched."""
    root = Path(__file__).parents[2]
    files = [*root.glob("src/**/*.py"), *root.glob("docs/**/*.md"), *root.glob("examples/**/*.py"), root / "README.md"]
    told = re.compile(r"pip install[^\n]* '?motionformer(\[\w+\])?'?(\s|$|`)")
    assert len(files) > 100
    assert [str(file) for file in files if told.search(file.read_text(encoding="utf-8"))] == []


class TestInstallCommand:
    """Of what works for this installation, and of nothing that would fetch a package called motionformer."""

    @pytest.fixture(autouse=True)
    def _source(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.installed_from = lambda **source: monkeypatch.setattr(doctor, "_source", lambda: source)

    def test_an_editable_checkout(self, tmp_path: Path) -> None:
        folder = tmp_path / "my checkout"
        folder.mkdir()
        self.installed_from(url=folder.as_uri(), dir_info={"editable": True})
        assert install_command("train") == f"pip install -e '{folder}[train]'"
        (folder / "constraints.txt").touch()
        assert install_command("train") == f"pip install -c '{folder}/constraints.txt' -e '{folder}[train]'"
        self.installed_from(url=folder.as_uri(), dir_info={})
        assert install_command("train") == f"pip install -c '{folder}/constraints.txt' '{folder}[train]'"

    def test_a_wheel(self, tmp_path: Path) -> None:
        wheel = tmp_path / "motionformer-0.1.0-py3-none-any.whl"
        wheel.touch()
        self.installed_from(url=wheel.as_uri(), archive_info={})
        assert install_command("app") == f"pip install 'motionformer[app] @ {wheel.as_uri()}'"
        wheel.unlink()
        assert install_command("app") == shlex.join(["pip", "install", *_requirements_of("app")])

    def test_an_address_and_a_repository(self) -> None:
        self.installed_from(url="https://a.org/m.whl", archive_info={})
        assert install_command("app") == "pip install 'motionformer[app] @ https://a.org/m.whl'"
        self.installed_from(url="https://a.org/m.git", vcs_info={"vcs": "git", "commit_id": "abc"}, subdirectory="x")
        wanted = "pip install 'motionformer[app] @ git+https://a.org/m.git@abc#subdirectory=x'"
        assert install_command("app") == wanted

    @pytest.mark.parametrize("extra", ["train", "dev"])
    def test_otherwise_the_packages_by_their_own_names(self, extra: str) -> None:
        """Also of `dev`, which consists of other extras of this package."""
        self.installed_from()
        words = shlex.split(install_command(extra))
        assert words[:2] == ["pip", "install"]
        assert any(word.startswith("lightning>=") for word in words)
        assert not any("motionformer" in word for word in words)

    def test_what_a_command_says(self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        def lacking() -> None:
            raise ModuleNotFoundError("No module named 'starlette'", name="starlette.applications")

        self.installed_from()
        monkeypatch.setattr(cli, "app", lacking)
        with pytest.raises(SystemExit, match="1"):
            cli.main()
        said = capsys.readouterr().err
        assert "this command needs starlette.applications: pip install " in said
        assert "'starlette>=" in said
        assert "motionformer" not in said

    def test_metadata_of_pip(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """The file that PEP 610 describes, as pip writes it; without it, or with a broken one, nothing is known."""

        class Installed:
            text: str | None = '{"dir_info": {"editable": true}, "url": "file:///a"}'

            def read_text(self, name: str) -> str | None:
                return self.text if name == "direct_url.json" else None

        monkeypatch.undo()
        monkeypatch.setattr("importlib.metadata.distribution", lambda name: Installed())
        for text, wanted in (
            (Installed.text, {"dir_info": {"editable": True}, "url": "file:///a"}),
            (None, {}),
            ("{", {}),
        ):
            monkeypatch.setattr(Installed, "text", text)
            assert doctor._source.__wrapped__() == wanted


def test_a_checkout_that_is_not_installed_names_the_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "distribution", missing)
    monkeypatch.setattr(importlib.metadata, "requires", missing)
    doctor._source.cache_clear()
    assert _requirements_of("train") == []
    assert install_command("export") == "pip install onnx onnxscript onnxruntime"
    doctor._source.cache_clear()
