"""START HERE: models become a page in the browser, until it is stopped."""

import ipaddress
import signal
import socket
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import torch
import uvicorn
from starlette.applications import Starlette

from motionformer.data.motion import CLASSES, MotionBenchmark, write_video
from motionformer.errors import PageError
from motionformer.models import InputSpec, Motionformer
from motionformer.serve.models import Models
from motionformer.serve.routes import make_app
from motionformer.serve.sessions import Limits, PageVideo, Sessions
from motionformer.video import open_video
from motionformer.weights.load import MOTION_TINY, load_model, short_name

_LOOPBACK = "127.0.0.1"
_EXAMPLES = (("easy", (15,)), ("easy", (57,)), ("medium", (17,)), ("hard", (55,)), ("easy", (8, 14, 19)))
"""Level, and the clips of the test split that are shown one after the other. The single ones are those of the first 64
whose centre stays 14 pixels of 96 away from the border: beyond it the disc comes back on the other side."""
_EXAMPLE_FRAMES = 12  # of each clip: more than a tiny model's clip, so that it can be moved
_MIN_EXAMPLE_SIZE = 96  # pixels: smaller frames look coarse on a screen


def serve(
    models: Sequence[str] = (MOTION_TINY,),
    *,
    host: str = _LOOPBACK,
    port: int = 7860,
    limits: Limits | None = None,
    on_ready: Callable[[str], None] = print,
    device: str | torch.device | None = None,
) -> None:
    """Serve the browser page until interrupted.

    Args:
        models: names, folders or files of weights, as `load_model` takes them; several are shown side by side.
        host: address to listen on; only this machine can reach the default.
        port: 0 takes any free port.
        limits: on uploads and open pages [default: `Limits()`].
        on_ready: called with the address of the page.
        device: to compute on [default: the CPU].

    Raises:
        PageError: the server cannot listen on the address.

    Example:
        ```python
        from motionformer.serve import Limits, serve

        serve(["motion-tiny"], port=0, limits=Limits(seconds=20.0))
        ```
    """
    if threading.current_thread() is threading.main_thread():
        # a plain SIGTERM ends Python at once, and uploads would stay behind; this way every `with` is left
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    with _listen(host, port) as listening:
        loaded = _load_models(models)
        if device is not None:
            for model in loaded.values():
                model.to(device)
        with _open_app(loaded, limits or Limits(), host) as app:
            on_ready(_page_address(listening, host))
            _make_server(app).run(sockets=[listening])


@contextmanager
def _open_app(models: dict[str, Motionformer], limits: Limits, host: str = _LOOPBACK) -> Iterator[Starlette]:
    """The application, and the temporary folder of its example clips and uploads."""
    with tempfile.TemporaryDirectory(prefix="motionformer-page-") as folder:
        examples = _make_examples(Path(folder), next(iter(models.values())).config.input)
        yield make_app(Models(models), examples, Sessions(Path(folder), limits), _allowed_hosts(host))


def _load_models(sources: Sequence[str]) -> dict[str, Motionformer]:
    """Models by short names that differ."""
    models: dict[str, Motionformer] = {}
    for source in sources:
        model = load_model(source)
        name = short_name(source)
        models[name if name not in models else f"{name} ({len(models) + 1})"] = model
    return models


def _make_server(app: Starlette) -> uvicorn.Server:
    # quiet: requests contain the names of uploads
    config = uvicorn.Config(
        app, log_level="warning", access_log=False, timeout_keep_alive=5, timeout_graceful_shutdown=3
    )
    return uvicorn.Server(config)


def _listen(host: str, port: int) -> socket.socket:
    """A socket that is bound before anything is loaded, so that a port in use is reported at once."""
    try:
        return socket.create_server((host, port))
    except OSError as error:
        raise PageError(
            f"cannot listen on {host}:{port} ({error.strerror or error}). Another server may be running: stop it, or "
            f"use another --port (0 takes any free one)."
        ) from error


def _page_address(listening: socket.socket, host: str) -> str:
    shown = _LOOPBACK if host in ("0.0.0.0", "") else host
    return f"http://{shown}:{listening.getsockname()[1]}/"


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach the address."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _allowed_hosts(host: str) -> list[str]:
    """Host names that requests may use. On loopback, only its own: otherwise a domain that points at 127.0.0.1 could
    read this page."""
    return [_LOOPBACK, "localhost", host] if is_loopback(host) else ["*"]


def _make_examples(folder: Path, spec: InputSpec) -> dict[str, PageVideo]:
    """Clips of the motion benchmark as files, by id. They move one step of the level per step of the model's clip."""
    size = max(_MIN_EXAMPLE_SIZE, min(spec.height, spec.width) // 2 * 2)
    fps = max(1, round((spec.fps or 30.0) / spec.stride)) if spec.sampling == "stride" else 8
    made = {}
    for index, (level, numbers) in enumerate(_EXAMPLES):
        benchmark = MotionBenchmark(level, "test", max(numbers) + 1, frames=_EXAMPLE_FRAMES, size=size)
        parts = [benchmark[number] for number in numbers]
        path = folder / f"example-{index}.mp4"
        write_video(path, torch.cat([part.frames for part in parts]).numpy(), fps)
        name = f"{level}: {', '.join(CLASSES[part.label] for part in parts)}"
        with open_video(path) as video:
            truth = torch.cat([part.path for part in parts])
            made[f"example-{index}"] = PageVideo(name, path, video.metadata, truth)
    return made
