"""Sessions: the pages that are open, their limits, and the one video that each may upload.

A session is a random token that the page sends with every request. It is the only way to a file: tokens and names of
clips are looked up in dictionaries, and nothing in a request becomes part of a path.
"""

import secrets
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path

from jaxtyping import Float32
from torch import Tensor

from motionformer.errors import PageError, VideoError
from motionformer.video import VideoMetadata, open_video

MEGABYTE = 1_000_000


@dataclass(frozen=True)
class Limits:
    """What a page accepts: enforced by the server, stated in the page, explained in the error.

    Attributes:
        megabytes: of an upload.
        seconds: length of a video.
        megapixels: of a frame; decoded frames are held in memory, a clip of them per request.
        users: pages that may be open at once. Requests are answered one at a time, so each further page makes all wait.
        idle_minutes: after which a page without requests loses its session, and its upload is deleted.

    Example:
        >>> Limits(seconds=20.0, users=1).to_dict()["seconds"]
        20.0
    """

    megabytes: float = 50.0
    seconds: float = 60.0
    megapixels: float = 4.0
    users: int = 4
    idle_minutes: float = 15.0

    def check_size(self, num_bytes: int) -> None:
        """Raise `PageError` for a file that is too large, before or while it arrives."""
        if num_bytes > self.megabytes * MEGABYTE:
            raise PageError(
                f"the file is larger than the limit of {self.megabytes:g} MB. Cut or shrink the video, or start the "
                f"server with a larger --max-mb.",
                status=413,
            )

    def check_video(self, metadata: VideoMetadata) -> None:
        """Raise `PageError` for a video that is too long, or whose frames are too large: a small file can hold both."""
        if metadata.duration > self.seconds:
            raise PageError(
                f"the video lasts {metadata.duration:.1f} s; the limit is {self.seconds:g} s. Cut it, start the server "
                f"with a larger --max-seconds, or use motionformer predict --timeline, which takes any length.",
                status=413,
            )
        width, height = metadata.width, metadata.height
        if width * height > self.megapixels * 1_000_000:
            raise PageError(
                f"the frames are {width}×{height}; the limit is {self.megapixels:g} megapixels. Shrink the video, or "
                f"start the server with a larger --max-megapixels.",
                status=413,
            )

    def to_dict(self) -> dict[str, float]:
        """The limits by name."""
        return asdict(self)


@dataclass(frozen=True)
class PageVideo:
    """A file in the server's temporary folder, whose path is never sent; `name` is shown and written into downloads."""

    name: str
    path: Path
    metadata: VideoMetadata
    truth: Float32[Tensor, "t 2"] | None = None
    """True position of the object in every frame, (x, y) in pixels, where it is known."""


def open_upload(path: Path, name: str, limits: Limits, time_limit: float = 20.0) -> PageVideo:
    """The uploaded video, or a `PageError` with the decoder's own reason."""
    try:
        with open_video(path, time_limit=time_limit) as video:
            metadata = video.metadata
            limits.check_video(metadata)
            video.read([metadata.num_frames // 2])  # a header can be read where pictures cannot
    except VideoError as error:
        raise PageError(f"{name} cannot be read as a video: {error.full_reason}.", status=422) from error
    return PageVideo(name, path, metadata)


@dataclass
class _Session:
    """One open page."""

    last_seen: float
    upload: PageVideo | None = None
    is_sending: bool = False
    files: set[Path] = field(default_factory=set)
    """Everything on disk that belongs to it, partial uploads included."""


class Sessions:
    """All open pages. Safe to use from several threads."""

    def __init__(self, folder: Path, limits: Limits, clock: Callable[[], float] = time.monotonic) -> None:
        self.folder, self.limits, self.clock = folder, limits, clock
        self._open: dict[str, _Session] = {}
        self._lock = threading.Lock()

    def start(self) -> str:
        """The token of a new session."""
        self.expire()
        with self._lock:
            if len(self._open) >= self.limits.users:
                raise PageError(
                    f"{self.limits.users} pages are open, the limit of this server. Try again when one is closed, or "
                    f"idle for {self.limits.idle_minutes:g} minutes. (--users allows more.)",
                    status=503,
                )
            token = secrets.token_urlsafe(16)
            self._open[token] = _Session(self.clock())
            return token

    def find(self, token: str | None) -> _Session:
        """The session of a request, kept alive by it."""
        self.expire()
        with self._lock:
            session = self._open.get(token or "")
            if session is None:
                raise PageError(
                    f"the session of this page has expired: it was idle for {self.limits.idle_minutes:g} minutes, or "
                    f"the server was restarted. Its upload is deleted. Reload the page.",
                    status=401,
                )
            session.last_seen = self.clock()
            return session

    @contextmanager
    def sending(self, session: _Session) -> Iterator[Path]:
        """The file for an upload; one at a time, deleted on failure."""
        with self._lock:
            if session.is_sending:
                raise PageError("another upload of this page is in progress: wait until it is done.", status=429)
            session.is_sending = True
        path = self.folder / f"upload-{secrets.token_hex(16)}"
        session.files.add(path)
        try:
            yield path
        except BaseException:  # a browser that disconnects too
            self._delete(session, path)
            raise
        finally:
            session.is_sending = False

    def keep(self, session: _Session, video: PageVideo) -> None:
        """Make `video` the upload of the session; the one before it is deleted."""
        session.upload = video
        for path in session.files - {video.path}:
            self._delete(session, path)
        if all(session is not other for other in self._open.values()):  # closed while the upload was being read
            self._delete_all(session)

    def close(self, token: str | None) -> None:
        """End a session and delete its files."""
        with self._lock:
            session = self._open.pop(token or "", None)
        if session is not None:
            self._delete_all(session)

    def expire(self) -> None:
        """Close sessions that were idle for too long."""
        oldest = self.clock() - 60 * self.limits.idle_minutes
        with self._lock:
            idle = [token for token, session in self._open.items() if session.last_seen < oldest]
        for token in idle:
            self.close(token)

    def _delete(self, session: _Session, path: Path) -> None:
        session.files.discard(path)
        path.unlink(missing_ok=True)

    def _delete_all(self, session: _Session) -> None:
        session.upload = None
        for path in list(session.files):
            self._delete(session, path)
