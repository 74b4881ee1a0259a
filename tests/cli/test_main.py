"""What every command does with errors."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from motionformer import cli


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
