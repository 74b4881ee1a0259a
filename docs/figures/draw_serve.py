"""The pages of docs/commands/serve.md, photographed in headless Chromium: `python -m docs.figures.draw_serve`."""

import shutil
from pathlib import Path
from typing import Any

from playwright.sync_api import sync_playwright
from tests.serve.conftest import run_page

from motionformer.serve.server import _load_models

HERE = Path(__file__).parent
STEP = 4  # the frame of the clip that is clicked


def main() -> None:
    with run_page(_load_models(["motion-tiny"])) as page, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        tab = browser.new_page(viewport={"width": 1200, "height": 1000})
        tab.goto(page.url)
        settle(tab)
        tab.click("#play")
        tab.select_option("#layer", "mean")
        click_disc(tab)
        tab.evaluate("state.step = 6; drawStages()")
        tab.screenshot(path=HERE / "serve-trace.png", full_page=True)
        tab.click("#examples button[data-video=example-4]")
        settle(tab)
        garbage = {"name": "notes.mp4", "mimeType": "video/mp4", "buffer": b"not a video " * 99}
        tab.set_input_files("#file", garbage)
        tab.wait_for_selector("#message:not([hidden])")
        settle(tab)
        tab.screenshot(path=HERE / "serve-error.png", full_page=True)
        browser.close()


def click_disc(tab: Any) -> None:
    """A first click, anywhere, brings the true path; the second is on it."""
    cell = tab.locator(".strip canvas").nth(STEP)
    cell.click()
    settle(tab)
    (x, y), width = tab.evaluate(f"state.traces[0].truth[{STEP}]"), tab.evaluate("state.clip.width")
    scale = cell.bounding_box()["width"] / width
    cell.click(position={"x": x * scale, "y": y * scale})
    settle(tab)


def settle(tab: Any) -> None:
    tab.wait_for_selector("body[data-busy=no]")


if __name__ == "__main__":
    main()
