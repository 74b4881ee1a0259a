"""A rank that fails or dies ends the others within seconds, with one message that names it.

Collectives do not notice: the others would wait for the lost rank until a time limit of minutes. So every rank keeps a
connection to rank zero. The system closes it when a process dies, however it dies; a rank that fails says why first.
Rank zero prints the message and tells the others, which end at once: all that a job keeps is written atomically.
"""

import contextlib
import json
import os
import secrets
import selectors
import socket
import sys
import threading
import time
from typing import Any

from motionformer.errors import LaunchError, MotionformerError, StoppedError

_KEEP_ALIVE = {"TCP_KEEPIDLE": 10, "TCP_KEEPINTVL": 5, "TCP_KEEPCNT": 6}
"""Seconds, seconds, tries: a machine that is gone closes nothing."""
_SECONDS_TO_CONNECT = 60.0
_SECONDS_FOR_THE_CAUSE = 2.0
"""A lost rank makes collectives fail on the others: its own message goes first."""


class Monitor:
    """The connections of one rank. Made and closed together by all ranks of a job."""

    def __init__(self, rank: int, world_size: int, address: str, store: Any) -> None:
        """`store`: a store of torch.distributed, which tells the others where rank zero listens."""
        self.rank, self.hosts = rank, {rank: socket.gethostname()}
        self.is_ending = self.is_failing = False
        self.over = threading.Event()  # rank zero has said how it ends
        self.peers: dict[int, socket.socket] = {}
        if rank == 0:
            self._listen(world_size, store)
        else:
            self._connect(address, store)
        threading.Thread(target=self._watch, name="monitor", daemon=True).start()

    def close(self, error: BaseException | None = None) -> None:
        """At the end of the job, on every rank; `error` is why this one ends early."""
        if error is None or isinstance(error, StoppedError) or (isinstance(error, SystemExit) and not error.code):
            self.is_ending = True
            self._tell({"end": True})
        else:
            if not isinstance(error, MotionformerError):
                time.sleep(_SECONDS_FOR_THE_CAUSE)  # the thread ends this process if another rank is the cause
            self.is_failing = True
            if not getattr(error, "is_reported", False):
                self._tell({"failed": describe_failure(self.rank, self.hosts[self.rank], _say(error))})
            if isinstance(error, MotionformerError) and self.rank:
                error.is_reported = self.over.wait(2 * _SECONDS_FOR_THE_CAUSE)
        for peer in self.peers.values():
            peer.close()

    def _listen(self, world_size: int, store: Any) -> None:
        token = secrets.token_hex(16)
        with socket.create_server(("", 0), backlog=world_size) as server:
            store.set("monitor", json.dumps([server.getsockname()[1], token]))
            server.settimeout(_SECONDS_TO_CONNECT)
            while len(self.peers) < world_size - 1:
                try:
                    peer, _ = server.accept()
                except TimeoutError as error:
                    lost = ", ".join(str(rank) for rank in range(1, world_size) if rank not in self.peers)
                    raise LaunchError(f"rank {lost}: no connection within {_SECONDS_TO_CONNECT:g} s.") from error
                found = _read_hello(peer)
                if found.get("token") != token:  # somebody else's
                    peer.close()
                    continue
                _keep_alive(peer)
                self.peers[found["rank"]], self.hosts[found["rank"]] = peer, found["host"]

    def _connect(self, address: str, store: Any) -> None:
        port, token = json.loads(store.get("monitor"))
        try:
            self.peers[0] = socket.create_connection((address, port), timeout=_SECONDS_TO_CONNECT)
        except OSError as error:
            raise LaunchError(
                f"rank {self.rank} on {socket.gethostname()} cannot reach rank 0 at {address}:{port} ({error}): let the"
                " nodes of a job connect to each other."
            ) from error
        _keep_alive(self.peers[0])
        self.hosts[0] = address
        self._tell({"rank": self.rank, "host": self.hosts[self.rank], "token": token})

    def _tell(self, message: dict[str, Any]) -> None:
        line = json.dumps(message).encode() + b"\n"
        for peer in self.peers.values():
            with contextlib.suppress(OSError):  # it has ended
                peer.sendall(line)

    def _watch(self) -> None:
        with selectors.DefaultSelector() as selector:
            for rank, peer in self.peers.items():
                peer.settimeout(None)
                selector.register(peer, selectors.EVENT_READ, (rank, bytearray()))
            while selector.get_map():
                for key, _ in selector.select():
                    rank, heard = key.data
                    try:
                        new = key.fileobj.recv(65536)  # type: ignore[union-attr]
                    except OSError:
                        new = b""
                    heard += new
                    if new and not heard.endswith(b"\n"):
                        continue
                    if not self._take(rank, bytes(heard)):
                        selector.unregister(key.fileobj)

    def _take(self, rank: int, heard: bytes) -> bool:
        """What a rank has said, or that it is gone; False where nothing more will come."""
        message = json.loads(heard.splitlines()[0]) if heard.endswith(b"\n") else {}
        if rank == 0:
            self.over.set()
        if message.get("end") or self.is_ending or self.is_failing:
            return False
        text = message.get("failed") or describe_failure(rank, self.hosts[rank], "the process died")
        if self.rank == 0:
            self._tell({"failed": text})
            print(f"error: {text}", file=sys.stderr)
        elif not message:  # rank zero itself died
            print(f"error: {text}", file=sys.stderr)
        sys.stderr.flush()
        os._exit(1)


def describe_failure(rank: int, host: str, reason: str) -> str:
    """The one message about a rank that failed."""
    return (
        f"rank {rank} on {host}: {reason.rstrip('.')}. All processes of the job were ended; what was saved is intact."
    )


def _read_hello(peer: socket.socket) -> dict[str, Any]:
    """The first line, and nothing of what follows it."""
    peer.settimeout(10.0)
    line = b""
    try:
        while not line.endswith(b"\n") and len(line) < 1000 and (new := peer.recv(1)):
            line += new
        found = json.loads(line)
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _say(error: BaseException) -> str:
    if isinstance(error, MotionformerError):
        return str(error)
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__


def _keep_alive(peer: socket.socket) -> None:
    peer.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _KEEP_ALIVE.items():
        if hasattr(socket, name):
            peer.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
