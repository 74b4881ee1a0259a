"""The documentation builds as a site: every page is in its navigation, the reference lists what the package exports and
nothing else, search has an index, and nothing is fetched from elsewhere."""

import functools
import importlib
import importlib.util
import inspect
import json
import os
import pkgutil
import re
import subprocess
import sys
from pathlib import Path
from urllib.parse import urlparse

import pytest

import motionformer

ROOT = Path(__file__).parents[2]
INTERNAL = {"cli", "experiments", "serve", "app"}
"""Commands, the paper's experiments and the browser page export nothing for use in programs."""


def build(config: Path, target: Path) -> subprocess.CompletedProcess[str]:
    words = [sys.executable, "-m", "mkdocs", "build", "--strict", "-f", str(config), "-d", str(target)]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    return subprocess.run(words, capture_output=True, text=True, env=environment)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("site")
    done = build(ROOT / "mkdocs.yml", target)
    assert done.returncode == 0, done.stderr
    assert "excluded from the built site" not in done.stderr  # a link to a file that is left out is no error to MkDocs
    return target


@functools.cache
def exported() -> dict[str, object]:
    """Every public name by the shortest path it can be imported from."""
    top = {f"motionformer.{name}": getattr(motionformer, name) for name in motionformer.__all__}
    found = dict(top)
    for info in pkgutil.walk_packages(motionformer.__path__, "motionformer.", onerror=lambda _: None):
        spec = importlib.util.find_spec(info.name) if info.name.split(".")[1] not in INTERNAL else None
        if spec and spec.origin and "\n__all__" in Path(spec.origin).read_text(encoding="utf-8"):
            module = importlib.import_module(info.name)
            for name in getattr(module, "__all__", ()):
                value = getattr(module, name)
                if top.get(f"motionformer.{name}") is not value:
                    found[f"{info.name}.{name}"] = value
    return found


def test_every_page_is_in_the_navigation_under_one_of_four_sections(site: Path) -> None:
    first = (site / "index.html").read_text(encoding="utf-8")
    for page in (ROOT / "docs").rglob("*.md"):
        address = page.relative_to(ROOT / "docs").with_suffix(".html").as_posix()
        assert (site / address).is_file()
        assert f'href="{address}" class="md-nav__link"' in first, f"{address} is not in the navigation"
    tabs = re.findall(r'<a href="[^"]*" class="md-tabs__link">\s*(.*?)\s*</a>', first, re.DOTALL)
    assert tabs == ["Motionformer", "Guide", "Commands", "Reference", "Results"]  # "More": a page without a section
    assert "no-run" not in first  # a word for the tests, not for readers


def test_the_reference_lists_what_is_exported_and_nothing_else(site: Path) -> None:
    pages = [page.read_text(encoding="utf-8") for page in (site / "reference").glob("*.html")]
    listed = [name for page in pages for name in re.findall(r'<h2 id="(motionformer\.[\w.]+)"', page)]
    assert sorted(listed) == sorted(exported())


def test_what_is_exported_has_a_docstring() -> None:
    callables = {name: value for name, value in exported().items() if callable(value)}
    assert [name for name, value in callables.items() if not inspect.getdoc(value)] == []


def test_nothing_is_fetched_from_elsewhere(site: Path) -> None:
    assert len(list(site.rglob("*.html"))) > 40
    for page in site.rglob("*.html"):
        text = page.read_text(encoding="utf-8")
        loaded = re.findall(r'<(?:script|img|iframe|source|video)\b[^>]*?\bsrc=["\']?([^"\'\s>]+)', text)
        for link in re.findall(r"<link\b[^>]*>", text):
            loaded += re.findall(r'\bhref=["\']?([^"\'\s>]+)', link)
        for address in loaded:
            assert not urlparse(address).netloc, f"{page.name} loads {address}"
    for sheet in site.rglob("*.css"):
        assert not re.search(r"(url\(|@import)\s*[\"']?(https?:)?//", sheet.read_text(encoding="utf-8")), sheet


def test_search_finds_pages_and_names(site: Path) -> None:
    index = json.loads((site / "search/search_index.json").read_text(encoding="utf-8"))
    found = {document["location"] for document in index["docs"]}
    assert {"tutorial.html", "commands/train.html"} <= found
    assert any(location.endswith("#motionformer.create_model") for location in found)


def test_a_dead_link_stops_it(tmp_path: Path) -> None:
    for name in ("mkdocs.yml", "docs/site.py", "docs/site.css"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        text = (ROOT / name).read_text(encoding="utf-8")
        (tmp_path / name).write_text(re.sub(r"  mkdocstrings:\n(    .*\n)*", "", text), encoding="utf-8")
    (tmp_path / "README.md").write_text("# One\n\n[page](docs/page.md) and [file](LICENSE)\n")
    (tmp_path / "LICENSE").write_text("text")
    (tmp_path / "docs/page.md").write_text("# Two\n\n[back](../README.md)\n")
    done = build(tmp_path / "mkdocs.yml", tmp_path / "site")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "site/files/LICENSE").read_text() == "text"
    (tmp_path / "docs/page.md").write_text("# Two\n\n[nowhere](../CONTRIBUTING.md)\n")
    done = build(tmp_path / "mkdocs.yml", tmp_path / "site")
    assert done.returncode != 0
    assert "CONTRIBUTING.md" in done.stderr
