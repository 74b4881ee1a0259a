"""A page that runs: a real server on a free port, and a small untrained model behind it."""

import faulthandler
import json
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
import torch

from motionformer import create_model
from motionformer.data.motion import CLASSES
from motionformer.models import Motionformer
from motionformer.serve import Limits
from motionformer.serve.server import _listen, _make_server, _open_app, _page_address

PATIENCE = 120.0
"""Seconds for an answer, and for the end of a server: many times what a busy machine takes."""


@dataclass
class Page:
    """Its address, and a browser's part of the talking."""

    url: str
    folder: Path
    session: str = "new"

    def ask(self, path: str, body: bytes | None = None, method: str | None = None, **query: Any) -> tuple[int, bytes]:
        """Status and content."""
        url = f"{self.url}api/{path}?{urlencode(query)}"
        request = urllib.request.Request(url, body, {"X-Session": self.session}, method=method)
        try:
            with urllib.request.urlopen(request, timeout=PATIENCE) as response:
                return response.status, response.read()
        except urllib.error.HTTPError as error:
            return error.code, error.read()

    def get(self, path: str, **options: Any) -> Any:
        status, content = self.ask(path, **options)
        assert status == 200, content
        return json.loads(content)

    def error(self, path: str, **options: Any) -> tuple[int, str]:
        status, content = self.ask(path, **options)
        return status, json.loads(content)["error"]

    def open(self) -> "Page":
        """One more open page."""
        return Page(self.url, self.folder, self.get("start", method="POST")["session"])

    def uploads(self) -> list[Path]:
        return sorted(self.folder.glob("upload-*"))


Run = Callable[..., AbstractContextManager[Page]]


def small_model(attention: str = "trajectory", noise: float = 0.0) -> Motionformer:
    """Untrained, so its maps are near uniform; with noise, they have peaks."""
    model = create_model(
        "motionformer-tiny", depth=2, dim=24, num_heads=3, attention=attention, num_classes=len(CLASSES), labels=CLASSES
    ).eval()
    generator = torch.Generator().manual_seed(0)
    for parameter in model.parameters():
        parameter.data.add_(noise * torch.randn(parameter.shape, generator=generator))
    return model


@contextmanager
def run_page(models: dict[str, Motionformer] | None = None, limits: Limits | None = None) -> Iterator[Page]:
    before = set(page_folders())
    with _listen("127.0.0.1", 0) as listening, _open_app(models or {"small": small_model()}, limits or Limits()) as app:
        (folder,) = set(page_folders()) - before
        server = _make_server(app)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
        thread.start()
        try:
            while not server.started:
                assert thread.is_alive(), "the server did not start"
                time.sleep(0.01)
            yield Page(_page_address(listening, "127.0.0.1"), folder)
        finally:
            server.should_exit = True
            thread.join(PATIENCE)
            if thread.is_alive():  # say where it waits instead of waiting with it
                faulthandler.dump_traceback(sys.__stderr__)
                raise TimeoutError(f"the server had not ended {PATIENCE} s after it was told to; its threads are above")


def page_folders() -> list[Path]:
    import tempfile

    return list(Path(tempfile.gettempdir()).glob("motionformer-page-*"))


@pytest.fixture(scope="session", autouse=True)
def _own_temporary_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """So that pages of other processes are not taken for this one's."""
    import tempfile

    before, tempfile.tempdir = tempfile.tempdir, str(tmp_path_factory.mktemp("pages"))
    yield
    tempfile.tempdir = before


@pytest.fixture(scope="session")
def running() -> Iterator[Page]:
    with run_page() as page:
        yield page


@pytest.fixture
def page(running: Page) -> Iterator[Page]:
    """With a session of its own, closed at the end."""
    opened = running.open()
    yield opened
    opened.ask("close", method="POST")


@pytest.fixture(scope="session")
def clip(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A video of somebody's own: 20 frames of 64 × 48 at 10 a second."""
    from motionformer.data.motion import MotionBenchmark, write_video

    file = tmp_path_factory.mktemp("own") / "mine.mp4"
    frames = MotionBenchmark("easy", "val", 1, frames=20, size=64)[0].frames[:, :48].numpy()
    write_video(file, frames, 10)
    return file
