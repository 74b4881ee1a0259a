"""Hooks of MkDocs: the navigation, the API reference, and the files outside docs/ that pages link to.

Pages are written to be read in the repository, where README.md links to docs/… and pages link to ../README.md. On the
site README is the first page, other Markdown of the root is a page, and any other file that a page links to (recipes,
examples) is served as text. The reference has a page per public package, made from its `__all__` and docstrings.
"""

import importlib
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
    "Guide": (
        *("tutorial", "predicting", "pipeline", "synchformer", "evaluation", "seeing", "training", "recipes", "data"),
        "video",
        *("weights", "blocks", "method", "CONTRIBUTING", "CHANGELOG"),
    ),
    "Commands": ("commands/*",),
    "Reference": ("reference/index", "reference/*", "reliability", "compatibility"),
    "Results": (
        *("results", "reproduction", "fidelity", "benchmarks", "motion-benchmark", "lra", "davis", "decisions"),
    ),
}
"""Every page by section, in reading order."""
INTERNAL = ("cli", "experiments", "serve", "app")
"""Packages without public names: commands, the paper's experiments, the browser page."""
LINK = re.compile(r"(!?\[[^\]]*\]\()([^)\s#]+)((?:#[^)]*)?\))")
FENCE = re.compile(r"^```(\w+)[ \t]+[^\n]+$", re.MULTILINE)  # the words after the language are for the tests


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add what lies outside docs/ and the reference, then list everything."""
    for source in sorted(ROOT.glob("*.md")):
        files.append(File.generated(config, _page_name(source), content=source.read_text(encoding="utf-8")))
    for source in sorted(_linked_files()):
        target = f"files/{source.relative_to(ROOT).as_posix()}"
        if target not in files.src_uris:
            files.append(File.generated(config, target, content=source.read_bytes()))
    if "mkdocstrings" in config.plugins:
        for name, content in reference_pages().items():
            files.append(File.generated(config, name, content=content))
    config.nav = navigation([file.src_uri for file in files.documentation_pages()])
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    here = _written_at(page.file.src_uri)
    markdown = FENCE.sub(r"```\1", markdown)
    return LINK.sub(lambda m: m[1] + _site_link(here, m[2], page.file.src_uri) + m[3], markdown)


def on_nav(nav: Navigation, config: MkDocsConfig, files: Files) -> Navigation:
    """Command pages are named by what is typed after `motionformer`."""
    for page in nav.pages:
        if page.file.src_uri.startswith("commands/"):
            page.title = Path(page.file.src_uri).stem.replace("-", " ")
    return nav


def navigation(pages: list[str]) -> list[Any]:
    """Every page once: the first page, the sections; a page that no section names is under "More"."""
    left = sorted(set(pages) - {INDEX})
    nav: list[Any] = [{"Motionformer": INDEX}]
    for title, names in SECTIONS.items():
        wanted: list[str] = []
        for name in names:
            wanted += [p for p in left if p not in wanted and Path(p).match(f"{name}.md") and _same_depth(p, name)]
        if wanted:
            nav.append({title: wanted})
        left = [page for page in left if page not in wanted]
    return [*nav, {"More": left}] if left else nav


def reference_pages() -> dict[str, str]:
    """The Markdown of every page of the reference, by its name on the site."""
    import motionformer

    exported = {name: getattr(motionformer, name) for name in motionformer.__all__}
    left, pages = dict(exported), {}
    for package in public_packages():
        module = importlib.import_module(package)
        paths = {}
        for name in module.__all__:
            top = name in exported and exported[name] is getattr(module, name)
            paths[name] = f"motionformer.{name}" if top else f"{package}.{name}"
            if top:
                left.pop(name, None)
        about = (module.__doc__ or "").split("\n\n")[0]
        body = "\n".join(f"::: {path}\n" for path in paths.values())
        pages[f"reference/{package.removeprefix('motionformer.')}.md"] = f"# {package}\n\n{about}\n\n{body}"
    rest = "\n".join(f"::: motionformer.{name}\n" for name in left)
    names = ", ".join(f"[`{name}`][motionformer.{name}]" for name in motionformer.__all__)
    about = (motionformer.__doc__ or "").split("\n\n")[0]
    pages["reference/index.md"] = f"# motionformer\n\n{about}\n\n`from motionformer import …`: {names}.\n\n{rest}"
    return {name: f"---\nsearch: {{boost: 4}}\n---\n\n{text}" for name, text in pages.items()}


def public_packages() -> list[str]:
    """Packages and modules that export names (`__all__`), each package before those inside it."""
    import motionformer

    root = Path(motionformer.__path__[0])
    files = [file for file in sorted(root.rglob("*.py")) if re.search(r"^__all__\b", file.read_text(), re.MULTILINE)]
    parts = [file.relative_to(root).with_suffix("").parts for file in files]
    names = [tuple(part for part in path if part != "__init__") for path in parts]
    return [".".join(("motionformer", *name)) for name in sorted(names) if name and name[0] not in INTERNAL]


def _site_link(here: Path, target: str, page: str) -> str:
    """A link of a page as it is written in the repository, as the site needs it."""
    if "://" in target or target.startswith(("mailto:", "/")):
        return target
    path = (here.parent / target).resolve()
    if not path.is_file():
        return target  # a dead link, which stops a strict build
    return posixpath.relpath(_page_name(path), posixpath.dirname(page) or ".")


def _page_name(path: Path) -> str:
    """Where a file of the repository is on the site."""
    if path == ROOT / "README.md":
        return INDEX
    if path.is_relative_to(ROOT / "docs"):
        return path.relative_to(ROOT / "docs").as_posix()
    inside = path.relative_to(ROOT).as_posix()
    return inside if path.suffix == ".md" and path.parent == ROOT else f"files/{inside}"


def _written_at(page: str) -> Path:
    """The file in the repository that a page of the site comes from."""
    if page == INDEX:
        return ROOT / "README.md"
    inside = ROOT / "docs" / page
    return inside if inside.exists() else ROOT / page


def _linked_files() -> set[Path]:
    """Files outside docs/ that a page links to and that are no pages themselves."""
    found = set()
    for page in (*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")):
        for _, target, _ in LINK.findall(page.read_text(encoding="utf-8")):
            path = (page.parent / target).resolve()
            if "://" not in target and path.is_file() and _page_name(path).startswith("files/"):
                found.add(path)
    return found


def _same_depth(page: str, name: str) -> bool:
    return page.count("/") == name.count("/")
