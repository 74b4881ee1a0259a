"""A stored result is of the files that were scored: others are refused, failed ones that changed are tried again."""

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from motionformer.data import Failure
from motionformer.data.motion import write_videos
from motionformer.errors import EvaluationError
from motionformer.evaluation import Results, evaluate, open_source
from motionformer.evaluation.fingerprint import video_stamps
from motionformer.evaluation.parts import FOLDER
from motionformer.evaluation.views import Entry
from motionformer.models import create_model
from motionformer.runs import stamp_video
from tests.evaluation.made import Linear, Numbers


class Files(Numbers):
    """Video i is the noise of the seed that its file holds; a file without a number cannot be read."""

    def __init__(self, folder: Path, fatal: int | None = None) -> None:
        super().__init__(fatal=fatal)
        self.entries = tuple(Entry(f"{i}", str(folder / f"{i}.txt"), e.label) for i, e in enumerate(self.entries))

    def read(self, index: int) -> Any:
        self.broken = () if Path(self.entries[index].path).read_text().isdigit() else (index,)
        found = super().read(index)
        return found if isinstance(found, Failure) else found + int(Path(self.entries[index].path).read_text())


def write_files(folder: Path, first: int = 0) -> Path:
    folder.mkdir()
    for index in range(11):
        (folder / f"{index}.txt").write_text(f"{first + index}")
    return folder


def begin(source: Files, output: Path, *, finished: bool) -> None:
    """An evaluation in parts of one video, all done or cut before video 9."""
    if finished:
        evaluate(Linear(), source, batch=6, output=output)
        return
    source.fatal = 9
    with pytest.raises(KeyboardInterrupt):
        evaluate(Linear(), source, batch=6, output=output, seconds_a_part=0.0)


@pytest.mark.parametrize("finished", [True, False])
def test_other_videos_of_the_same_names_are_refused(tmp_path: Path, finished: bool) -> None:
    begin(Files(write_files(tmp_path / "g")), tmp_path / "out", finished=finished)
    other = write_files(tmp_path / "g_other", first=100)
    before = {file: file.read_bytes() for file in (tmp_path / "out").rglob("*.*")}
    count = 11 if finished else 9
    with pytest.raises(
        EvaluationError, match=rf"{count} of 11 videos have another size.*g_other/0\.txt.*another folder"
    ):
        evaluate(Linear(), Files(other), output=tmp_path / "out")
    assert before == {file: file.read_bytes() for file in (tmp_path / "out").rglob("*.*")}


def test_scores_outlive_files_that_are_gone(tmp_path: Path) -> None:
    folder = write_files(tmp_path / "g")
    begin(Files(folder), tmp_path / "out", finished=True)
    (folder / "4.txt").unlink()
    assert 4 not in evaluate(Linear(), Files(folder), output=tmp_path / "out").failures


def test_other_real_videos_are_refused(tmp_path: Path) -> None:
    for name, seed in (("g", 0), ("g_other", 1)):
        write_videos(tmp_path / name, "easy", 8, frames=4, size=16, seed=seed)
    model = create_model("motionformer-tiny", frames=4, size=16, dim=16, depth=1, num_heads=2)
    g, other = (open_source(tmp_path / name, model.config.input) for name in ("g", "g_other"))
    evaluate(model, g, output=tmp_path / "out")
    with pytest.raises(EvaluationError, match="8 of 8 videos have another size or time of change"):
        evaluate(model, other, output=tmp_path / "out")


@pytest.mark.parametrize("finished", [True, False])
def test_a_repaired_video_is_tried_again_and_no_other(
    tmp_path: Path, finished: bool, capfd: pytest.CaptureFixture[str]
) -> None:
    folder, out = write_files(tmp_path / "g"), tmp_path / "out"
    (folder / "4.txt").write_text("broken")
    begin(Files(folder), out, finished=finished)
    (folder / "4.txt").write_text("4")
    again = Files(folder)
    found = evaluate(Linear(), again, batch=6, output=out)
    assert again.read_indices == ([4] if finished else [4, 9, 10])
    assert ("have changed since are tried again" in capfd.readouterr().err) == finished
    whole = evaluate(Linear(), Files(folder), batch=6)
    assert not found.failures
    np.testing.assert_array_equal(Results.load(out).scores["class"], whole.scores["class"])
    assert not (out / FOLDER).exists()
    evaluate(Linear(), again, batch=6, output=out)
    assert len(again.read_indices) == (1 if finished else 3)


def test_repaired_and_cut_short_again(tmp_path: Path) -> None:
    """The results of before stay until the new ones are whole; what was repaired and scored is not done twice."""
    folder, out = write_files(tmp_path / "g"), tmp_path / "out"
    for index in (4, 9):
        (folder / f"{index}.txt").write_text("broken")
    begin(Files(folder), out, finished=True)
    for index in (4, 9):
        (folder / f"{index}.txt").write_text(f"{index}")
    begin(Files(folder), out, finished=False)
    assert set(Results.load(out).failures) == {4, 9}
    last = Files(folder)
    assert not evaluate(Linear(), last, batch=6, output=out).failures
    assert last.read_indices == [9]


def test_a_finished_result_says_that_it_is_one(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    evaluate(Linear(), Numbers(), output=tmp_path)
    assert capfd.readouterr().err == ""
    evaluate(Linear(), Numbers(), output=tmp_path)
    assert capfd.readouterr() == ("", f"{tmp_path}: finished earlier: nothing was computed.\n")
    evaluate(Linear(), Numbers(), output=tmp_path, show_progress=False)
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize("finished", [True, False])
def test_results_without_stamps_are_taken_as_they_are(tmp_path: Path, finished: bool) -> None:
    folder, out = write_files(tmp_path / "g"), tmp_path / "out"
    begin(Files(folder), out, finished=finished)
    for file in out.rglob("*.npz"):
        with np.load(file) as arrays:
            kept = {name: arrays[name] for name in arrays if name not in ("stamps", "stamped")}
        np.savez(file, **kept)
    (folder / "0.txt").write_text("100")
    again = Files(folder)
    evaluate(Linear(), again, batch=6, output=out)
    assert again.read_indices == ([] if finished else [9, 10])


def test_moved_videos_are_the_same(tmp_path: Path) -> None:
    begin(Files(write_files(tmp_path / "g")), tmp_path / "out", finished=True)
    moved = Files((tmp_path / "g").rename(tmp_path / "moved"))
    evaluate(Linear(), moved, output=tmp_path / "out")
    assert moved.read_indices == []


def test_stamps_change_with_files_and_frames(tmp_path: Path) -> None:
    file, frames = tmp_path / "a.mp4", tmp_path / "frames"
    assert stamp_video(file) == "missing"
    file.write_bytes(b"1")
    seen = [stamp_video(file)]
    os.utime(file, ns=(1, 1))
    seen.append(stamp_video(file))
    file.write_bytes(b"12")
    os.utime(file, ns=(1, 1))
    seen.append(stamp_video(file))
    frames.mkdir()
    for name in ("0.jpg", "1.jpg"):
        (frames / name).touch()
    seen.append(stamp_video(frames))
    os.utime(frames / "0.jpg", ns=(2**62, 2**62))  # one that was there is written again
    seen.append(stamp_video(frames))
    (frames / "1.jpg").write_bytes(b"1")
    os.utime(frames / "1.jpg", ns=(1, 1))  # older than the newest
    seen.append(stamp_video(frames))
    (frames / "1.jpg").write_bytes(b"12")
    os.utime(frames / "1.jpg", ns=(1, 1))
    seen.append(stamp_video(frames))
    (frames / "1.jpg").rename(frames / "2.jpg")
    seen.append(stamp_video(frames))
    (frames / "2.jpg").unlink()
    seen.append(stamp_video(frames))
    assert len(set(seen)) == len(seen) == 9
    (frames / ".thumbnails").touch()
    assert stamp_video(frames) == seen[-1]


def test_made_clips_have_no_stamp() -> None:
    model = create_model("motionformer-tiny")
    assert set(video_stamps(open_source("motion:easy:4", model.config.input))) == {""}
    assert torch.is_tensor(open_source("motion:easy:4", model.config.input).read(0))
