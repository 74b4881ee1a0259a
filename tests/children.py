"""Processes of their own that start at once, without the tests' run-time checks.

A fork server imports PyTorch and the package a single time and trains one small model, which loads what PyTorch loads
late; each process is a fork of it. What depends on a fresh interpreter (what is imported, memory, `main` itself) takes
`subprocess`.
"""

import multiprocessing
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any


def start_child(function: Callable[..., None], *args: Any) -> BaseProcess:
    """Start the function in a process."""
    from multiprocessing.forkserver import ensure_running

    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.warm"])
    before = os.environ.get("PYTHONHASHSEED")
    os.environ["PYTHONHASHSEED"] = "0"  # of the server, thus of all: the order of sets in generated code
    try:
        ensure_running()
    finally:
        os.environ.pop("PYTHONHASHSEED") if before is None else os.environ.update(PYTHONHASHSEED=before)
    process = context.Process(target=function, args=args)
    process.start()
    return process


class Running:
    """A process that runs code, and what it prints."""

    def __init__(
        self, code: str, *argv: str, env: Mapping[str, str] | None = None, cwd: str | Path | None = None
    ) -> None:
        self.folder = tempfile.TemporaryDirectory(prefix="motionformer-child-")
        streams = [str(Path(self.folder.name) / name) for name in ("stdout", "stderr")]
        self.code, self.streams = code, streams
        self.process = start_child(
            _run_code, code, argv, dict(os.environ if env is None else env), str(cwd or Path.cwd()), streams
        )

    def wait(self, seconds: float = 1800) -> subprocess.CompletedProcess[str]:
        """Its exit code and output; killed, with exit code -9, if it does not end in time."""
        self.process.join(seconds)
        if self.process.exitcode is None:
            self.process.kill()
            self.process.join()
        printed = [Path(stream).read_text(errors="surrogateescape") for stream in self.streams]
        self.folder.cleanup()
        assert self.process.exitcode is not None
        return subprocess.CompletedProcess(self.code, self.process.exitcode, *printed)


def run_code(code: str, *argv: str, **options: Any) -> subprocess.CompletedProcess[str]:
    """Run code in a process: as `python -c code`, in seconds less. `options` of `Running`."""
    return Running(code, *argv, **options).wait()


def _run_code(code: str, argv: tuple[str, ...], env: dict[str, str], cwd: str, streams: list[str]) -> None:
    for number, stream in enumerate(streams, 1):
        os.dup2(os.open(stream, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), number)
    sys.stdout, sys.stderr = (open(number, "w", closefd=False) for number in (1, 2))  # noqa: SIM115
    multiprocessing.set_start_method("fork", force=True)  # as from a shell
    os.environ.clear()
    os.environ.update(env)
    os.chdir(cwd)
    sys.argv = ["-c", *argv]
    sys.path.insert(0, "")
    exec(compile(code, "<string>", "exec"), {"__name__": "__main__"})
