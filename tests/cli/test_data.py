"""`motionformer data`, as a user types it."""

import json
import os
import subprocess
import sys
from pathlib import Path

import av
import numpy as np
import pytest
from typer.testing import CliRunner

from motionformer.cli import app
from motionformer.cli.data import _parse_size
from motionformer.data.shards import _read_shard_index
from motionformer.errors import OutputError
from tests.children import run_code
from tests.video.numbered import write_video

runner = CliRunner(env={"COLUMNS": "200", "TERM": "dumb"})


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two classes with two videos each."""
    root = tmp_path_factory.mktemp("set")
    for place in ("clap/a.mp4", "clap/b.mp4", "wave/c.mp4", "wave/d e.mp4"):
        (root / place).parent.mkdir(exist_ok=True)
        with av.open(str(root / place), "w") as container:
            stream = container.add_stream("libx264", rate=30)
            stream.height, stream.width, stream.pix_fmt = 32, 32, "yuv420p"
            for index in range(18):
                picture = np.full((32, 32, 3), 10 * index, np.uint8)
                container.mux(stream.encode(av.VideoFrame.from_ndarray(picture, format="rgb24")))
            container.mux(stream.encode())
    return root


def test_check_finds_nothing_wrong(folder: Path, tmp_path: Path) -> None:
    options = ["--workers", "1", "--csv", str(tmp_path / "r.csv"), "--json", str(tmp_path / "r.json")]
    result = runner.invoke(app, ["data", "check", str(folder), *options])
    assert result.exit_code == 0, result.output
    assert "a folder of 2 class folders" in result.output
    assert "4 videos: 4 ok, 0 odd, 0 short, 0 broken" in result.output
    assert "h264 (4)" in result.output
    assert len((tmp_path / "r.csv").read_text().splitlines()) == 5
    assert json.loads((tmp_path / "r.json").read_text())["is_well"] is True


def test_check_tells_of_slow_videos(folder: Path, tmp_path: Path) -> None:
    assert "slower than" not in runner.invoke(app, ["data", "check", str(folder), "--workers", "1"]).output
    write_video(tmp_path / "slow.mp4", num_frames=20, fps=8)
    result = runner.invoke(app, ["data", "check", str(tmp_path), "--workers", "1", "--json", str(tmp_path / "r.json")])
    assert "1 of 1 videos are slower than 30 frames a second, down to 8" in result.output
    assert len(json.loads((tmp_path / "r.json").read_text())["notes"]) == 1


def test_check_prints_json(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    result = runner.invoke(app, ["data", "check", str(folder), "--workers", "1", "--quick", "--json", "-"])
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["is_well"] is True
    assert not list(tmp_path.iterdir())


def test_check_knows_where_it_can_write_before_it_begins(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ["data", "check", str(folder), "--workers", "1", "--quick"]
    made = runner.invoke(app, [*words, "--json", str(tmp_path / "new" / "r.json")])
    assert made.exit_code == 0, made.output
    assert (tmp_path / "new" / "r.json").exists()
    monkeypatch.setattr("motionformer.data.check.scan", lambda *_, **__: pytest.fail("began to read videos"))
    for option, place in (("--json", tmp_path), ("--csv", tmp_path / "new" / "r.json" / "r.csv")):
        with pytest.raises(OutputError, match="choose another"):
            runner.invoke(app, [*words, option, str(place)], catch_exceptions=False)


def test_a_full_disk_leaves_the_older_report(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "r.json").write_text("older")
    (tmp_path / f".r.json.{os.getpid()}.part").symlink_to("/dev/full")
    words = ["data", "check", str(folder), "--workers", "1", "--quick", "--json", str(tmp_path / "r.json")]
    result = runner.invoke(app, words)
    assert isinstance(result.exception, OSError)
    assert result.exception.filename == str(tmp_path / "r.json")
    assert (tmp_path / "r.json").read_text() == "older"
    assert "4 videos: 4 ok" in result.output, "what was found is shown all the same"


def test_check_tells_of_files_that_may_be_videos(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "clap").mkdir()
    (tmp_path / "clap" / "a.mp4").write_bytes((folder / "clap" / "a.mp4").read_bytes())
    (tmp_path / "clap" / "b.rmvb").touch()
    result = runner.invoke(app, ["data", "check", str(tmp_path), "--workers", "1", "--quick"])
    assert result.exit_code == 0, result.output
    assert "note: 1 files have no known ending of a video and are left out; the first is" in result.output
    assert "b.rmvb" in result.output


def test_check_says_what_is_broken(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "list.csv").write_text("clap/a.mp4,clap\nclap/gone.mp4,clap\nbad.mp4,wave\n")
    (folder / "bad.mp4").write_text("no video")
    options = ["--root", str(folder), "--workers", "1"]
    result = runner.invoke(app, ["data", "check", str(tmp_path / "list.csv"), *options])
    (folder / "bad.mp4").unlink()
    assert result.exit_code == 1, result.output
    assert "3 videos: 1 ok, 0 odd, 0 short, 2 broken" in result.output
    assert "there is no such file" in result.output
    assert "Invalid data" in result.output
    assert "clap/gone.mp4" in result.output


@pytest.mark.parametrize("words", [["check", "nowhere"], ["check"], ["check", ".", "--workers", "0"], ["shard", "."]])
def test_wrong_usage(words: list[str]) -> None:
    assert runner.invoke(app, ["data", *words]).exit_code == 2


def test_a_wrong_list_is_one_message(tmp_path: Path) -> None:
    (tmp_path / "list.csv").write_text("path,label\nx.mp4\n")
    code = "import sys; from motionformer.cli import main; sys.argv[0] = 'motionformer'; main()"
    done = run_code(code, "data", "check", str(tmp_path / "list.csv"))
    assert done.returncode == 1
    assert done.stderr.strip() == f"error: {tmp_path}/list.csv:2: no value for 'label'; the columns are path, label."


def test_shard(folder: Path, tmp_path: Path) -> None:
    result = runner.invoke(app, ["data", "shard", str(folder), str(tmp_path / "out"), "--size", "3kB"])
    assert result.exit_code == 0, result.output
    index = _read_shard_index(str(tmp_path / "out"))
    assert f"4 items in {len(index.shards)} shards" in result.output
    assert len(index.shards) > 1
    assert index.class_names == ("clap", "wave")
    assert runner.invoke(app, ["data", "shard", str(folder), str(tmp_path / "x"), "--size", "huge"]).exit_code == 2


def test_sizes() -> None:
    assert [_parse_size(text) for text in ("10", "1kB", "1.5 MB", "1GB", "2GiB")] == [10, 1000, 1500000, 10**9, 2**31]


@pytest.mark.parametrize("words", [["data", "check"], ["data", "shard"], ["doctor"]])
def test_help_shows_examples(words: list[str]) -> None:
    result = runner.invoke(app, [*words, "--help"])
    assert result.exit_code == 0
    assert f"motionformer {' '.join(words)} " in result.output.replace("\n", " ")


def test_help_imports_nothing_heavy() -> None:
    code = (
        "import sys; import motionformer.cli; print([name for name in ('torch', 'av', 'numpy') if name in sys.modules])"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip() == "[]"


@pytest.mark.shared
def test_real_clips(shared: Path) -> None:
    result = runner.invoke(app, ["data", "check", str(shared / "data" / "clips"), "--workers", "2"])
    assert result.exit_code == 0, result.output
    assert "14 videos: 9 ok, 5 odd, 0 short, 0 broken" in result.output
    assert "73 frames announced, 72 decoded" in result.output


@pytest.mark.shared
def test_real_class_folders(shared: Path) -> None:
    result = runner.invoke(app, ["data", "check", str(shared / "data" / "gestures"), "--workers", "2", "--quick"])
    assert result.exit_code == 0, result.output
    assert "a folder of 5 class folders" in result.output
    assert "663 videos: 663 ok" in result.output
