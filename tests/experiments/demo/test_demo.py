"""The demo, as small as it goes: everything is there, and the page needs nothing else."""

import re
import shlex
from pathlib import Path

import pytest
from typer.testing import CliRunner

from motionformer.cli import app
from motionformer.errors import RecipeError
from motionformer.experiments.demo import Demo, _make_videos, run_demo
from motionformer.inference import Results

SMALL = (
    "data.train_clips=32",
    "data.val_clips=16",
    "data.workers=0",
    "epochs=1",
    "schedule.warmup=0",
    "global_batch=16",
)


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Demo:
    return run_demo(tmp_path_factory.mktemp("demo"), overrides=SMALL, num_videos=16, quiet=True)


def test_it_leaves_what_the_commands_leave(demo: Demo) -> None:
    results = Results.load(demo.folder / "results")
    assert len(results) == 16
    assert results.scores["class"].shape == (16, 3, 1, 8)
    assert (demo.run.model / "model.safetensors").is_file()
    assert (demo.folder / "run" / "card.json").is_file()


def test_the_page_needs_nothing_else(demo: Demo) -> None:
    page = demo.report.read_text(encoding="utf-8")
    addresses = re.findall(r'(?:src|href)="([^"]*)"', page)
    assert addresses
    assert all(address.startswith(("data:", "#")) for address in addresses)
    assert "<script" not in page
    accuracy = demo.summary["tasks"]["class"]["all"]["top1"]
    assert f"{100 * accuracy:.1f} %" in page
    assert page.count("image/gif") == 8
    assert page.count("attention of one patch through time") == 3


def test_the_commands_it_prints_work(demo: Demo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    printed = re.findall(
        r"^(?:<pre>)?motionformer (evaluate .*|trace .*)$", demo.report.read_text("utf-8"), re.MULTILINE
    )
    assert len(printed) == 2
    for command in printed:
        result = CliRunner().invoke(app, shlex.split(command))
        assert result.exit_code == 0, result.output
    assert (tmp_path / "trace.png").is_file()


def test_a_finished_demo_is_not_repeated(demo: Demo) -> None:
    weights = demo.run.model / "model.safetensors"
    before = weights.stat().st_mtime_ns
    again = run_demo(demo.folder, overrides=SMALL, num_videos=16, quiet=True)
    assert weights.stat().st_mtime_ns == before
    assert again.summary == demo.summary


def test_half_made_videos_are_made_again(tmp_path: Path) -> None:
    folder = _make_videos(tmp_path / "videos", "easy", 8, 0)
    (tmp_path / "videos.json").unlink()
    next(folder.rglob("*.mp4")).unlink()
    assert len(list(_make_videos(folder, "easy", 8, 0).rglob("*.mp4"))) == 8


def test_only_the_motion_benchmark(tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match="motion:LEVEL"):
        run_demo(tmp_path, overrides=("data.val=videos",), quiet=True)
