"""`motionformer doctor`; and which extra of this package a missing dependency belongs to, and how to install it.

Never by the package's bare name: it is not on a package index, and what is published there one day may be another.
"""

import json
import os
import platform
import shlex
import shutil
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import typer

from motionformer.cli.options import JsonOption

_CODECS = ("h264", "hevc", "vp8", "vp9", "av1", "mpeg4", "mpeg2video", "mjpeg", "png")

DOCTOR_HELP = """Show versions, decoders, devices and memory, and what is missing and how to get it.

**Examples**

    motionformer doctor

    motionformer doctor --json > report.json
"""


def doctor(as_json: JsonOption = False) -> None:
    report = _examine()
    if as_json:
        typer.echo(json.dumps(report, indent=1))
    else:
        _print_report(report)


def _examine() -> dict[str, Any]:
    """Everything the command shows, as plain values."""
    return {
        "versions": _versions(),
        "decoders": {"pyav": _pyav()},
        "devices": _devices(),
        "machine": _machine(),
        "extras": _extras(),
    }


def _versions() -> dict[str, str | None]:
    names = ["motionformer", "torch", "numpy", "av", "fsspec", "safetensors", "huggingface-hub"]
    return {"python": platform.python_version(), "system": platform.platform()} | {
        name: _version(name) for name in names
    }


def _version(name: str) -> str | None:
    from importlib.metadata import PackageNotFoundError, version  # brings email and csv: too slow for `--help`

    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _pyav() -> dict[str, Any]:
    """What decodes videos, with the reason where it does not load."""
    try:
        import av
    except (ImportError, OSError) as error:
        return {"works": False, "reason": str(error), "get": "pip install --force-reinstall av"}
    libraries = {name: ".".join(map(str, version)) for name, version in av.library_versions.items()}
    codecs = {codec: codec in av.codecs_available for codec in _CODECS}
    return {"works": True, "libraries": libraries, "codecs": codecs}


def _devices() -> list[dict[str, Any]]:
    import torch

    found = []
    for index in range(torch.cuda.device_count()):
        properties = torch.cuda.get_device_properties(index)
        found.append({"device": f"cuda:{index}", "name": properties.name, "memory": properties.total_memory})
    if torch.backends.mps.is_available():
        found.append({"device": "mps", "name": "Apple GPU", "memory": None})
    return [*found, {"device": "cpu", "name": platform.processor() or platform.machine(), "memory": _memory()}]


def _machine() -> dict[str, Any]:
    import torch

    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    shared = shutil.disk_usage("/dev/shm").free if Path("/dev/shm").is_dir() else None
    return {
        "cores": os.cpu_count(),
        "usable cores": usable,
        "torch threads": torch.get_num_threads(),
        "memory": _memory(),
        "shared memory free": shared,  # loader workers send clips through it
    }


def _memory() -> int | None:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return None


def _extras() -> dict[str, dict[str, Any]]:
    """For each extra of this package: what of it is missing or too old, and the command that gets it."""
    from importlib.metadata import metadata

    found = {}
    for extra in metadata(_PACKAGE).get_all("Provides-Extra") or []:
        missing = [text for text in _requirements_of(extra) if not _is_installed(text)]
        found[extra] = {"missing": missing, "get": install_command(extra) if missing else None}
    return found


def _is_installed(text: str) -> bool:
    """Whether a requirement such as `kornia>=0.8` is there."""
    from packaging.requirements import Requirement

    requirement = Requirement(text)
    version = _version(requirement.name)
    return version is not None and requirement.specifier.contains(version, prereleases=True)


def _print_report(report: dict[str, Any]) -> None:
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    table = Table(show_header=False, box=None, pad_edge=False)
    table.add_column(style="bold")
    table.add_column(overflow="fold")
    for name, version in report["versions"].items():
        table.add_row(name, version or "missing")
    for name, facts in report["decoders"].items():
        table.add_row(name, escape(_decoder_line(facts)))
    for device in report["devices"]:
        table.add_row(device["device"], escape(f"{device['name']}, {_gigabytes(device['memory'])}"))
    for name, value in report["machine"].items():
        table.add_row(name, _gigabytes(value) if "memory" in name else str(value))
    for extra, facts in report["extras"].items():
        lacks = ", ".join(facts["missing"])
        table.add_row(escape(f"[{extra}]"), escape(f"lacks {lacks}: {facts['get']}" if lacks else "complete"))
    Console().print(table)


def _decoder_line(facts: dict[str, Any]) -> str:
    if not facts["works"]:
        return f"does not work: {facts['reason']}; {facts['get']}"
    has = ", ".join(codec for codec, there in facts["codecs"].items() if there)
    lacks = ", ".join(codec for codec, there in facts["codecs"].items() if not there)
    version = facts["libraries"].get("libavcodec", "?")
    return f"works; libavcodec {version}; reads {has}" + (f"; does not read {lacks}" if lacks else "")


def _gigabytes(number: int | None) -> str:
    return "unknown memory" if number is None else f"{number / 1e9:.1f} GB"


_PACKAGE = "motionformer"
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
    "openvino": "openvino",
    "transformers": "hf",
    "accelerate": "hf",
    "peft": "peft",
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
    needed = _requirements_of(extra) or [module for module, of in EXTRA_OF.items() if of == extra]
    return _of_source(extra, _source()) or shlex.join(["pip", "install", *needed])


def _requirements_of(extra: str) -> list[str]:
    """What the extra asks for, as names and versions of other packages; of extras that it consists of, theirs."""
    from importlib.metadata import PackageNotFoundError, requires

    from packaging.requirements import Requirement

    found: dict[str, None] = {}
    try:
        listed = requires(_PACKAGE) or []
    except PackageNotFoundError:  # run from a checkout that is not installed
        return []
    for requirement in map(Requirement, listed):
        marker = requirement.marker
        if marker is None or marker.evaluate({"extra": ""}) or not marker.evaluate({"extra": extra}):
            continue
        if requirement.name == _PACKAGE:
            found |= dict.fromkeys(text for part in sorted(requirement.extras) for text in _requirements_of(part))
        else:
            found[f"{requirement.name}{requirement.specifier}"] = None
    return list(found)


@cache
def _source() -> dict[str, object]:
    """Where pip installed this package from (PEP 610); empty where that is not recorded."""
    from importlib.metadata import PackageNotFoundError, distribution

    try:
        found = json.loads(distribution(_PACKAGE).read_text("direct_url.json") or "{}")
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
    return shlex.join(["pip", "install", f"{_PACKAGE}[{extra}] @ {url}{part}"])
