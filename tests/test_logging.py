"""What a command shows of the package's logger."""

import logging

import pytest
from rich.console import Console

from motionformer.logging import logger, progress_bar, show_messages


def test_messages_and_warnings_go_to_stderr_inside_the_block(capsys: pytest.CaptureFixture[str]) -> None:
    with show_messages():
        logger.info("resumes at step 3 of [9]")
        logger.warning("clip.mp4 is damaged")
    logger.info("after the block")
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err == "resumes at step 3 of [9]\nwarning: clip.mp4 is damaged\n"


def test_quiet_shows_errors_only(capsys: pytest.CaptureFixture[str]) -> None:
    with show_messages(None):
        logger.warning("clip.mp4 is damaged")
        logger.error("no video could be read")
    assert capsys.readouterr().err == "error: no video could be read\n"


def as_rank_one(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("RANK", "1"), ("WORLD_SIZE", "2"), ("MASTER_PORT", "29500")):
        monkeypatch.setenv(name, value)


def test_other_ranks_show_warnings_only(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    as_rank_one(monkeypatch)
    with show_messages(logging.INFO):
        logger.info("resumes")
        logger.warning("damaged")
    assert capsys.readouterr().err == "warning: damaged\n"


@pytest.mark.parametrize(("in_bytes", "shown"), [(False, "1000000/4000000"), (True, "1.0/4.0 MB")])
def test_a_bar_is_on_stderr_of_a_terminal_of_rank_zero(
    in_bytes: bool, shown: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def draw() -> str:
        with progress_bar(in_bytes=in_bytes) as bar:
            bar.add_task("a", total=4_000_000, completed=1_000_000)
            bar.refresh()
        captured = capsys.readouterr()
        assert captured.out == ""
        return captured.err

    assert draw() == ""  # no terminal
    terminal = Console(stderr=True, force_terminal=True, width=120, _environ={"TERM": "xterm"})
    monkeypatch.setattr("motionformer.logging.console", terminal)
    assert shown in draw()
    as_rank_one(monkeypatch)
    assert draw() == ""
