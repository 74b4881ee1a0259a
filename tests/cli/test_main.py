"""What every command does with errors."""

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
