"""The documentation is true: its Python runs as printed, its links lead somewhere, its commands exist."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from motionformer.cli import app
from tests.children import run_code

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


RUN_HERE = [p for p in PAGES if blocks(p, "python") and p.name != "tutorial.md"]
"""The tutorial runs as a notebook (tests/examples/test_tutorial.py), with its commands."""


@pytest.mark.parametrize("page", RUN_HERE, ids=lambda p: str(p.relative_to(ROOT)))
def test_python_runs_as_printed(page: Path, tmp_path: Path) -> None:
    code = SETUP.get(str(page.relative_to(ROOT)), "") + "\n".join(blocks(page, "python"))
    code = code.replace("range(35)", "range(2)").replace("num_workers=4", "num_workers=0")
    done = run_code(code, cwd=tmp_path)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8")):
        if "://" not in target:
            assert (page.parent / target).exists(), target


def test_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= 150


@pytest.mark.parametrize("page", [p for p in PAGES if p.stem not in ("CHANGELOG", "decisions")], ids=lambda p: p.stem)
def test_files_that_are_named_exist(page: Path) -> None:
    folders = "src|tests|docs|benchmarks|examples|recipes"
    for name in re.findall(rf"`((?:{folders})/[a-z0-9_/.-]+\.[a-z0-9]+)`", page.read_text(encoding="utf-8")):
        assert (ROOT / name).exists(), name


def commands() -> Iterator[tuple[str, ...]]:
    """Every command there is, by its words."""
    for name, command in typer.main.get_command(app).commands.items():
        yield from ((name, inner) for inner in command.commands) if hasattr(command, "commands") else [(name,)]


@pytest.mark.parametrize("words", list(commands()), ids=" ".join)
def test_every_command_has_a_page_and_the_readme_names_it(words: tuple[str, ...]) -> None:
    pages = [ROOT / f"docs/commands/{name}.md" for name in ("-".join(words), words[0])]
    page = next((page for page in pages if page.is_file()), None)
    assert page is not None, f"no page for {' '.join(words)}"
    assert f"docs/commands/{page.name}" in (ROOT / "README.md").read_text(encoding="utf-8")
    assert " ".join(("motionformer", *words)) in page.read_text(encoding="utf-8")


@pytest.mark.parametrize("page", sorted((ROOT / "docs/commands").glob("*.md")), ids=lambda page: page.stem)
def test_the_options_a_page_names_exist(page: Path) -> None:
    mine = [words for words in commands() if "-".join(words) == page.stem or words[0] == page.stem]
    assert mine, f"{page.name} is the page of no command"
    known = "".join(CliRunner().invoke(app, [*words, "--help"]).output for words in mine)
    for option in set(re.findall(r"`(--[a-z-]+)`", page.read_text(encoding="utf-8"))):
        assert re.search(rf"{option}(?![a-z-])", known), f"{page.stem} has no {option}"


def test_the_documented_info_commands_run() -> None:
    """Those of info need nothing but the package; the other commands' pages name files of the reader's.

    Counting a base model takes seconds: those that tests/cli/test_info_convert.py counts are left to it.
    """
    lines = [
        line.split("#")[0] for code in blocks(ROOT / "docs/commands/info.md", "bash") for line in code.splitlines()
    ]
    for line in lines[:1] + lines[-2:-1]:
        done = run_code("from motionformer.cli import main; main()", *shlex.split(line)[1:])  # shape checks are slow
        assert done.returncode == 0, done.stderr
