"""START HERE: models by name become a page in the browser, until it is stopped."""

import ipaddress
import signal
import socket
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import uvicorn
from starlette.applications import Starlette

from motionformer.app.limits import Limits
from motionformer.app.questions import Models
from motionformer.app.ready import make_ready_clips
from motionformer.app.routes import make_app
from motionformer.app.visitors import Visitors
from motionformer.errors import PageError
from motionformer.models import Motionformer
from motionformer.weights.load import MOTION_TINY, load_model, short_name

LOOPBACK = "127.0.0.1"
PORT = 7860


def serve(
    models: Sequence[str] = (MOTION_TINY,),
    *,
    host: str = LOOPBACK,
    port: int = PORT,
    limits: Limits | None = None,
    on_ready: Callable[[str], None] = print,
) -> None:
    """Blocks until interrupted. `on_ready` is told the address; port 0 takes any that is free."""
    if threading.current_thread() is threading.main_thread():
        # a plain SIGTERM ends Python at once, and uploads would stay behind; this way every `with` is left
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    with listen(host, port) as listening, open_app(load_models(models), limits or Limits(), host) as app:
        on_ready(address(listening, host))
        make_server(app).run(sockets=[listening])


@contextmanager
def open_app(models: dict[str, Motionformer], limits: Limits, host: str = LOOPBACK) -> Iterator[Starlette]:
    """The application; with it goes the folder that holds ready clips and uploads."""
    with tempfile.TemporaryDirectory(prefix="motionformer-page-") as folder:
        ready = make_ready_clips(Path(folder), next(iter(models.values())).config.input)
        yield make_app(Models(models), ready, Visitors(Path(folder), limits), hosts_for(host))


def load_models(sources: Sequence[str]) -> dict[str, Motionformer]:
    """By short names that differ."""
    models: dict[str, Motionformer] = {}
    for source in sources:
        model = load_model(source)
        name = short_name(source)
        models[name if name not in models else f"{name} ({len(models) + 1})"] = model
    return models


def make_server(app: Starlette) -> uvicorn.Server:
    # quiet: requests name what people uploaded
    config = uvicorn.Config(
        app, log_level="warning", access_log=False, timeout_keep_alive=5, timeout_graceful_shutdown=3
    )
    return uvicorn.Server(config)


def listen(host: str, port: int) -> socket.socket:
    """A socket that is bound before anything is loaded, so that a taken port is said at once."""
    try:
        return socket.create_server((host, port))
    except OSError as error:
        raise PageError(
            f"cannot listen on {host}:{port} ({error.strerror or error}). Another page may be running: stop it, or "
            f"give another --port (0 takes any that is free)."
        ) from error


def address(listening: socket.socket, host: str) -> str:
    shown = LOOPBACK if host in ("0.0.0.0", "") else host
    return f"http://{shown}:{listening.getsockname()[1]}/"


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach it."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def hosts_for(host: str) -> list[str]:
    """Names a browser may use. On loopback, only loopback's own: otherwise a name that somebody points at 127.0.0.1
    would let their page read this one."""
    return [LOOPBACK, "localhost", host] if is_loopback(host) else ["*"]
