"""Which extra of this package a missing dependency belongs to, and the command that installs it.

Never by the package's bare name: it is not on a package index, and what is published there one day may be another.
"""

import json
import shlex
from functools import cache
from pathlib import Path
from urllib.parse import unquote, urlsplit

PACKAGE = "motionformer"
EXTRA_OF = {
    "lightning": "train",
    "torchmetrics": "train",
    "omegaconf": "train",
    "tensorboard": "train",
    "matplotlib": "train",
    "jinja2": "train",
    "starlette": "serve",
    "uvicorn": "serve",
    "PIL": "serve",
    "onnx": "export",
    "onnxscript": "export",
    "onnxruntime": "export",
}
"""By the name of the module that could not be imported."""


def install_command(extra: str) -> str:
    """The command that adds an extra to this installation, for the way in which it was installed.

    Args:
        extra: such as `train`.

    Returns:
        Of a checkout: `pip install -c constraints.txt -e '/path[train]'`. Of a wheel, an address or a repository: that
        again (PEP 508's `name @ address`). Otherwise, or where that file is gone: the packages by their own names.
    """
    needed = requirements_of(extra) or [module for module, of in EXTRA_OF.items() if of == extra]
    return _of_source(extra, _source()) or shlex.join(["pip", "install", *needed])


def requirements_of(extra: str) -> list[str]:
    """What the extra asks for, as names and versions of other packages; of extras that it consists of, theirs."""
    from importlib.metadata import PackageNotFoundError, requires

    from packaging.requirements import Requirement

    found: dict[str, None] = {}
    try:
        listed = requires(PACKAGE) or []
    except PackageNotFoundError:  # run from a checkout that is not installed
        return []
    for requirement in map(Requirement, listed):
        marker = requirement.marker
        if marker is None or marker.evaluate({"extra": ""}) or not marker.evaluate({"extra": extra}):
            continue
        if requirement.name == PACKAGE:
            found |= dict.fromkeys(text for part in sorted(requirement.extras) for text in requirements_of(part))
        else:
            found[f"{requirement.name}{requirement.specifier}"] = None
    return list(found)


@cache
def _source() -> dict[str, object]:
    """Where pip installed this package from (PEP 610); empty where that is not recorded."""
    from importlib.metadata import PackageNotFoundError, distribution

    try:
        found = json.loads(distribution(PACKAGE).read_text("direct_url.json") or "{}")
    except (PackageNotFoundError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _of_source(extra: str, source: dict[str, object]) -> str | None:
    """The same source again with the extra, if it is still there."""
    url = str(source.get("url", ""))
    address = urlsplit(url)
    local = Path(unquote(address.path)) if address.scheme == "file" else None
    if not url or (local is not None and not local.exists()):
        return None
    folder, version = source.get("dir_info"), source.get("vcs_info")
    if isinstance(folder, dict) and local is not None:
        constraints = local / "constraints.txt"
        pinned = ["-c", str(constraints)] if constraints.is_file() else []
        return shlex.join(["pip", "install", *pinned, *(["-e"] if folder.get("editable") else []), f"{local}[{extra}]"])
    if isinstance(version, dict):
        url = f"{version.get('vcs', 'git')}+{url}@{version.get('commit_id', 'HEAD')}"
    part = f"#subdirectory={source['subdirectory']}" if source.get("subdirectory") else ""
    return shlex.join(["pip", "install", f"{PACKAGE}[{extra}] @ {url}{part}"])
