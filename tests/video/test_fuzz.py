"""Damaged files never crash, hang, or raise anything but `VideoError`."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from numbered import write_images, write_video

CASES = 480
"""Over all processes, on generated files."""


def run_cases(first: int, count: int, sources: list[Path]) -> dict[str, int]:
    """Outcomes of one process; its crash, hang or stray exception fails the test with the seed."""
    command = [sys.executable, str(Path(__file__).with_name("fuzz_cases.py")), str(first), str(count)]
    process = subprocess.Popen(
        [*command, *map(str, sources)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    try:
        output, errors = process.communicate(timeout=240)
    except subprocess.TimeoutExpired:
        process.kill()
        output, _ = process.communicate()
        pytest.fail(f"hung at {output.splitlines()[-1]}")
    last = output.splitlines()[-1] if output else "the start"
    assert process.returncode == 0, f"exit {process.returncode} at {last}:\n{errors[-3000:]}"
    outcomes: dict[str, int] = json.loads(last)
    return outcomes


def test_damaged_generated_files(tmp_path: Path) -> None:
    sources = [
        write_video(tmp_path / "b_frames.mp4", b_frames=3),
        write_video(tmp_path / "faststart.mp4", audio=True, container={"movflags": "faststart"}),
        write_video(tmp_path / "turned.mp4", rotation=90),
        write_video(tmp_path / "b_frames.mkv", b_frames=3),
        write_video(tmp_path / "b_frames.ts", b_frames=3),
        write_video(tmp_path / "xvid.avi", codec="mpeg4"),
        write_video(tmp_path / "xvid_b_frames.avi", codec="mpeg4", b_frames=2),
        write_video(tmp_path / "vp9.webm", codec="libvpx-vp9", deadline="realtime"),
        write_images(tmp_path / "jpg", "%d.jpg", num_frames=1) / "1.jpg",
        write_images(tmp_path / "png", "%d.png", num_frames=1) / "1.png",
    ]
    outcomes = run_cases(0, CASES, sources)
    assert sum(outcomes.values()) == CASES
    assert min(outcomes.values()) > CASES // 20, "the damage should be neither always fatal nor never"


@pytest.mark.shared
def test_damaged_real_files(shared: Path) -> None:
    clips = [path for path in sorted((shared / "data/clips").iterdir()) if path.suffix in {".mp4", ".avi"}]
    small = [path for path in clips if path.stat().st_size < 700_000]
    outcomes = run_cases(10_000, 120, small)
    assert sum(outcomes.values()) == 120
