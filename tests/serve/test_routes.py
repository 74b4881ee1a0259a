"""What the server answers, refuses and deletes; no browser needed."""

import contextlib
import filecmp
import http.client
import json
import time
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import torch
from PIL import Image

from motionformer.data.motion import write_video
from motionformer.errors import PageError
from motionformer.serve import Limits
from motionformer.serve.models import Models, Question
from motionformer.serve.server import _allowed_hosts, _listen, _load_models, _make_examples, is_loopback
from motionformer.serve.sessions import MEGABYTE, Sessions, open_upload
from motionformer.tracing import Clip, trace
from motionformer.video import read_frames
from tests.serve.conftest import Page, run_page, small_model


def test_the_page_says_what_it_has(page: Page) -> None:
    found = page.get("start", method="POST")
    assert [model["name"] for model in found["models"]] == ["small"]
    assert found["limits"] == Limits().to_dict()
    assert len(found["examples"]) >= 4
    assert {one["name"].partition(":")[0] for one in found["examples"]} == {"easy", "medium", "hard"}
    Page(page.url, page.folder, found["session"]).ask("close", method="POST")


def test_example_clips_are_the_same_every_time_and_know_their_truth(tmp_path: Path) -> None:
    spec = small_model().config.input
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    first, second = _make_examples(tmp_path / "a", spec), _make_examples(tmp_path / "b", spec)
    for key, one in first.items():
        assert filecmp.cmp(one.path, second[key].path, shallow=False), key
        assert one.truth is not None
        assert len(one.truth) == one.metadata.num_frames


def test_a_trace_is_what_trace_says_of_the_same_frames(page: Page, tmp_path: Path) -> None:
    model = small_model()
    video = _make_examples(tmp_path, model.config.input)["example-1"]
    question = Question(around=9, frame=7, point=(50.0, 40.0), layer="0", head="1")
    (found,) = Models({"m": model}).trace(video, question).traces
    assert 7 in found.clip.numbers
    plain = trace(model, found.clip.frames, point=(50.0, 40.0), frame=found.clip.numbers.index(7), layer=0, head=1)
    assert torch.equal(found.tracks[0].path, plain.tracks[0].path)
    assert found.query == plain.query
    assert found.clip.truth is not None
    assert video.truth is not None
    assert torch.equal(found.clip.truth, video.truth[list(found.clip.numbers)])


def test_the_clip_stays_where_it_is_whichever_frame_is_clicked(page: Page) -> None:
    shown = page.get("clip", video="example-0")["clips"][0]["numbers"]
    for frame in (shown[0], shown[-1]):
        (found,) = page.get("trace", video="example-0", x=40, y=40, frame=frame)
        assert found["frames"] == shown
        assert found["query"]["number"] == frame


@pytest.mark.parametrize("what", ["trajectory", "class-token", "rollout", "gradcam"])
def test_every_kind_is_answered(page: Page, what: str) -> None:
    (found,) = page.get("trace", video="example-0", what=what, x=40, y=40, layer=1)
    assert found["what"] == what
    assert (found["query"] is None) == (what in ("class-token", "gradcam"))


@pytest.mark.parametrize(("kind", "start"), [("png", b"\x89PNG"), ("mp4", b"\0\0\0")])
def test_downloads_are_what_they_say(page: Page, kind: str, start: bytes) -> None:
    status, content = page.ask("trace", video="example-0", x=40, y=40, format=kind)
    assert status == 200
    assert content.startswith(start)


def test_two_models_are_asked_the_same_and_everything_is_deleted_when_the_server_stops(clip: Path) -> None:
    with run_page({"one": small_model(), "other": small_model("joint")}) as running:
        page = running.open()
        page.ask("upload", clip.read_bytes(), name="mine.mp4")
        assert [one["scheme"] for one in page.get("trace", video="upload", x=30, y=20)] == ["trajectory", "joint"]
        assert [one["model"] for one in page.get("prediction", video="upload")] == ["one", "other"]
        assert page.uploads()
    assert not page.folder.exists()


def test_an_upload_is_predicted_and_its_place_is_not_told(page: Page, clip: Path) -> None:
    page.ask("upload", clip.read_bytes(), name="mine.mp4")
    (found,) = page.get("prediction", video="upload")
    assert len(found["top"]) == 5
    assert found["timeline"]["duration"] == pytest.approx(2.0)
    texts = [json.dumps(found), *(json.dumps(page.get(path, video="upload", x=9, y=9)) for path in ("clip", "trace"))]
    assert "mine.mp4" in texts[0]
    assert not any(str(page.folder) in text or "upload-" in text for text in texts)


def test_an_upload_is_deleted_when_it_is_replaced_and_when_its_page_is_left(page: Page, clip: Path) -> None:
    page.ask("upload", clip.read_bytes(), name="one.mp4")
    (first,) = page.uploads()
    page.ask("upload", clip.read_bytes(), name="two.mp4")
    (second,) = page.uploads()
    assert first != second
    page.ask("close", method="POST")
    assert page.uploads() == []
    assert page.error("clip", video="upload")[0] == 401


def test_garbage_gets_the_decoders_reason_and_is_deleted(page: Page) -> None:
    status, message = page.error("upload", body=b"not a video " * 99, name="notes.mp4")
    assert status == 422
    assert "notes.mp4 cannot be read as a video" in message
    assert "Invalid data" in message or "not read as a video" in message
    assert str(page.folder) not in message
    assert page.uploads() == []


def test_a_bad_upload_leaves_the_one_before_it_alone(page: Page, clip: Path) -> None:
    page.ask("upload", clip.read_bytes(), name="good.mp4")
    page.error("upload", body=b"garbage", name="bad.mp4")
    assert page.get("clip", video="upload")["name"] == "good.mp4"


def test_limits_are_enforced_and_explained(clip: Path, tmp_path: Path) -> None:
    short = tmp_path / "short.mp4"
    write_video(short, read_frames(clip, range(8)).numpy(), 10)
    limits = Limits(megabytes=0.02, seconds=1.5, megapixels=0.002, users=1)
    assert clip.stat().st_size < 0.02 * MEGABYTE
    with run_page(limits=limits) as running:
        page = running.open()
        status, message = page.error("upload", body=bytes(20_001), name="mine.mp4")
        assert (status, page.uploads()) == (413, [])
        assert "0.02 MB" in message
        assert "--max-mb" in message
        assert send_unannounced(page, 50 * [bytes(400)])[0] == 422  # not too large, but no video
        assert send_unannounced(page, 51 * [bytes(400)])[0] == 413
        assert page.uploads() == []
        status, message = page.error("upload", body=clip.read_bytes(), name="mine.mp4")
        assert (status, page.uploads()) == (413, [])
        assert "lasts 2.0 s; the limit is 1.5 s" in message
        status, message = page.error("upload", body=short.read_bytes(), name="mine.mp4")
        assert (status, page.uploads()) == (413, [])
        assert "the frames are 64×48; the limit is 0.002 megapixels" in message
        assert "--max-megapixels" in message
        status, message = running.error("start", method="POST")
        assert status == 503
        assert "1 pages are open" in message
        page.ask("close", method="POST")
        running.open()


def test_a_page_sends_one_upload_at_a_time(tmp_path: Path) -> None:
    sessions = Sessions(tmp_path, Limits())
    session, other = (sessions.find(sessions.start()) for _ in range(2))
    with sessions.sending(session) as path:
        path.write_bytes(b"half an upload")
        with pytest.raises(PageError, match="another upload of this page is in progress"), sessions.sending(session):
            pass
        with sessions.sending(other):
            pass
    with contextlib.suppress(KeyError), sessions.sending(session) as second:
        second.write_bytes(b"what fails is deleted")
        raise KeyError
    assert list(tmp_path.iterdir()) == [path]
    with sessions.sending(session):
        pass


def test_clips_are_shown_one_at_a_time(tmp_path: Path) -> None:
    models = Models({"a": small_model(), "b": small_model()})
    video = _make_examples(tmp_path, small_model().config.input)["example-0"]
    shown: list[int] = []

    def show(name: str, clip: Clip) -> str:
        shown.append(1)
        at_once.append(len(shown))
        time.sleep(0.02)
        shown.pop()
        return name

    at_once: list[int] = []
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda _: models.clips(video, None, show), range(4)))
    assert found == [["a", "b"]] * 4
    assert at_once == [1] * 8


def send_unannounced(page: Page, parts: list[bytes]) -> tuple[int, bytes]:
    """In parts, without saying how many there will be."""
    connection = http.client.HTTPConnection(urlsplit(page.url).netloc)
    connection.request("POST", "/api/upload", iter(parts), {"X-Session": page.session}, encode_chunked=True)
    response = connection.getresponse()
    content = response.read()
    connection.close()
    return response.status, content


def test_an_idle_page_loses_its_session_and_its_files(tmp_path: Path) -> None:
    now = 0.0
    sessions = Sessions(tmp_path, Limits(users=1, idle_minutes=1.0), clock=lambda: now)
    token = sessions.start()
    with sessions.sending(sessions.find(token)) as file:
        file.write_bytes(b"half an upload")
    now = 59.0
    sessions.find(token)
    now = 118.0
    sessions.find(token)
    with pytest.raises(PageError, match="1 pages are open"):
        sessions.start()
    now = 179.0
    sessions.start()
    assert not file.exists()
    with pytest.raises(PageError, match="Reload"):
        sessions.find(token)


@pytest.mark.parametrize(
    "video", ["../../etc/passwd", "/etc/passwd", "file:///etc/passwd", "motion:easy/0", "", "example-99"]
)
def test_no_path_leads_to_a_file(page: Page, video: str) -> None:
    for path in ("clip", "prediction", "trace"):
        status, message = page.error(path, video=video)
        assert status == 404
        assert "there is no video" in message


@pytest.mark.parametrize("path", ["/../serve.py", "/%2e%2e/serve.py", "/page/index.html", "/..%2f..%2ferrors.py"])
def test_only_the_pages_own_files_are_given_out(page: Page, path: str) -> None:
    connection = http.client.HTTPConnection(urlsplit(page.url).netloc)
    connection.request("GET", path)
    assert connection.getresponse().status == 404
    connection.close()


def test_an_uploads_name_is_only_a_name(page: Page, clip: Path) -> None:
    page.ask("upload", clip.read_bytes(), name="../../../tmp/evil.mp4")
    (file,) = page.uploads()
    assert file.parent == page.folder
    assert "evil" not in file.name


def test_an_upload_belongs_to_its_session(page: Page, clip: Path) -> None:
    page.ask("upload", clip.read_bytes(), name="mine.mp4")
    other = page.open()
    assert other.error("clip", video="upload")[0] == 404
    other.ask("close", method="POST")


def test_pages_of_other_sites_get_nowhere(page: Page) -> None:
    with pytest.raises(urllib.error.HTTPError) as without_header:
        urllib.request.urlopen(urllib.request.Request(f"{page.url}api/start", b"", method="POST"))
    assert without_header.value.code == 403
    request = urllib.request.Request(page.url, headers={"Host": "evil.example"})
    with pytest.raises(urllib.error.HTTPError) as other_name:
        urllib.request.urlopen(request)
    assert other_name.value.code == 400


def test_nothing_is_fetched_from_elsewhere(page: Page) -> None:
    with urllib.request.urlopen(page.url) as response:
        assert "default-src 'self'" in response.headers["content-security-policy"]
        text = response.read().decode()
    for name in ("page.css", "page.js"):
        with urllib.request.urlopen(page.url + name) as response:
            text += response.read().decode()
    assert "//" not in text.replace("http://www.w3.org/2000/svg", "").replace("// ", "")


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ({"x": 500, "y": 3}, "small: clip: the point 500,3 is outside the frame"),
        ({"x": 5, "y": 3, "layer": 9}, "there is no layer 9"),
        ({"x": 5, "y": 3, "head": "many"}, "head must be all, mean or a number"),
        ({"x": "left", "y": 3}, "`x` must be a number; not 'left'"),
        ({"x": 5, "y": 3, "frame": "two"}, "`frame` must be an integer"),
        ({"x": 5, "y": 3, "around": 999}, "there is no frame 999"),
        ({"x": "nan", "y": 3}, "outside the frame"),
        ({"x": 5, "y": 3, "what": "dreams"}, "`what` ('dreams') must be one of"),
        ({"x": 5, "y": 3, "format": "exe"}, "`format` ('exe') must be one of png"),
        ({"x": 5, "y": 3, "scale": "loud"}, "must be one of relative, absolute"),
        ({}, "give the point to trace, in pixels"),
    ],
)
def test_questions_that_make_no_sense_are_answered_with_what_would(
    page: Page, query: dict[str, object], words: str
) -> None:
    status, message = page.error("trace", video="example-0", **query)
    assert status in (400, 422)
    assert words in message


def test_a_taken_port_is_said_plainly() -> None:
    with _listen("127.0.0.1", 0) as taken, pytest.raises(PageError, match="another --port"):
        _listen("127.0.0.1", taken.getsockname()[1])


def test_loopback_is_known_and_guarded() -> None:
    assert is_loopback("127.0.0.1")
    assert is_loopback("localhost")
    assert not is_loopback("0.0.0.0")
    assert not is_loopback("192.168.0.7")
    assert "*" not in _allowed_hosts("127.0.0.1")
    assert _allowed_hosts("0.0.0.0") == ["*"]


def test_two_models_of_one_name_are_told_apart(tmp_path: Path) -> None:
    runs = [tmp_path / run / "model" for run in ("a", "b", "again/a")]
    for folder in runs:
        small_model().save_pretrained(folder)
    assert list(_load_models([str(folder) for folder in runs])) == ["a", "b", "a (3)"]


def test_pictures_in_the_middle_of_an_upload_are_read(tmp_path: Path) -> None:
    """A folder of frames whose header and first picture are well, and whose others are not."""
    for number in range(9):
        Image.new("RGB", (32, 32)).save(tmp_path / f"{number}.png")
    assert open_upload(tmp_path, "clip", Limits()).metadata.num_frames == 9
    for number in range(2, 9):
        (tmp_path / f"{number}.png").write_bytes((tmp_path / f"{number}.png").read_bytes()[:40])
    with pytest.raises(PageError, match=r"^clip cannot be read as a video: "):
        open_upload(tmp_path, "clip", Limits())
