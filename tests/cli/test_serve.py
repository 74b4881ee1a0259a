"""The command `serve`, as a user runs it."""

import json
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

CODE = "from motionformer.cli import main; main()"


def start(*words: str, folder: Path) -> "subprocess.Popen[str]":
    import os

    environment = {**os.environ, "TMPDIR": str(folder), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", CODE, "serve", "--no-browser", *words]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)


def test_it_says_where_it_is_answers_and_leaves_nothing_behind(tmp_path: Path) -> None:
    """With the model that comes with the package: no network, nothing to give."""
    running = start("--port", "0", folder=tmp_path)
    try:
        assert running.stdout is not None
        address = running.stdout.readline().split()[0]
        assert address.startswith("http://127.0.0.1:")
        request = urllib.request.Request(f"{address}api/start", b"", {"X-Session": "new"})
        with urllib.request.urlopen(request) as response:
            found = json.loads(response.read())
        assert found["models"][0]["name"] == "motion-tiny"
        assert list(tmp_path.glob("motionformer-page-*"))
    finally:
        running.send_signal(signal.SIGTERM)
        errors = running.communicate()[1]
    assert not list(tmp_path.glob("motionformer-page-*")), errors
    assert "warning" not in errors


def test_another_host_is_warned_about_and_a_bad_one_is_an_error(tmp_path: Path) -> None:
    done = start("--host", "192.0.2.1", folder=tmp_path)  # an address for documentation: nobody has it
    out, errors = done.communicate()
    assert done.returncode == 1
    assert out == ""
    assert "warning: with --host 192.0.2.1" in errors
    assert "cannot listen on 192.0.2.1:7860" in errors
    assert "Traceback" not in errors


def test_a_model_that_is_not_there_is_said(tmp_path: Path) -> None:
    done = start("--port", "0", "--model", "nowhere", folder=tmp_path)
    _, errors = done.communicate()
    assert done.returncode == 1
    assert "'nowhere' is no file, no folder" in errors
    assert "motion-tiny" in errors
