"""`motionformer predict`, as a user types it."""

import csv
import filecmp
import json
import os
import socket
import threading
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from motionformer.cli import app
from motionformer.errors import OutputError, VideoError
from tests.children import Running
from tests.inference.conftest import make_model
from tests.video.numbered import write_damaged, write_images, write_video

runner = CliRunner(env={"COLUMNS": "200", "TERM": "dumb"})


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("model")
    make_model(views=2, crops=1).save_pretrained(folder)
    return str(folder)


@pytest.fixture(scope="module")
def videos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("videos")
    for number, name in enumerate(("a.mp4", "b.mp4", "c.mp4")):
        write_video(root / name, num_frames=20 + 5 * number)
    return root


@pytest.fixture(scope="module")
def damaged(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of 40 frames, one is damaged which the middle clip does not show but leans on."""
    return write_damaged(tmp_path_factory.mktemp("damaged") / "damaged.mp4")


def test_a_table_json_and_csv(weights: str, videos: Path, tmp_path: Path) -> None:
    files = ["--json", str(tmp_path / "r.json"), "--csv", str(tmp_path / "r.csv")]
    result = runner.invoke(app, ["predict", str(videos), "--model", weights, "--top", "2", *files])
    assert result.exit_code == 0, result.output
    assert "b.mp4" in result.output
    read = json.loads((tmp_path / "r.json").read_text())
    assert [len(one["top"]) for one in read["predictions"]] == [2, 2, 2]
    assert (read["views"], read["crops"]) == (2, 1)
    assert read["predictions"][0]["top"][0]["label"] in result.output
    assert len((tmp_path / "r.csv").read_text().splitlines()) == 1 + 3 * 2
    assert sorted(one.name for one in tmp_path.iterdir()) == ["r.csv", "r.json"], "nothing else is left behind"


def test_json_to_the_screen_and_labels(weights: str, videos: Path, tmp_path: Path) -> None:
    (tmp_path / "names.txt").write_text("one\ntwo\nthree\nfour\nfive\n")
    words = [str(videos / "[ab].mp4"), "--model", weights, "--json", "-", "--labels", str(tmp_path / "names.txt")]
    result = runner.invoke(app, ["predict", *words])
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)["predictions"]
    assert [Path(one["video"]).name for one in found] == ["a.mp4", "b.mp4"]
    assert {guess["label"] for guess in found[0]["top"]} == {"one", "two", "three", "four", "five"}


def test_failed_videos_are_told_and_the_others_done(weights: str, videos: Path, tmp_path: Path) -> None:
    (tmp_path / "bad.mp4").write_text("no video")
    words = [str(tmp_path / "bad.mp4"), str(tmp_path / "gone.mp4"), str(videos / "a.mp4"), "--model", weights]
    result = runner.invoke(app, ["predict", *words])
    assert result.exit_code == 1
    assert "2 of 3 videos could not be read" in result.output
    assert "gone.mp4: there is no such file" in result.output
    assert "bad.mp4: Invalid data" in result.output
    assert "a.mp4" in result.stdout


def test_resume_gives_the_same_file(weights: str, videos: Path, tmp_path: Path) -> None:
    """The journal of a run that was killed after its first video, and had begun to write the second."""
    whole, file = tmp_path / "whole.json", tmp_path / "r.json"
    runner.invoke(app, ["predict", str(videos), "--model", weights, "--json", str(whole), "--resume"])
    journal = (tmp_path / "whole.json.journal" / "0000.jsonl").read_bytes().split(b"\n")
    (tmp_path / "r.json.journal").mkdir()
    cut = b"\n".join(journal[:2]) + b"\n" + journal[2][:20]
    (tmp_path / "r.json.journal" / "0000.jsonl").write_bytes(cut)
    words = ["predict", str(videos), "--model", weights, "--json", str(file), "--resume"]
    result = runner.invoke(app, words)
    assert result.exit_code == 0, result.output
    assert filecmp.cmp(file, whole, shallow=False)
    assert (tmp_path / "r.json.journal" / "0000.jsonl").read_bytes().split(b"\n") == journal
    other = runner.invoke(app, [*words, "--views", "1"])
    assert other.exit_code == 1
    assert "of another run: clips.views" in str(other.exception)


def test_two_processes_give_the_file_of_one(weights: str, videos: Path, tmp_path: Path) -> None:
    one, two = tmp_path / "one.json", tmp_path / "two.json"
    words = ["predict", str(videos), "--model", weights, "--device", "cpu", "--json"]
    assert runner.invoke(app, [*words, str(one)]).exit_code == 0
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    code = "from motionformer.cli import main; main()"
    shared = {**os.environ, "COLUMNS": "200", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    both = [Running(code, *words, str(two), env={**shared, "RANK": rank, "LOCAL_RANK": rank}) for rank in ("0", "1")]
    ends = [running.wait() for running in both]
    assert [end.returncode for end in ends] == [0, 0], ends
    assert two.read_text() == one.read_text()
    assert "b.mp4" in ends[0].stdout
    assert ends[1].stdout == "", "only the first prints"


def test_timeline(weights: str, videos: Path, tmp_path: Path) -> None:
    files = ["--plot", str(tmp_path / "plots"), "--csv", str(tmp_path / "t.csv"), "--json", str(tmp_path / "t.json")]
    words = [str(videos), "--model", weights, "--timeline", "--threshold", "0.01", "--hop", "0.2", *files]
    result = runner.invoke(app, ["predict", *words])
    assert result.exit_code == 0, result.output
    assert sorted(one.name for one in (tmp_path / "plots").iterdir()) == ["a.mp4.png", "b.mp4.png", "c.mp4.png"]
    found = json.loads((tmp_path / "t.json").read_text())["predictions"]
    assert found[0]["segments"][0]["label"] in result.output
    assert len(found[0]["windows"]) == 3  # 20 frames; windows of 10 at 0, 6 and the last 10
    lines = (tmp_path / "t.csv").read_text().splitlines()
    assert len(lines) == 1 + sum(len(one["segments"]) for one in found)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "Missing argument"),
        (["a.mp4", "--resume"], "--json FILE or --csv FILE"),
        (["a.mp4", "--plot", "x.png"], "belong to --timeline"),
        (["a.mp4", "--timeline", "--hop", "0"], "--hop: 0 is not a number of seconds above 0"),
        (["a.mp4", "--timeline", "--hop", "inf"], "--hop: inf is not a number"),
        (["a.mp4", "--timeline", "--window", "0"], "--window: 0 is not a number"),
        (["a.mp4", "--timeline", "--window", "nan"], "--window: nan is not a number"),
        (["a.mp4", "--device", "toaster"], "cannot be used here"),
        (["a.mp4", "--labels", "nowhere.txt"], "does not exist"),
    ],
)
def test_wrong_usage(words: list[str], message: str) -> None:
    result = runner.invoke(app, ["predict", *words])
    assert result.exit_code == 2, result.output
    assert message in " ".join(result.output.split())


def test_several_videos_need_a_folder_of_plots(videos: Path) -> None:
    result = runner.invoke(app, ["predict", str(videos), "--timeline", "--plot", "x.png"])
    assert result.exit_code == 2, result.output
    assert "need a folder" in " ".join(result.output.split())


def test_errors_are_one_message(weights: str, videos: Path, tmp_path: Path) -> None:
    nothing = runner.invoke(app, ["predict", str(tmp_path / "*.mp4"), "--model", weights])
    assert nothing.exit_code == 1
    assert "matches no video" in str(nothing.exception)
    unknown = runner.invoke(app, ["predict", str(videos), "--model", "no-such-model"])
    assert unknown.exit_code == 1
    assert "no released name" in str(unknown.exception)
    gone = runner.invoke(app, ["predict", "gone.mp4", "--model", "no-such-model"])
    assert isinstance(gone.exception, VideoError)  # before the model, which would be fetched


def test_a_pipe_is_written_to_and_keeps_no_journal(weights: str, videos: Path, tmp_path: Path) -> None:
    pipe, came = tmp_path / "pipe", list[bytes]()
    os.mkfifo(pipe)
    reader = threading.Thread(target=lambda: came.append(pipe.read_bytes()), daemon=True)
    reader.start()
    words = ["predict", str(videos), "--model", weights, "--json", str(pipe)]
    result = runner.invoke(app, words)
    assert result.exit_code == 0, result.output
    reader.join(10)
    assert len(json.loads(came[0])["predictions"]) == 3
    assert [file.name for file in tmp_path.iterdir()] == ["pipe"]
    assert pipe.is_fifo()
    again = runner.invoke(app, [*words, "--resume"])
    assert again.exit_code == 2
    assert "no device or pipe" in " ".join(again.output.split())


def test_outputs_are_checked_before_the_videos_are_read(weights: str, videos: Path, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for option, place in (("--json", tmp_path), ("--csv", tmp_path / "file" / "r.csv")):
        with pytest.raises(OutputError, match="choose another"):
            runner.invoke(app, ["predict", str(videos), "--model", weights, option, str(place)], catch_exceptions=False)
    assert not tmp_path.with_name(tmp_path.name + ".journal").exists()
    words = ["predict", str(videos / "a.mp4"), "--model", "nowhere", "--timeline", "--plot"]
    result = runner.invoke(app, [*words, str(tmp_path / "a.txt")])
    assert result.exit_code == 2, result.output
    assert ".txt is no kind of picture" in " ".join(result.output.split())
    with pytest.raises(OutputError, match="is a file, and a folder is needed there"):
        runner.invoke(app, [*words, str(tmp_path / "file")], catch_exceptions=False)


def test_help_shows_examples() -> None:
    text = " ".join(runner.invoke(app, ["predict", "--help"]).output.split())
    assert "motionformer predict clip.mp4" in text
    assert "--timeline" in text


def test_a_file_name_that_is_no_utf8(weights: str, videos: Path, tmp_path: Path) -> None:
    odd = tmp_path / "caf\udce9.mp4"
    odd.write_bytes((videos / "a.mp4").read_bytes())
    result = runner.invoke(app, ["predict", str(odd), "--model", weights, "--json", "-"])
    assert result.exit_code == 0, result.output
    assert [one["video"] for one in json.loads(result.stdout_bytes)["predictions"]] == [str(odd)]
    words = ["--timeline", "--plot", str(tmp_path / "plots"), "--json", "-"]
    assert runner.invoke(app, ["predict", str(odd), "--model", weights, *words]).exit_code == 0
    assert (tmp_path / "plots" / "caf\udce9.mp4.png").stat().st_size


def run_json(words: list[str], tmp_path: Path) -> tuple[list[dict[str, Any]], list[dict[str, str]], str]:
    """The entries of the JSON, the rows of the csv, and what was printed."""
    files = ["--json", str(tmp_path / "r.json"), "--csv", str(tmp_path / "r.csv")]
    result = runner.invoke(app, ["predict", *words, *files])
    assert result.exit_code == 0, result.output
    with (tmp_path / "r.csv").open() as file:
        rows = list(csv.DictReader(file))
    return json.loads((tmp_path / "r.json").read_text())["predictions"], rows, result.output


@pytest.mark.parametrize("timeline", [False, True])
def test_repeated_frames_are_told(weights: str, videos: Path, tmp_path: Path, timeline: bool) -> None:
    """At 5 frames a second, a clip of 4 frames, 3 apart at 30, is half a frame a step: 0, 0, 1, 1."""
    slow = write_video(tmp_path / "slow.mp4", num_frames=20, fps=5)
    words = [str(slow), str(videos / "a.mp4"), "--model", weights, *(["--timeline", "--threshold", "0.01"] * timeline)]
    entries, rows, printed = run_json(words, tmp_path)
    assert [(one["frames"], one["distinct_frames"]) for one in entries] == [(4, 2), (4, 4)]
    told = {Path(row["video"]).name: (row["frames"], row["distinct_frames"], row["damaged"]) for row in rows}
    assert told == {"slow.mp4": ("4", "2", "false"), "a.mp4": ("4", "4", "false")}
    assert "2 of 4" in printed
    assert "1 of 2 videos show frames several times (the fewest distinct ones: 2 of 4 in a clip)" in printed
    entries, _, printed = run_json([*words, "--sample-by", "frames"], tmp_path)
    assert [one["distinct_frames"] for one in entries] == [4, 4]
    assert "several times" not in printed
    if timeline:
        assert {one["distinct_frames"] for one in entries[0]["windows"]} == {4}


def test_sampling_by_frames_is_that_of_a_video_at_the_models_rate(weights: str, tmp_path: Path) -> None:
    (tmp_path / "slow").mkdir()
    write_video(tmp_path / "slow" / "x.mp4", num_frames=30, fps=8, qp="20")
    write_video(tmp_path / "x.mp4", num_frames=30, fps=30, qp="20")
    words = ["--model", weights]
    by_frames, _, _ = run_json([str(tmp_path / "slow" / "x.mp4"), *words, "--sample-by", "frames"], tmp_path)
    usual, _, _ = run_json([str(tmp_path / "x.mp4"), *words], tmp_path)
    slow, _, _ = run_json([str(tmp_path / "slow" / "x.mp4"), *words], tmp_path)
    assert by_frames[0]["top"] == usual[0]["top"] != slow[0]["top"]
    assert json.loads((tmp_path / "r.json").read_text()).get("sample_by") is None
    run_json([str(tmp_path / "x.mp4"), *words, "--sample-by", "frames"], tmp_path)
    assert json.loads((tmp_path / "r.json").read_text())["sample_by"] == "frames"


def test_damaged_videos_are_told(weights: str, videos: Path, damaged: Path, tmp_path: Path) -> None:
    words = [str(damaged), str(videos / "a.mp4"), "--model", weights, "--views", "1"]
    entries, rows, printed = run_json(words, tmp_path)
    assert [one["damaged"] for one in entries] == [True, False]
    assert {(Path(row["video"]).name, row["damaged"]) for row in rows} == {("damaged.mp4", "true"), ("a.mp4", "false")}
    assert "4, damaged" in printed
    assert "1 of 2 videos are damaged where they were read" in printed


def test_a_repaired_folder_of_frames_is_done_again(weights: str, tmp_path: Path) -> None:
    """A frame that is written again leaves the folder's own time as it was."""
    folder = write_images(tmp_path / "frames", "%05d.png", num_frames=20)
    whole = (folder / "00007.png").read_bytes()
    (folder / "00007.png").write_bytes(whole[: len(whole) // 2])
    words = ["predict", str(folder), "--model", weights, "--json", str(tmp_path / "r.json"), "--resume"]
    result = runner.invoke(app, words)
    assert result.exit_code == 1, result.output
    before = folder.stat().st_mtime_ns
    (folder / "00007.png").write_bytes(whole)
    assert folder.stat().st_mtime_ns == before
    result = runner.invoke(app, words)
    assert result.exit_code == 0, result.output
