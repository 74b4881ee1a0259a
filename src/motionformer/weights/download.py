"""Fetch a released file once: cached, resumable, with progress, whole or not at all."""

import hashlib
import os
import urllib.error
import urllib.request
from collections.abc import Mapping
from http.client import HTTPException
from pathlib import Path

from filelock import FileLock

from motionformer.errors import DownloadError
from motionformer.logging import progress_bar
from motionformer.weights.released import URL

_BLOCK = 1 << 20
_TIMEOUT = 30.0


def cache_folder() -> Path:
    """`$MOTIONFORMER_CACHE`, else `motionformer` in the user's cache folder."""
    if "MOTIONFORMER_CACHE" in os.environ:
        return Path(os.environ["MOTIONFORMER_CACHE"]).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME", "~/.cache")).expanduser() / "motionformer"


def download(filename: str, *, url: str = URL, sha256: str | None = None, md5: str | None = None) -> Path:
    """The file in the cache, fetched from `$MOTIONFORMER_URL` (by default `url`, the publisher's) if it is not there.

    A broken connection leaves a `.part` file, and the next call continues it. The file appears under its name only
    when complete. Several processes may ask at once: one fetches, the others wait.
    """
    target = cache_folder() / filename
    if target.is_file():
        return target
    url = os.environ.get("MOTIONFORMER_URL", url).rstrip("/") + "/" + filename
    part = target.with_name(filename + ".part")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(str(target) + ".lock"):
            if target.is_file():
                return target
            _fetch(url, part)
            _verify(part, {"sha256": sha256, "md5": md5}, url)
            part.replace(target)
    except urllib.error.HTTPError as error:
        raise DownloadError(f"{url}: the server answered {error.code} {error.reason}. {_by_hand(target)}") from error
    except urllib.error.URLError as error:
        raise DownloadError(f"{url}: could not be reached ({error.reason}). {_by_hand(target)}") from error
    except (HTTPException, TimeoutError, ConnectionError) as error:
        raise DownloadError(
            f"{url}: the connection broke ({error or type(error).__name__}); the part already fetched is kept, call "
            f"again to continue. {_by_hand(target)}"
        ) from error
    except OSError as error:
        raise DownloadError(f"{target}: could not be written ({error.strerror or error}).") from error
    return target


def _fetch(url: str, part: Path) -> None:
    """Append what is missing to `part`; start over where the server cannot continue or the file has changed."""
    tag = part.with_name(part.name + ".etag")
    start = part.stat().st_size if part.is_file() else 0
    headers = {"User-Agent": "motionformer"}
    if start:
        headers["Range"] = f"bytes={start}-"
        if tag.is_file():
            headers["If-Range"] = tag.read_text()
    try:
        answer = urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=_TIMEOUT)
    except urllib.error.HTTPError as error:
        if error.code != 416 or not start:
            raise
        part.unlink()  # more than the server has: not the same file
        return _fetch(url, part)
    with answer:
        if answer.status != 206:
            start = 0
        etag = answer.headers.get("ETag")
        if etag:
            tag.write_text(etag)
        length = answer.headers.get("Content-Length")
        total = start + int(length) if length else None
        with part.open("ab" if start else "wb") as file, progress_bar(in_bytes=True) as progress:
            task = progress.add_task(Path(url).name, total=total, completed=start)
            while block := answer.read(_BLOCK):
                file.write(block)
                progress.advance(task, len(block))
    size = part.stat().st_size
    if total is not None and size < total:
        raise ConnectionError(f"{size} of {total} bytes arrived")
    tag.unlink(missing_ok=True)
    return None


def _verify(part: Path, checksums: Mapping[str, str | None], url: str) -> None:
    for kind, expected in checksums.items():
        if expected is None:
            continue
        with part.open("rb") as file:
            found = hashlib.file_digest(file, kind).hexdigest()
        if found != expected:
            part.unlink()
            raise DownloadError(f"{url}: its checksum is {found}, not {expected}; the file was thrown away.")


def _by_hand(target: Path) -> str:
    return f"Without a connection: fetch the file elsewhere and put it at {target}, or give load_model its path."
