"""The documentation is true: its Python runs as printed, its links lead somewhere, its commands exist."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from motionformer.cli import app

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
BLOCK = re.compile(r"^```(\S+)([^\n]*)\n(.*?)^```", re.MULTILINE | re.DOTALL)
SETUP = {
    "docs/data.md": "from motionformer.data.motion import write_videos; write_videos('videos', 'easy', 40, frames=20)\n"
}
"""What a page takes for granted: a folder of the reader's own videos."""


def blocks(page: Path, language: str) -> list[str]:
    found = BLOCK.findall(page.read_text(encoding="utf-8"))
    return [code for name, words, code in found if name == language and "no-run" not in words]


@pytest.mark.parametrize("page", [p for p in PAGES if blocks(p, "python")], ids=lambda p: str(p.relative_to(ROOT)))
def test_python_runs_as_printed(page: Path, tmp_path: Path) -> None:
    code = SETUP.get(str(page.relative_to(ROOT)), "") + "\n".join(blocks(page, "python"))
    code = code.replace("range(35)", "range(2)").replace("num_workers=4", "num_workers=0")
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8")):
        if "://" not in target:
            assert (page.parent / target).exists(), target


def test_every_command_has_a_page_and_the_readme_names_it() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    for words in (
        ("info",),
        ("convert",),
        ("data", "check"),
        ("data", "shard"),
        ("doctor",),
        ("evaluate",),
        ("compare",),
        ("predict",),
        ("features",),
    ):
        name = "-".join(words)
        assert f"docs/commands/{name}.md" in readme
        help_text = CliRunner().invoke(app, [*words, "--help"]).output
        page = (ROOT / f"docs/commands/{name}.md").read_text(encoding="utf-8")
        for option in set(re.findall(r"`(--[a-z-]+)`", page)):
            assert option in help_text, f"{name} has no {option}"


def test_the_documented_info_commands_run() -> None:
    """Those of info need nothing but the package; the other commands' pages name files of the reader's."""
    lines = [
        line.split("#")[0] for code in blocks(ROOT / "docs/commands/info.md", "bash") for line in code.splitlines()
    ]
    for line in lines[:1] + lines[-2:]:
        result = CliRunner().invoke(app, shlex.split(line)[1:])
        assert result.exit_code == 0, result.output
