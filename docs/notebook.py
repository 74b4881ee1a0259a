"""Write examples/tutorial.ipynb from docs/tutorial.md: `python docs/notebook.py`, or `make notebook`.

Python blocks and bash blocks marked `run` become cells that run; everything else is text.
"""

import re
from pathlib import Path

import nbformat
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

ROOT = Path(__file__).parents[1]
SOURCE, TARGET = ROOT / "docs/tutorial.md", ROOT / "examples/tutorial.ipynb"
RUNS = re.compile(r"^```(python[^\n]*|bash run)\n(.*?)^```\n", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\((?!https?://|#)([^)]+)\)")


def make_notebook(markdown: str) -> nbformat.NotebookNode:
    """A notebook without outputs."""
    cells, end = [], 0
    for block in RUNS.finditer(markdown):
        cells += [_text(markdown[end : block.start()]), _code(block[1], block[2])]
        end = block.end()
    cells = [cell for cell in (*cells, _text(markdown[end:])) if cell.source]
    for number, cell in enumerate(cells):
        cell.id = f"cell-{number}"  # random otherwise
    kernel = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
    return new_notebook(cells=cells, metadata=kernel)


def _text(markdown: str) -> nbformat.NotebookNode:
    return new_markdown_cell(LINK.sub(lambda m: f"]({_from_examples(m[1])})", markdown.strip()))


def _code(kind: str, code: str) -> nbformat.NotebookNode:
    return new_code_cell((code if kind.startswith("python") else f"%%bash -e\n{code}").strip())


def _from_examples(target: str) -> str:
    return target.removeprefix("../examples/") if target.startswith("../examples/") else f"../docs/{target}"


if __name__ == "__main__":
    nbformat.write(make_notebook(SOURCE.read_text(encoding="utf-8")), TARGET)
