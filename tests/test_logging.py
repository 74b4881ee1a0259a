"""What a command shows of the package's logger."""

import logging

import pytest

from motionformer.logging import logger, show_messages


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


def test_other_ranks_show_warnings_only(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "1")
    with show_messages(logging.INFO):
        logger.info("resumes")
        logger.warning("damaged")
    assert capsys.readouterr().err == "warning: damaged\n"
