"""The notebook of the tutorial is made from docs/tutorial.md, is up to date, and runs from first to last cell."""

import os
import runpy
import sys
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

ROOT = Path(__file__).parents[2]
NOTEBOOK = ROOT / "examples/tutorial.ipynb"

RUN = """
import shlex
from typer.testing import CliRunner
from motionformer.cli import app

def run(line):
    name, *words = shlex.split(line, comments=True)
    assert name == "motionformer"
    done = CliRunner().invoke(app, words, catch_exceptions=False)
    print(done.output)
    assert done.exit_code == 0

"""


def test_it_is_up_to_date() -> None:
    make = runpy.run_path(str(ROOT / "docs/notebook.py"))["make_notebook"]
    page = (ROOT / "docs/tutorial.md").read_text(encoding="utf-8")
    assert nbformat.read(NOTEBOOK, as_version=4) == make(page), "run `make notebook`"


def test_it_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    for cell in notebook.cells:
        if cell.source.startswith("%%bash"):  # in the kernel: five times as fast as a process for each command
            cell.source = RUN + "\n".join(f"run({line!r})" for line in cell.source.splitlines()[1:])
    folder = {"metadata": {"path": str(tmp_path)}}
    NotebookClient(notebook, timeout=300, kernel_name="python3", resources=folder).execute()  # raises if a cell fails
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    shown = [str(output.get("text", output.get("data"))) for output in outputs]
    assert any("8 of 8" in text for text in shown), shown
    assert any("'right'" in text for text in shown)
    assert any("image/png" in text for text in shown)
    assert any("torch.Size([2, 37, 64])" in text for text in shown)
