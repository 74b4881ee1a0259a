"""The page in a real browser: load, pick, upload, click, see the overlay, upload garbage, download files."""

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.serve.conftest import Page, run_page, small_model

sync_api = pytest.importorskip(
    "playwright.sync_api", reason="playwright is not installed: pip install -c constraints.txt -e '.[test]'"
)
CHROMIUM = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("google-chrome")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no chromium on the PATH, and CHROMIUM names none")
PATIENCE = 60_000  # milliseconds: of a machine that does other things too; nothing waits for it


@pytest.fixture(scope="module")
def served() -> Iterator[Page]:
    with run_page({"one": small_model(noise=0.5), "other": small_model("divided")}) as page:
        yield page


@pytest.fixture(scope="module")
def tab(served: Page) -> Iterator[Any]:
    """The page, open and settled. One for all tests here: each leaves it usable, as a person's would be."""
    with sync_api.sync_playwright() as playwright:
        # the sandbox needs rights that containers do not give
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        tab = browser.new_page(viewport={"width": 1200, "height": 1000})
        tab.set_default_timeout(PATIENCE)
        tab.troubles = []
        tab.on("console", lambda message: tab.troubles.append(message.text) if message.type == "error" else None)
        tab.on("pageerror", lambda error: tab.troubles.append(str(error)))
        tab.asked = []
        tab.on("request", lambda request: tab.asked.append(request.url))
        tab.goto(served.url)
        settle(tab)
        yield tab
        browser.close()


def settle(tab: Any) -> None:
    tab.wait_for_selector("body[data-busy=no]")


def pick(tab: Any, video: str) -> None:
    tab.click(f"#examples button[data-video={video}]")
    tab.wait_for_selector(f"#examples button[data-video={video}][aria-pressed=true]")
    settle(tab)


def pixels(tab: Any, frame: int, model: int = 0) -> str:
    """What a frame of the strip shows."""
    return str(
        tab.evaluate(
            f"document.querySelectorAll('.viewer')[{model}].querySelectorAll('.strip canvas')[{frame}].toDataURL()"
        )
    )


def click(tab: Any, frame: int) -> None:
    tab.locator(".viewer").first.locator(".strip canvas").nth(frame).click(position={"x": 40, "y": 30})
    tab.wait_for_selector(".viewer[data-traced=yes]")
    settle(tab)


def test_it_loads_with_example_clips_and_says_its_limits(tab: Any) -> None:
    assert tab.locator("#examples button").count() == 5
    assert tab.locator(".viewer").count() == 2
    assert "Limits: 50 MB, 60 s, 4 megapixels per frame" in tab.inner_text("#limits")
    assert tab.locator(".prediction").first.locator(".score").count() == 5
    assert tab.locator(".timeline").count() == 2
    assert not tab.is_visible("#message")


def test_picking_another_clip_shows_it(tab: Any) -> None:
    before = pixels(tab, 0)
    pick(tab, "example-2")
    assert tab.inner_text("#name").startswith("medium")
    assert pixels(tab, 0) != before


def test_a_click_in_any_frame_draws_its_trajectory_for_both_models(tab: Any) -> None:
    pick(tab, "example-1")
    bare = [pixels(tab, frame, model) for model in (0, 1) for frame in range(8)]
    assert tab.is_disabled("[data-format=png]")
    click(tab, 6)
    drawn = [pixels(tab, frame, model) for model in (0, 1) for frame in range(8)]
    assert all(one != other for one, other in zip(bare, drawn, strict=True))
    query = tab.evaluate("state.traces.map((trace) => trace.query)")
    assert [one["frame"] for one in query] == [6, 6]
    click(tab, 1)
    assert tab.evaluate("state.traces[0].query.frame") == 1
    assert pixels(tab, 3) != drawn[3]


def test_a_map_that_is_near_uniform_has_no_path_and_the_page_says_so(tab: Any) -> None:
    pick(tab, "example-1")
    click(tab, 4)
    peaks = tab.evaluate(
        "state.traces.map((trace) => trace.tracks[0].token_frames.map((frame) => frame.peak !== null))"
    )
    assert all(peaks[0])
    assert not any(peaks[1])
    notes = tab.locator(".viewer .note")
    assert not notes.nth(0).is_visible()
    assert notes.nth(1).inner_text().startswith("No path: near uniform")
    flat = pixels(tab, 0, 1)
    whites = tab.evaluate(
        """[0, 1].map((model) => {
            const canvas = document.querySelectorAll('.viewer')[model].querySelectorAll('.strip canvas')[0];
            const part = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height * 0.85).data;
            let count = 0;
            for (let i = 0; i < part.length; i += 4) count += part[i] + part[i + 1] + part[i + 2] === 3 * 255;
            return count;
        })"""
    )
    assert whites[0] > 20  # the line, its points and the ellipse
    assert whites[1] == 0
    opacities = tab.evaluate(
        """state.traces.map((trace) => {
            const found = heat(trace, 0);
            const pixels = found.getContext('2d').getImageData(0, 0, found.width, found.height).data;
            return Math.max(...pixels.filter((_, i) => i % 4 === 3));
        })"""
    )
    assert opacities == [205, 0]  # the flat map is not hot everywhere
    tab.evaluate("window.kept = drawFlat; drawFlat = () => {}; draw(); drawFlat = window.kept; null")
    assert pixels(tab, 0, 1) != flat  # its frames were labelled
    click(tab, 1)
    assert pixels(tab, 0, 1) != flat  # the query is in this frame now
    tab.select_option("#scale", "absolute")
    settle(tab)
    assert tab.evaluate("state.traces[0].scale") == "absolute"
    assert "16 times" in tab.inner_text("#legend")
    tab.select_option("#scale", "relative")
    settle(tab)


def test_the_path_grows_on_the_stage(tab: Any) -> None:
    pick(tab, "example-1")
    click(tab, 4)
    tab.click("#play")  # pause
    shown = []
    for step in (0, 7):
        tab.evaluate(f"state.step = {step}; drawStages()")
        shown.append(tab.evaluate("document.querySelector('.stage').toDataURL()"))
    assert shown[0] != shown[1]
    tab.click("#play")


def test_layer_head_and_kind_are_chosen(tab: Any) -> None:
    pick(tab, "example-0")
    click(tab, 4)
    last = pixels(tab, 0)
    tab.select_option("#layer", "0")
    tab.select_option("#head", "2")
    settle(tab)
    assert tab.evaluate("[state.traces[0].tracks[0].layer, state.traces[0].tracks[0].head]") == ["0", "2"]
    assert pixels(tab, 0) != last
    for what in ("class-token", "gradcam"):
        tab.select_option("#what", what)
        settle(tab)
        assert tab.evaluate("state.traces[0].what") == what
    assert tab.is_disabled("#head")
    tab.select_option("#what", "trajectory")
    tab.select_option("#layer", "last")
    settle(tab)
    assert not tab.is_visible("#message")


def test_a_video_of_ones_own_is_shown_predicted_and_followed(tab: Any, clip: Path) -> None:
    tab.set_input_files("#file", clip)
    tab.wait_for_selector("#name:text-is('mine.mp4')")
    settle(tab)
    assert tab.locator(".prediction").count() == 2
    click(tab, 2)
    assert tab.evaluate("state.traces[0].clip") == "mine.mp4"
    first = tab.evaluate("state.clip.clips[0].numbers")
    tab.locator(".timeline").first.click(position={"x": 40, "y": 30})  # near the beginning
    settle(tab)
    assert tab.evaluate("state.clip.clips[0].numbers") != first


def test_garbage_is_refused_with_a_reason_and_the_page_goes_on(tab: Any) -> None:
    pick(tab, "example-0")
    tab.set_input_files("#file", {"name": "notes.mp4", "mimeType": "video/mp4", "buffer": b"not a video " * 99})
    tab.wait_for_selector("#message:not([hidden])")
    settle(tab)
    assert "notes.mp4 cannot be read as a video" in tab.inner_text("#message")
    assert tab.inner_text("#name").startswith("easy")
    tab.troubles[:] = [text for text in tab.troubles if "422" not in text]  # the browser's own note of the refusal
    click(tab, 3)
    assert not tab.is_visible("#message")


def test_a_file_that_is_too_large_is_refused_before_it_is_sent(tab: Any) -> None:
    tab.evaluate("upload({ name: 'film.mp4', size: 51e6 })")
    assert "film.mp4 has 51.0 MB; the limit is 50 MB" in tab.inner_text("#message")
    tab.evaluate("showMessage('')")


def test_paths_are_downloaded_as_json(tab: Any, tmp_path: Path) -> None:
    pick(tab, "example-0")
    click(tab, 3)
    with tab.expect_download() as taken:
        tab.click("[data-format=json]")
    taken.value.save_as(tmp_path / "paths.json")
    assert [one["model"] for one in json.loads((tmp_path / "paths.json").read_text())] == ["one", "other"]
    assert taken.value.suggested_filename.endswith(".json")


def test_nothing_went_wrong_unseen_and_nothing_came_from_elsewhere(tab: Any, served: Page) -> None:
    assert tab.troubles == []
    assert all(url.startswith((served.url, "data:", "blob:")) for url in tab.asked)


def test_closing_the_page_deletes_its_upload(tab: Any, served: Page, clip: Path) -> None:
    tab.set_input_files("#file", clip)
    tab.wait_for_selector("#name:text-is('mine.mp4')")
    settle(tab)
    assert served.uploads()
    tab.goto("about:blank")
    for _ in range(600):
        if not served.uploads():
            break
        tab.wait_for_timeout(50)
    assert served.uploads() == []
