"""What every command does with errors, and what all have in common."""

import errno
import json
import os
import shlex
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

import motionformer
from motionformer import cli
from motionformer.cli.options import RENAMED, _rename
from motionformer.deprecation import warn_deprecated
from tests.docs.test_docs import commands


def run_and_fail(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> None:
        raise error

    monkeypatch.setattr(cli, "app", fail)
    cli.main()


def test_a_file_that_cannot_be_written_is_one_message(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(OSError, match="directory") as caught:
        tmp_path.write_text("no")
    with pytest.raises(SystemExit) as ended:
        run_and_fail(caught.value, monkeypatch)
    assert ended.value.code == 1
    assert capsys.readouterr().err == f"error: {tmp_path}: Is a directory\n"


def test_an_error_of_no_file_is_not_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(OSError, match="of something else"):
        run_and_fail(OSError("of something else"), monkeypatch)


def test_names_that_are_no_utf8_are_printed_as_they_are(tmp_path: Path) -> None:
    strange = os.fsencode(tmp_path) + b"/caf\xe9.mp4"
    Path(os.fsdecode(strange)).write_bytes(b"no video")
    words = [sys.executable, "-m", "motionformer", "predict", os.fsdecode(strange), "--model", "motion-tiny"]
    environment = {**os.environ, "PYTHONIOENCODING": "utf-8:strict", "COLUMNS": "300"}
    done = subprocess.run(words, capture_output=True, env=environment)
    assert b"Traceback" not in done.stderr
    assert b"caf\xe9.mp4" in done.stdout + done.stderr


def test_an_error_of_the_system_is_one_message_also_without_a_file(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        run_and_fail(OSError(errno.ENOSPC, "No space left on device"), monkeypatch)
    assert ended.value.code == 1
    assert capsys.readouterr().err == "error: No space left on device\n"


def run_command(*words: str, stdout: int) -> tuple[int, str]:
    """Exit code and what is said on stderr."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    command = [sys.executable, "-m", "motionformer", *words]
    done = subprocess.run(command, stdout=stdout, stderr=subprocess.PIPE, text=True, env=environment)
    return done.returncode, done.stderr


@pytest.mark.parametrize("words", [["--version"], ["--help"]], ids=" ".join)
def test_a_full_standard_output_is_one_message(words: list[str]) -> None:
    """Some is still held back when the command ends, some is not."""
    with Path("/dev/full").open("wb") as full:
        assert run_command(*words, stdout=full.fileno()) == (1, "error: standard output: No space left on device\n")


def test_a_closed_standard_output_is_no_error() -> None:
    command = f"{shlex.quote(sys.executable)} -m motionformer --version >&-"
    assert subprocess.run(command, shell=True, stderr=subprocess.PIPE, text=True).stderr == ""


@pytest.mark.parametrize("words", [["--version"], ["--help"]], ids=" ".join)
def test_a_reader_that_leaves_is_no_error(words: list[str]) -> None:
    end, start = os.pipe()
    os.close(end)
    try:
        assert run_command(*words, stdout=start) == (1, "")
    finally:
        os.close(start)


def test_version(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "argv", ["motionformer", "--version"])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == 0
    assert capsys.readouterr().out == f"motionformer {motionformer.__version__}\n"


def find_command(words: tuple[str, ...]) -> Any:
    command = typer.main.get_command(cli.app)
    for word in words:
        command = command.commands[word]
    return command


@pytest.mark.parametrize("words", list(commands()), ids=" ".join)
def test_examples_have_the_same_heading_everywhere(words: tuple[str, ...]) -> None:
    assert "\n**Examples**\n" in find_command(words).help


@pytest.mark.parametrize(
    "words", [("predict",), ("features",), ("evaluate",), ("track",), ("davis", "evaluate"), ("lra", "train")]
)
def test_devices_are_chosen_alike(words: tuple[str, ...]) -> None:
    device = next(option for option in find_command(words).params if option.name == "device")
    assert device.default == "auto"
    assert device.help == "auto, cpu, cuda, cuda:1, mps."


def test_an_option_of_0_1_is_renamed_in_one_place() -> None:
    for words in commands():
        names = {name for option in find_command(words).params for name in option.opts}
        assert not [old for old, new in RENAMED.items() if old in names and new in names], words


@pytest.mark.parametrize("old", [["--batch", "3"], ["--batch=3"]], ids=" ".join)
def test_an_option_of_0_1_is_read_with_a_warning_that_names_the_new_one(old: list[str]) -> None:
    wanted = ["info", "motionformer-tiny", "--json"]
    done, same = (CliRunner().invoke(cli.app, [*wanted, *words]) for words in (old, ["--batch-size", "3"]))
    assert json.loads(done.stdout) == json.loads(same.stdout)
    assert json.loads(done.stdout)["batch_size"] == 3
    assert done.stderr == "warning: --batch is deprecated and will be removed in 0.3; use --batch-size.\n"
    assert same.stderr == ""


def test_a_name_of_0_1_in_a_file_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Not Python's form, with a line of code that is not the user's; warnings of others keep it."""
    others: list[str] = []

    def work() -> None:
        warn_deprecated("old/config.json: `attend`", "`kernel`")
        warnings.warn("of another package", FutureWarning, stacklevel=1)

    monkeypatch.setattr(cli, "app", work)
    monkeypatch.setattr(warnings, "showwarning", lambda message, *where: others.append(str(message)))
    with warnings.catch_warnings(action="always"):
        cli.main()
    expected = "warning: old/config.json: `attend` is deprecated and will be removed in 0.3; use `kernel`.\n"
    assert capsys.readouterr().err == expected
    assert others == ["of another package"]


@pytest.mark.parametrize(
    ("words", "new"),
    [
        (["info", "motionformer-tiny", "--classes", "3"], "--num-classes"),
        (["evaluate", "motion-tiny", "motion:easy:8", "--classes", "nowhere.txt"], "--class-names"),
        (["data", "check", "pyproject.toml", "--classes", "nowhere.txt"], "--class-names"),
    ],
)
def test_classes_were_a_number_here_and_a_file_there(words: list[str], new: str) -> None:
    done = CliRunner().invoke(cli.app, words)
    assert f"warning: --classes is deprecated and will be removed in 0.3; use {new}.\n" in done.stderr
    assert done.exit_code == (0 if new == "--num-classes" else 2)
    assert new == "--num-classes" or f"for '{new}'" in " ".join(done.stderr.split())


def test_an_option_of_0_1_is_read_in_commands_of_groups(tmp_path: Path) -> None:
    words = [
        "lra",
        "make",
        "pathfinder",
        str(tmp_path),
        *["--train", "4", "--dev", "2", "--test", "2", "--workers", "1"],
    ]
    done = CliRunner().invoke(cli.app, words)
    assert done.exit_code == 0
    assert "use --num-workers." in done.stderr


def test_words_behind_two_dashes_and_unknown_options_are_left_alone() -> None:
    assert list(_rename(["--batch", "1", "--", "--batch"], {"--batch-size"})) == ["--batch-size", "1", "--", "--batch"]
    assert list(_rename(["--batch", "1"], {"--json"})) == ["--batch", "1"]
