"""`motionformer doctor`"""

import json as json_module
import os
import platform
import shutil
from pathlib import Path
from typing import Annotated, Any

import typer

from motionformer.cli.extras import PACKAGE, install_command, requirements_of

CODECS = ("h264", "hevc", "vp8", "vp9", "av1", "mpeg4", "mpeg2video", "mjpeg", "png")

DOCTOR_HELP = """Show versions, decoders, devices and memory, and what is missing and how to get it.

**Examples**

    motionformer doctor

    motionformer doctor --json > report.json
"""


def doctor(json: Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")] = False) -> None:
    report = examine()
    if json:
        typer.echo(json_module.dumps(report, indent=1))
    else:
        _print_report(report)


def examine() -> dict[str, Any]:
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
    codecs = {codec: codec in av.codecs_available for codec in CODECS}
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
    for extra in metadata(PACKAGE).get_all("Provides-Extra") or []:
        missing = [text for text in requirements_of(extra) if not _is_installed(text)]
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
