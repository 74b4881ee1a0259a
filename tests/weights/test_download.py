"""Downloads, against a real server on this machine that misbehaves on demand."""

import hashlib
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import torch

from motionformer import load_model
from motionformer.errors import DownloadError
from motionformer.weights.download import download
from motionformer.weights.synchformer import FILENAME
from tests.parity_files import PARITY

CONTENT = bytes(range(256)) * 20000  # 5 MB
NAME = "k400_motionformer_224_16x4.pyth"


class Server(ThreadingHTTPServer):
    """Serves CONTENT; `cut` ends the connection after that many bytes, `ranges` says whether it can continue."""

    content = CONTENT
    cut: int | None = None
    ranges = True
    etag = '"one"'

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.requests: list[dict[str, str]] = []


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        server = self.server
        server.requests.append(dict(self.headers))
        if self.path not in (f"/{NAME}", f"/{FILENAME}"):
            self.send_error(404)
            return
        start = 0
        asked = self.headers.get("Range")
        if asked and server.ranges and self.headers.get("If-Range", server.etag) == server.etag:
            start = int(asked.removeprefix("bytes=").removesuffix("-"))
            if start >= len(server.content):
                self.send_error(416)
                return
        self.send_response(206 if start else 200)
        self.send_header("ETag", server.etag)
        self.send_header("Content-Length", str(len(server.content) - start))
        self.end_headers()
        body = server.content[start:]
        self.wfile.write(body if server.cut is None else body[: server.cut])
        self.close_connection = True

    def log_message(self, *args: object) -> None:
        pass


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    one = Server()
    threading.Thread(target=one.serve_forever, daemon=True).start()
    monkeypatch.setenv("MOTIONFORMER_URL", f"http://127.0.0.1:{one.server_port}")
    monkeypatch.setenv("MOTIONFORMER_CACHE", str(tmp_path / "cache"))
    yield one
    one.shutdown()
    one.server_close()


def test_fetched_once(server: Server) -> None:
    path = download(NAME, sha256=hashlib.sha256(CONTENT).hexdigest())
    assert path.read_bytes() == CONTENT
    assert download(NAME) == path
    assert len(server.requests) == 1
    assert [p.name for p in path.parent.iterdir() if p.suffix != ".lock"] == [NAME]


def test_a_broken_connection_is_continued(server: Server) -> None:
    server.cut = 2_000_000
    with pytest.raises(DownloadError, match="the part already fetched is kept, call again to continue"):
        download(NAME)
    server.cut = None
    assert download(NAME).read_bytes() == CONTENT
    assert server.requests[1]["Range"] == "bytes=2000000-"


def test_a_server_that_cannot_continue_starts_over(server: Server) -> None:
    server.cut = 2_000_000
    with pytest.raises(DownloadError):
        download(NAME)
    server.cut, server.ranges = None, False
    assert download(NAME).read_bytes() == CONTENT


def test_a_file_that_changed_in_between_starts_over(server: Server) -> None:
    server.cut = 2_000_000
    with pytest.raises(DownloadError):
        download(NAME)
    server.cut, server.etag, server.content = None, '"two"', CONTENT[::-1]
    assert download(NAME).read_bytes() == CONTENT[::-1]


def test_a_part_longer_than_the_file_starts_over(server: Server, tmp_path: Path) -> None:
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache" / f"{NAME}.part").write_bytes(CONTENT * 2)
    assert download(NAME).read_bytes() == CONTENT


def test_a_wrong_checksum_throws_the_file_away(server: Server, tmp_path: Path) -> None:
    with pytest.raises(DownloadError, match=r"its checksum is .*, not 00"):
        download(NAME, sha256="00")
    assert {path.name for path in (tmp_path / "cache").iterdir()} <= {f"{NAME}.lock"}


def test_not_found_says_what_to_do(server: Server, tmp_path: Path) -> None:
    with pytest.raises(
        DownloadError, match=r"the server answered 404 .*fetch the file elsewhere and put it at .*cache"
    ):
        download("other.pyth")


def test_offline_says_what_to_put_where(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("MOTIONFORMER_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("MOTIONFORMER_CACHE", str(tmp_path))
    with pytest.raises(DownloadError, match="could not be reached") as caught:
        load_model(NAME.removesuffix(".pyth"))
    assert str(tmp_path / NAME) in str(caught.value)


def test_a_full_disk_is_a_message(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(self: Path, *args: object, **options: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "open", full)
    with pytest.raises(DownloadError, match=r"could not be written \(No space left on device"):
        download(NAME)


def test_two_at_once_fetch_once(server: Server) -> None:
    paths: list[Path] = []
    threads = [threading.Thread(target=lambda: paths.append(download(NAME))) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(paths) == 3
    assert len(server.requests) == 1


def test_a_released_name_is_fetched_and_loaded(server: Server) -> None:
    server.content = (PARITY / "tiny_official.pyth").read_bytes()
    model = load_model(NAME.removesuffix(".pyth"), frames=8, size=32)
    assert model(torch.zeros(1, 3, 8, 32, 32)).shape == (1, 5)
    assert model.config.source == NAME.removesuffix(".pyth")


def test_synchformer_is_fetched_by_name_and_checked(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(DownloadError, match=r"its checksum is .*, not 5b2f5594b0730f70e41e549b7c94390c"):
        load_model("synchformer")
    server.content = (PARITY / "tiny_official.pyth").read_bytes()
    monkeypatch.setattr("motionformer.weights.synchformer.MD5", hashlib.md5(server.content).hexdigest())
    assert load_model("synchformer", frames=8, size=32)(torch.zeros(1, 3, 8, 32, 32)).shape == (1, 5)
