"""The documentation builds as a site: every page is in its navigation, every link leads somewhere."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def build(config: Path, target: Path) -> subprocess.CompletedProcess[str]:
    words = [sys.executable, "-m", "mkdocs", "build", "--strict", "-f", str(config), "-d", str(target)]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    return subprocess.run(words, capture_output=True, text=True, env=environment)


def test_it_builds_with_every_page_in_the_navigation(tmp_path: Path) -> None:
    done = build(ROOT / "mkdocs.yml", tmp_path / "site")
    assert done.returncode == 0, done.stderr
    first = (tmp_path / "site/index.html").read_text(encoding="utf-8")
    for page in (ROOT / "docs").rglob("*.md"):
        address = page.relative_to(ROOT / "docs").with_suffix(".html").as_posix()
        assert (tmp_path / "site" / address).is_file()
        assert f'href="{address}" class="md-nav__link"' in first, f"{address} is not in the navigation"
    assert "no-run" not in first  # a word for the tests, not for readers
    assert "excluded from the built site" not in done.stderr  # a link to a file that is left out is no error to MkDocs


def test_a_dead_link_stops_it(tmp_path: Path) -> None:
    for name in ("mkdocs.yml", "docs/site.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text((ROOT / name).read_text(encoding="utf-8"), encoding="utf-8")
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
