"""Who has the page open, and what they uploaded: one video each, deleted when they replace it, leave, or go idle.

A visitor is a random token that the page sends with every request. It is the only way to a file: tokens and names of
clips are looked up in dictionaries, and nothing that a request says becomes part of a path.
"""

import secrets
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from motionformer.app.limits import Limits
from motionformer.app.video import PageVideo
from motionformer.errors import PageError


@dataclass
class Visitor:
    """One open page."""

    seen: float
    upload: PageVideo | None = None
    is_sending: bool = False
    files: set[Path] = field(default_factory=set)
    """Everything on disk that is theirs, half an upload included."""


class Visitors:
    """All open pages. Safe to use from several threads."""

    def __init__(self, folder: Path, limits: Limits, clock: Callable[[], float] = time.monotonic) -> None:
        self.folder, self.limits, self.clock = folder, limits, clock
        self._here: dict[str, Visitor] = {}
        self._lock = threading.Lock()

    def enter(self) -> str:
        """A place for one more page, or an error where there is none."""
        self.sweep()
        with self._lock:
            if len(self._here) >= self.limits.users:
                raise PageError(
                    f"{self.limits.users} pages are open, the most this server answers at once. Try again when "
                    f"somebody closes theirs; one that asks nothing for {self.limits.idle_minutes:g} minutes makes "
                    f"room too. (--users allows more.)",
                    status=503,
                )
            token = secrets.token_urlsafe(16)
            self._here[token] = Visitor(self.clock())
            return token

    def find(self, token: str | None) -> Visitor:
        """Whose request this is; being asked for keeps their place."""
        self.sweep()
        with self._lock:
            visitor = self._here.get(token or "")
            if visitor is None:
                raise PageError(
                    f"this page lost its place: it asked nothing for {self.limits.idle_minutes:g} minutes, or the "
                    f"server was started anew. Its upload is deleted. Reload it.",
                    status=401,
                )
            visitor.seen = self.clock()
            return visitor

    @contextmanager
    def sending(self, visitor: Visitor) -> Iterator[Path]:
        """Where their upload may be written; one at a time, and what fails is deleted."""
        with self._lock:
            if visitor.is_sending:
                raise PageError("another upload of this page is still arriving: wait until it is done.", status=429)
            visitor.is_sending = True
        path = self.folder / f"upload-{secrets.token_hex(16)}"
        visitor.files.add(path)
        try:
            yield path
        except BaseException:  # a browser that goes away half-way too
            self.drop(visitor, path)
            raise
        finally:
            visitor.is_sending = False

    def keep(self, visitor: Visitor, video: PageVideo) -> None:
        """The video is theirs now, and the one before it is gone."""
        visitor.upload = video
        for path in visitor.files - {video.path}:
            self.drop(visitor, path)
        if all(visitor is not other for other in self._here.values()):  # left while the upload was being read
            self._forget(visitor)

    def drop(self, visitor: Visitor, path: Path) -> None:
        """Deletes a file of theirs."""
        visitor.files.discard(path)
        path.unlink(missing_ok=True)

    def leave(self, token: str | None) -> None:
        """Their page was closed."""
        with self._lock:
            visitor = self._here.pop(token or "", None)
        if visitor is not None:
            self._forget(visitor)

    def sweep(self) -> None:
        """Those who asked nothing for too long have left."""
        oldest = self.clock() - 60 * self.limits.idle_minutes
        with self._lock:
            idle = [token for token, visitor in self._here.items() if visitor.seen < oldest]
        for token in idle:
            self.leave(token)

    def _forget(self, visitor: Visitor) -> None:
        visitor.upload = None
        for path in list(visitor.files):
            self.drop(visitor, path)
