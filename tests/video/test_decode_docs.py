"""The example in docs/video.md runs, and prints what it says it prints."""

import re
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs/video.md"


def test_the_example_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    code, *_ = re.findall(r"```python\n(.*?)```", PAGE.read_text(), flags=re.DOTALL)  # tests/docs runs the others
    monkeypatch.chdir(tmp_path)
    exec(compile(code, str(PAGE), "exec"), {})
    promised = re.findall(r"print\(.*\)  # (.*)", code)
    assert capsys.readouterr().out.splitlines() == promised
