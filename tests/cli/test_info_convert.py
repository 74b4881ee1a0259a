"""The commands `info` and `convert`, as a user runs them."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from motionformer import load_model
from motionformer.cli import app
from tests.children import run_code
from tests.parity_files import PARITY

TINY = str(PARITY / "tiny_official.pyth")


def run(*words: str) -> str:
    result = CliRunner().invoke(app, list(words), catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


def fail(*words: str) -> subprocess.CompletedProcess[str]:
    """The command in a process of its own: exit code and message as a user sees them."""
    return run_code("from motionformer.cli import main; main()", *words)


def count(*words: str) -> str:
    """`info` of a large model, in a process of its own: with run-time shape checks it takes three times as long."""
    done = run_code("from motionformer.cli import main; main()", "info", *words)
    assert done.returncode == 0, done.stderr
    return done.stdout


class TestInfo:
    def test_a_table_for_people(self) -> None:
        out = count("motionformer-base")
        assert "109.1 M" in out
        assert "369.51 G" in out
        assert "216.68 G" in out

    def test_json_for_scripts(self) -> None:
        out = json.loads(
            run("info", "motionformer-tiny", "--frames", "16", "--size", "64", "--batch-size", "2", "--json")
        )
        assert out["grid"] == [8, 8, 8]
        assert out["tokens"] == 513
        assert out["config"]["input"]["frames"] == 16
        fewer = json.loads(run("info", "motionformer-tiny", "--kernel", "orthoformer", "--prototypes", "9", "--json"))
        assert fewer["config"]["kernel"]["num_prototypes"] == 9

    def test_released_names_need_no_download(self) -> None:
        out = json.loads(count("ek_motionformer_224_16x4", "--json"))
        assert out["config"]["num_classes"] == {"verb": 97, "noun": 300}
        assert out["config"]["input"]["channels"] == "BGR"
        assert round(out["gmacs"]) == 204  # without the value projection; 216.68 with it
        assert any("value projection" in reason for reason in out["not_carried"])

    def test_a_file(self) -> None:
        assert json.loads(run("info", TINY, "--json"))["config"]["dim"] == 48

    def test_all_models(self) -> None:
        out = json.loads(run("info", "--json"))
        assert {"motionformer-base", "joint-tiny"} <= {row["model"] for row in out["models"]}
        assert len(out["released"]) == 16
        assert "motionformer-hr" in run("info")

    def test_all_models_fit_into_80_columns(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("COLUMNS", "80")
        out = run("info")
        assert "…" not in out
        assert "motionformer-base-orthoformer" in out
        assert "1,185.20" in out

    def test_errors_are_messages(self) -> None:
        unknown = fail("info", "motionformer-bse")
        assert unknown.returncode == 1
        assert "is no file, no folder, and no released name" in unknown.stderr
        assert "Traceback" not in unknown.stderr
        odd = fail("info", "motionformer-tiny", "--size", "50")
        assert odd.returncode == 1
        assert "`height` (50) must be a multiple of 8, such as 48 or 56." in odd.stderr
        assert "Traceback" not in odd.stderr
        assert fail("info", "motionformer-tiny", "--kernel", "nystrom", "--prototypes", "0").returncode == 2


@pytest.mark.parametrize(
    ("command", "option", "number"),
    [
        ("info", "--num-classes", "-1"),
        ("info", "--tubelet", "0"),
        ("info", "--frames", "-8"),
        ("info", "--size", "0"),
        ("convert", "--num-classes", "-3"),
        ("convert", "--frames", "0"),
        ("convert", "--size", "-48"),
        ("convert", "--heads", "0"),
    ],
)
def test_numbers_that_count_nothing_are_refused(command: str, option: str, number: str, tmp_path: Path) -> None:
    words = ["motionformer-tiny"] if command == "info" else ["motion-tiny", str(tmp_path / "m")]
    result = CliRunner().invoke(app, [command, *words, option, number])
    assert result.exit_code == 2
    assert "should be greater than or equal to" in " ".join(result.output.replace("│", " ").split())
    assert not (tmp_path / "m").exists()


class TestConvert:
    def test_a_released_file(self, tmp_path: Path) -> None:
        names = tmp_path / "names.txt"
        names.write_text("a\nb\nc\nd\ne\n")
        out = run("convert", TINY, str(tmp_path / "m"), "--labels", str(names))
        assert "42 tensors loaded" in out
        assert "the tokeniser that is not used" in out
        model = load_model(tmp_path / "m")
        assert model.config.labels == ("a", "b", "c", "d", "e")

    def test_other_sizes(self, tmp_path: Path) -> None:
        out = run("convert", TINY, str(tmp_path / "m"), "--num-classes", "3", "--frames", "4", "--size", "64")
        assert "reset: head.classifier.weight, head.classifier.bias (5 classes in the file, 3 in the model)" in out
        assert load_model(tmp_path / "m").config.grid == (2, 4, 4)

    def test_image_weights(self, tmp_path: Path) -> None:
        import torch

        from tests.weights.test_image import timm_weights

        torch.save(timm_weights(), tmp_path / "vit.pth")
        words = ("--from-image", "--num-classes", "4", "--frames", "4", "--size", "32", "--attention", "divided")
        out = run("convert", str(tmp_path / "vit.pth"), str(tmp_path / "m"), *words)
        assert "time attention is a copy of space attention with a zero output projection" in out
        assert load_model(tmp_path / "m").config.attention == "divided"

    def test_options_of_image_weights(self, tmp_path: Path) -> None:
        for option, value in (("--attention", "joint"), ("--inflation", "average")):
            result = fail("convert", "motion-tiny", str(tmp_path / "m"), option, value)
            assert result.returncode == 1
            assert "are for image weights: add --from-image" in result.stderr
            assert fail("convert", "motion-tiny", str(tmp_path / "m"), option, "foo").returncode == 2
        assert not (tmp_path / "m").exists()

    def test_nothing_is_overwritten_unasked(self, tmp_path: Path) -> None:
        (tmp_path / "precious.txt").write_text("x")
        result = fail("convert", TINY, str(tmp_path))
        assert result.returncode == 1
        assert "is already there: choose another folder, or add --overwrite" in result.stderr
        run("convert", TINY, str(tmp_path), "--overwrite")
        assert (tmp_path / "precious.txt").exists()

    @pytest.mark.parametrize("lines", ["a\nb\n", "x\n" * 9, ""])
    def test_labels_must_be_as_many_as_classes(self, lines: str, tmp_path: Path) -> None:
        (tmp_path / "names.txt").write_text(lines)
        result = fail("convert", TINY, str(tmp_path / "m"), "--labels", str(tmp_path / "names.txt"))
        assert result.returncode == 1
        assert "names for 5 classes" in result.stderr


def test_help_has_examples_and_imports_no_torch() -> None:
    code = "import sys; import motionformer.cli; print('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip() == "False"
    for command in ("info", "convert"):
        assert "Examples" in run(command, "--help")
