"""What turns this folder into a site: the navigation, and the files outside it that its pages link to.

Pages are written to be read in the repository, where README.md links to docs/… and pages link to ../README.md. Here
README becomes the first page, other Markdown of the root becomes a page, and any other file that a page links to
(recipes, examples) is served as text. Hooks of MkDocs; nothing else imports this.
"""

import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.nav import Navigation
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[1]
INDEX = "index.md"
SECTIONS: dict[str, tuple[str, ...]] = {
    "Start": ("tutorial", "method", "walkthrough", "notation", "predicting", "seeing"),
    "Build": ("blocks", "cookbook", "weights"),
    "Data": ("data", "video", "transforms", "motion-benchmark"),
    "Train and measure": ("training", "recipes", "evaluation", "results", "reproduction", "lra", "davis", "benchmarks"),
    "Commands": ("commands/*",),
    "Project": ("decisions", "CONTRIBUTING", "CHANGELOG"),
}
"""Known pages in reading order; those that are not there are left out, all others follow under "More"."""
LINK = re.compile(r"(!?\[[^\]]*\]\()([^)\s#]+)((?:#[^)]*)?\))")
FENCE = re.compile(r"^```(\w+)[ \t]+[^\n]+$", re.MULTILINE)  # the words after the language are for the tests


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add what lies outside docs/, then list everything."""
    for source in sorted(ROOT.glob("*.md")):
        files.append(File.generated(config, page_name(source), content=source.read_text(encoding="utf-8")))
    for source in sorted(linked_files()):
        target = f"files/{source.relative_to(ROOT).as_posix()}"
        if target not in files.src_uris:
            files.append(File.generated(config, target, content=source.read_bytes()))
    config.nav = navigation([file.src_uri for file in files.documentation_pages()])
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    here = written_at(page.file.src_uri)
    markdown = FENCE.sub(r"```\1", markdown)
    return LINK.sub(lambda m: m[1] + site_link(here, m[2], page.file.src_uri) + m[3], markdown)


def navigation(pages: list[str]) -> list[Any]:
    """Every page once: the first page, the sections, the rest."""
    left = sorted(set(pages) - {INDEX})
    nav: list[Any] = [{"Motionformer": INDEX}]
    for title, names in SECTIONS.items():
        wanted = [page for name in names for page in left if Path(page).match(f"{name}.md") and _same_depth(page, name)]
        if wanted:
            nav.append({title: wanted})
        left = [page for page in left if page not in wanted]
    return [*nav, {"More": left}] if left else nav


def site_link(here: Path, target: str, page: str) -> str:
    """A link of a page as it is written in the repository, as the site needs it."""
    if "://" in target or target.startswith(("mailto:", "/")):
        return target
    path = (here.parent / target).resolve()
    if not path.is_file():
        return target  # a dead link: MkDocs says so and, being strict, stops
    return posixpath.relpath(page_name(path), posixpath.dirname(page) or ".")


def page_name(path: Path) -> str:
    """Where a file of the repository is on the site."""
    if path == ROOT / "README.md":
        return INDEX
    if path.is_relative_to(ROOT / "docs"):
        return path.relative_to(ROOT / "docs").as_posix()
    inside = path.relative_to(ROOT).as_posix()
    return inside if path.suffix == ".md" and path.parent == ROOT else f"files/{inside}"


def written_at(page: str) -> Path:
    """The file in the repository that a page of the site comes from."""
    if page == INDEX:
        return ROOT / "README.md"
    inside = ROOT / "docs" / page
    return inside if inside.exists() else ROOT / page


def linked_files() -> set[Path]:
    """Files outside docs/ that a page links to and that are no pages themselves."""
    found = set()
    for page in (*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")):
        for _, target, _ in LINK.findall(page.read_text(encoding="utf-8")):
            path = (page.parent / target).resolve()
            if "://" not in target and path.is_file() and page_name(path).startswith("files/"):
                found.add(path)
    return found


def on_nav(nav: Navigation, config: MkDocsConfig, files: Files) -> Navigation:
    """Command pages are named by what is typed after `motionformer`."""
    for page in nav.pages:
        if page.file.src_uri.startswith("commands/"):
            page.title = Path(page.file.src_uri).stem.replace("-", " ")
    return nav


def _same_depth(page: str, name: str) -> bool:
    return page.count("/") == name.count("/")
